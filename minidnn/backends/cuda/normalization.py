"""BatchNorm and Scale (kernels/normalization.cu), alone and fused, with the ReLU behind them or without it, or with a
residual block's sum and its ReLU.

BatchNorm reads x twice: once for its statistics, which are merged as means and squared deviations, and once to
normalize it. Each pass over x is an op of its own in parts of the batch (memory/parts/passes.py), by the same kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from minidnn.backends.cuda.columns import Columns, mapping, merging, partials, reducing
from minidnn.backends.cuda.multi_tensor import batches, places
from minidnn.backends.cuda.recipe import (
    Argument,
    Launch,
    Pointer,
    Read,
    Recipe,
    Scratch,
    Space,
    Table,
    Write,
    int32,
    over,
    plain,
)
from minidnn.backends.cuda.reduction import sums_by_channel
from minidnn.backends.layout import channels_last
from minidnn.program import Op, Tensor

BEHIND = ("", "_scale", "_scale_relu")  # the ops that are fused with a BatchNorm (programs/fusion/normalization.py)
JOIN = "_scale_add_relu"  # and these in forward
NORMS = 72  # most BatchNorms whose running statistics one launch updates
WIDE = 16  # bytes of a thread's channels, which move at once
PARTS = 240  # most parts of a batch that one launch merges


def _launch(kernel: str, *arguments, grid: int) -> Launch:
    return Launch("normalization", kernel, arguments, grid)


def _reducing(x: Tensor) -> Columns:
    return reducing(x.shape, WIDE // x.itemsize)


def _mapping(x: Tensor) -> Columns:
    return mapping(x.shape, WIDE // x.itemsize)


def _behind(op: Op) -> str:
    """The part of the kernels' names for the ops that are fused with the BatchNorm: one of BEHIND, or JOIN."""
    return next(behind for behind in (JOIN, *reversed(BEHIND)) if op.kind.endswith(behind))


def batch_norm_forward(op: Op) -> list[Recipe]:
    """One recipe for x (N, C, ...) -> y mean variance; the variance is the biased one."""
    scratch = Scratch()
    x, y, mean, variance = Read(0), Write(0), Write(1), Write(2)
    return [scratch.recipe("default", *_moments(op, scratch, mean, variance), _normalize(op, x, mean, variance, y))]


def batch_norm_moments(op: Op) -> list[Recipe]:
    """One recipe for x (N, C, ...) -> mean variance; the variance is the biased one."""
    scratch = Scratch()
    return [scratch.recipe("default", *_moments(op, scratch, Write(0), Write(1)))]


def batch_norm_merge(op: Op) -> list[Recipe]:
    """One recipe for a pair of each part -> one of all parts: mean variance, or two sums."""
    kernel, c, before, launches = op.kind.removeprefix("batch_norm."), op.writes[0].size, 0, []
    more = (Read(0), int32(len(op.reads) // 2)) if kernel == "merge_moments" else ()
    for part in batches(range(0, len(op.reads), 2), PARTS):
        table = Table(PARTS, (tuple(Read(i) for i in part), tuple(Read(i + 1) for i in part)))
        counts = int32(len(part)), int32(before)
        launches.append(_launch(kernel, table, *counts, Write(0), Write(1), int32(c), *more, grid=over(c)))
        before += len(part)
    return [plain(*launches)]


def batch_norm_normalize(op: Op) -> list[Recipe]:
    """One recipe for x (shortcut) mean variance (gamma beta) -> y, which may have the bytes of x or of the shortcut."""
    return [plain(_normalize(op, *(Read(i) for i in range(len(op.reads))), Write(0)))]


def _moments(op: Op, scratch: Scratch, mean: Write, variance: Write) -> list[Launch]:
    x, c = Read(0), op.reads[0].shape[1]
    g = _reducing(op.reads[0])
    if g.chunks == 1:
        return [_launch(f"moments_{g.vector}", x, mean, variance, *g.arguments, grid=g.grid)]
    partial, last = scratch.take(g.chunks * 3 * c * 4), merging(g.chunks, c)
    finish = x, partial, mean, variance, np.int64(g.items), int32(g.inner), *last.arguments
    return [
        _launch(f"moments_chunks_{g.vector}", x, partial, *g.arguments, grid=g.grid),
        _launch("moments_finish", *finish, grid=last.grid),
    ]


def _normalize(op: Op, *tensors: Pointer) -> Launch:
    """`tensors`: x, the shortcut if there is one, mean, variance, and gamma and beta if they are fused; then y."""
    g = _mapping(op.reads[0])
    arguments = *tensors, np.float32(op.attrs.eps), *g.arguments
    return _launch(f"normalize{_behind(op)}_{g.vector}", *arguments, grid=g.grid)


def batch_norm_backward(op: Op) -> list[Recipe]:
    """One recipe for x mean variance (gamma beta) dy -> dx (dgamma dbeta); dx may have the bytes of x or dy.

    The last pass needs two sums for each channel. They are dbeta and dgamma."""
    c, given, scratch = op.reads[0].shape[1], [Read(i) for i in range(len(op.reads))], Scratch()
    sums: list[Pointer] = [Write(2), Write(1)] if len(op.writes) > 1 else [scratch.take(c * 4), scratch.take(c * 4)]
    items = math.prod(op.reads[0].shape) // c
    return [scratch.recipe("default", *_sums(op, scratch, given, sums), _data(op, given, sums, items))]


def batch_norm_backward_sums(op: Op) -> list[Recipe]:
    """One recipe for x dy mean variance (gamma beta) -> dgamma dbeta."""
    scratch = Scratch()
    return [scratch.recipe("default", *_sums(op, scratch, _given(op, len(op.reads)), [Write(1), Write(0)]))]


def batch_norm_backward_data(op: Op) -> list[Recipe]:
    """One recipe for x dy mean variance (gamma beta) dgamma dbeta -> dx, which may have the bytes of x or dy."""
    at = len(op.reads) - 2
    return [plain(_data(op, _given(op, at), [Read(at + 1), Read(at)], op.attrs.count))]


def _given(op: Op, count: int) -> list[Read]:
    """The first reads of a pass of backward, as the kernels want them: dy is the last."""
    return [Read(i) for i in (0, *range(2, count), 1)]


def _sums(op: Op, scratch: Scratch, given: Sequence[Pointer], sums: Sequence[Pointer]) -> Iterator[Launch]:
    """The launches for the sums of du and of du xhat. `given`: x, mean, variance, gamma and beta if fused, dy."""
    c, eps = op.reads[0].shape[1], np.float32(op.attrs.eps)
    g = _reducing(op.reads[0])
    name = f"backward_sums{_behind(op)}_{g.vector}"
    if g.chunks == 1:
        yield _launch(name, *given, *sums, int32(0), eps, *g.arguments, grid=g.grid)
    else:
        partial, last = scratch.take(g.chunks * 2 * c * 4), partials(g.chunks, 2 * c)
        halves = partial, Space(partial.offset + c * 4, partial.nbytes - c * 4)
        yield _launch(name, *given, *halves, int32(2 * c), eps, *g.arguments, grid=g.grid)
        yield _launch("backward_finish", partial, *sums, *last.arguments, grid=last.grid)


def _data(op: Op, given: Sequence[Pointer], sums: Sequence[Pointer], count: int) -> Launch:
    """The launch for dx, by the sums over `count` values of each channel."""
    each = _mapping(op.reads[0])
    arguments = *given, *sums, Write(0), np.int64(count), np.float32(op.attrs.eps), *each.arguments
    return _launch(f"backward{_behind(op)}_{each.vector}", *arguments, grid=each.grid)


def batch_norm_statistics(op: Op) -> list[Recipe]:
    """One recipe for mean variance mean_sum variance_sum factor -> the last three, updated in place, of one BatchNorm
    or of several.

    Each becomes fraction * itself + new, where new is the mean, the unbiased variance, or 1. Mean and variance may have
    rows, one for each batch."""
    read, write = places(op)
    launches = []
    alike: dict[int, list[Op]] = {}  # by the number of rows
    for one in op.members:
        alike.setdefault(one.reads[0].size // one.writes[0].size, []).append(one)
    for rows, part in ((rows, part) for rows, ones in alike.items() for part in batches(ones, NORMS)):
        counts = [one.attrs.count for one in part]
        columns = (
            *(tuple(read[one.reads[i]] for one in part) for i in range(2)),
            *(tuple(write[one.writes[i]] for one in part) for i in range(3)),
            tuple(int32(one.writes[0].size) for one in part),
            tuple(np.float32(one.attrs.fraction) for one in part),
            tuple(np.float32(n / (n - 1) if n > 1 else 1.0) for n in counts),
        )
        counts_of = int32(len(part)), int32(rows)
        launches.append(_launch("statistics", Table(NORMS, columns), *counts_of, grid=len(part)))
    return [plain(*launches)]


def batch_norm_keep(op: Op) -> list[Recipe]:
    """One recipe for means variances mean variance iteration -> the first two, of which a row is set."""
    c = op.reads[2].size
    tensors = Write(0), Write(1), Read(2), Read(3), Read(4)
    return [plain(_launch("keep", *tensors, int32(op.attrs.every), int32(c), grid=over(c)))]


def batch_norm_inference(op: Op) -> list[Recipe]:
    """One recipe for x (shortcut) mean_sum variance_sum factor (gamma beta) -> y, as batch_norm_normalize."""
    g = _mapping(op.reads[0])
    arguments = *(Read(i) for i in range(len(op.reads))), Write(0), np.float32(op.attrs.eps), *g.arguments
    return [plain(_launch(f"inference{_behind(op)}_{g.vector}", *arguments, grid=g.grid))]


def batch_norm_inference_backward(op: Op) -> list[Recipe]:
    """One recipe for variance_sum factor dy -> dx = dy / sqrt(variance + eps)."""
    g = _mapping(op.reads[2])
    arguments = *(Read(i) for i in range(3)), Write(0), np.float32(op.attrs.eps), *g.arguments
    return [plain(_launch(f"inference_backward_{g.vector}", *arguments, grid=g.grid))]


def scale_forward(op: Op) -> list[Recipe]:
    """One recipe for x gamma (beta) -> y = x * gamma (+ beta), by channel."""
    return [_by_channel(op.reads[0].shape, [Read(i) for i in range(len(op.reads))])]


def scale_backward_filter(op: Op) -> list[Recipe]:
    """One recipe for x dy (N, C, ...) -> dgamma (C,)."""
    return sums_by_channel(op, "sum_products", op.reads[0].shape, [Read(0), Read(1)])


def scale_backward_data(op: Op) -> list[Recipe]:
    """One recipe for gamma dy -> dx = dy * gamma, by channel."""
    return [_by_channel(op.reads[1].shape, [Read(1), Read(0)])]


def _by_channel(shape: tuple[int, ...], reads: list[Argument]) -> Recipe:
    size, c = math.prod(shape), shape[1]
    name = "scale_shift" if len(reads) == 3 else "scale"
    inner = 1 if channels_last(shape) else math.prod(shape[2:])
    if inner == 1 and c % 4 == 0:
        n4 = size // 4
        return plain(Launch("normalization", f"{name}_4", (*reads, Write(0), np.int64(n4), int32(c // 4)), over(n4)))
    arguments = (*reads, Write(0), np.int64(size), int32(inner), int32(c))
    return plain(Launch("normalization", f"{name}_1", arguments, over(size)))


KINDS = {
    "batch_norm.forward": batch_norm_forward,
    "batch_norm.moments": batch_norm_moments,
    **{f"batch_norm.merge_{what}": batch_norm_merge for what in ("moments", "sums")},
    **{f"batch_norm.normalize{behind}": batch_norm_normalize for behind in (*BEHIND, JOIN)},
    **{f"batch_norm.backward{behind}": batch_norm_backward for behind in BEHIND},
    **{f"batch_norm.backward_sums{behind}": batch_norm_backward_sums for behind in BEHIND},
    **{f"batch_norm.backward_data{behind}": batch_norm_backward_data for behind in BEHIND},
    **{f"batch_norm.inference{behind}": batch_norm_inference for behind in (*BEHIND, JOIN)},
    "batch_norm.statistics": batch_norm_statistics,
    "batch_norm.keep": batch_norm_keep,
    "batch_norm.statistics_multi_tensor": batch_norm_statistics,
    "batch_norm.inference_backward": batch_norm_inference_backward,
    "scale.forward": scale_forward,
    "scale.backward_filter": scale_backward_filter,
    "scale.backward_data": scale_backward_data,
}
