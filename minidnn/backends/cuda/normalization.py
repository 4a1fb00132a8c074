"""BatchNorm and Scale (kernels/normalization.cu). BatchNorm reads x twice: once for its statistics, which are merged as
means and squared deviations, and once to normalize it."""

from __future__ import annotations

import math

import numpy as np

from minidnn.backends.cuda.columns import mapping, partials, reducing
from minidnn.backends.cuda.recipe import Argument, Launch, Read, Recipe, Scratch, Write, over, plain
from minidnn.backends.cuda.reduction import sums_by_channel
from minidnn.backends.layout import channels_last
from minidnn.program import Op


def _launch(kernel: str, *arguments, grid: int) -> Launch:
    return Launch("normalization", kernel, arguments, grid)


def batch_norm_forward(op: Op) -> list[Recipe]:
    """One recipe for x (N, C, ...) -> y mean variance; the variance is the biased one."""
    shape, c = op.reads[0].shape, op.reads[0].shape[1]
    g, each = reducing(shape), mapping(shape)
    x, y, mean, variance = Read(0), Write(0), Write(1), Write(2)
    normalize = _launch(
        f"normalize_{each.vector}", x, mean, variance, y, np.float32(op.attrs.eps), *each.arguments, grid=each.grid
    )
    if g.chunks == 1:
        moments = _launch(f"moments_{g.vector}", x, mean, variance, *g.arguments, grid=g.grid)
        return [plain(moments, normalize)]
    scratch = Scratch()
    partial, last = scratch.take(g.chunks * 3 * c * 4), partials(g.chunks, c)
    finish = x, partial, mean, variance, np.int64(g.items), np.int32(g.inner), *last.arguments
    return [
        scratch.recipe(
            "default",
            _launch(f"moments_chunks_{g.vector}", x, partial, *g.arguments, grid=g.grid),
            _launch("moments_finish", *finish, grid=last.grid),
            normalize,
        )
    ]


def batch_norm_backward(op: Op) -> list[Recipe]:
    """One recipe for x mean variance dy -> dx, which may have the bytes of dy."""
    shape, c = op.reads[0].shape, op.reads[0].shape[1]
    g, each = reducing(shape), mapping(shape)
    x, mean, variance, dy = (Read(i) for i in range(4))
    scratch = Scratch()
    sums = scratch.take(2 * c * 4)  # of dy, of dy (x - mean)
    partial = scratch.take(g.chunks * 2 * c * 4) if g.chunks > 1 else sums
    steps = [_launch(f"backward_sums_{g.vector}", x, mean, dy, partial, *g.arguments, grid=g.grid)]
    if g.chunks > 1:
        last = partials(g.chunks, 2 * c)
        steps.append(_launch("backward_finish", partial, sums, *last.arguments, grid=last.grid))
    eps = np.float32(op.attrs.eps)
    steps.append(
        _launch(f"backward_{each.vector}", x, mean, variance, dy, sums, Write(0), eps, *each.arguments, grid=each.grid)
    )
    return [scratch.recipe("default", *steps)]


def batch_norm_statistics(op: Op) -> list[Recipe]:
    """One recipe for mean variance mean_sum variance_sum factor -> the last three, updated in place.

    Each becomes fraction * itself + new, where new is the mean, the unbiased variance, or 1."""
    a, c = op.attrs, op.reads[0].size
    unbiased = a.count / (a.count - 1) if a.count > 1 else 1.0
    numbers = np.int32(c), np.float32(a.fraction), np.float32(unbiased)
    arguments = Read(0), Read(1), Write(0), Write(1), Write(2), *numbers
    return [plain(_launch("statistics", *arguments, grid=over(c)))]


def batch_norm_inference(op: Op) -> list[Recipe]:
    """One recipe for x mean_sum variance_sum factor -> y."""
    g = mapping(op.reads[0].shape)
    arguments = *(Read(i) for i in range(4)), Write(0), np.float32(op.attrs.eps), *g.arguments
    return [plain(_launch(f"inference_{g.vector}", *arguments, grid=g.grid))]


def batch_norm_inference_backward(op: Op) -> list[Recipe]:
    """One recipe for variance_sum factor dy -> dx = dy / sqrt(variance + eps)."""
    g = mapping(op.reads[2].shape)
    arguments = *(Read(i) for i in range(3)), Write(0), np.float32(op.attrs.eps), *g.arguments
    return [plain(_launch(f"inference_backward_{g.vector}", *arguments, grid=g.grid))]


def scale_forward(op: Op) -> list[Recipe]:
    """One recipe for x gamma (beta) -> y = x * gamma (+ beta), by channel."""
    return [_by_channel(op.reads[0].shape, [Read(i) for i in range(len(op.reads))])]


def scale_backward_filter(op: Op) -> list[Recipe]:
    """One recipe for x dy (N, C, ...) -> dgamma (C,)."""
    return sums_by_channel(op, "sum_products", [Read(0), Read(1)])


def scale_backward_data(op: Op) -> list[Recipe]:
    """One recipe for gamma dy -> dx = dy * gamma, by channel."""
    return [_by_channel(op.reads[1].shape, [Read(1), Read(0)])]


def _by_channel(shape: tuple[int, ...], reads: list[Argument]) -> Recipe:
    size, c = math.prod(shape), shape[1]
    name = "scale_shift" if len(reads) == 3 else "scale"
    inner = 1 if channels_last(shape) else math.prod(shape[2:])
    if inner == 1 and c % 4 == 0:
        n4 = size // 4
        return plain(Launch("normalization", f"{name}_4", (*reads, Write(0), np.int64(n4), np.int32(c // 4)), over(n4)))
    arguments = (*reads, Write(0), np.int64(size), np.int32(inner), np.int32(c))
    return plain(Launch("normalization", f"{name}_1", arguments, over(size)))


KINDS = {
    "batch_norm.forward": batch_norm_forward,
    "batch_norm.backward": batch_norm_backward,
    "batch_norm.statistics": batch_norm_statistics,
    "batch_norm.inference": batch_norm_inference,
    "batch_norm.inference_backward": batch_norm_inference_backward,
    "scale.forward": scale_forward,
    "scale.backward_filter": scale_backward_filter,
    "scale.backward_data": scale_backward_data,
}
