"""Gradients that are sums by channel: of dy (bias), of x * dy (Scale's gamma), of a ReLU's dx. Two stages with the
chunks' sums in the workspace, or one where there is but one chunk."""

from __future__ import annotations

from minidnn.backends.cuda.columns import partials, reducing
from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Scratch, Space, Write, plain
from minidnn.program import Op


def backward_bias(op: Op) -> list[Recipe]:
    """dy (N, C, ...) -> db (C,)"""
    return _sums(op, "sum", [Read(0)])


def scale_backward_filter(op: Op) -> list[Recipe]:
    """x dy (N, C, ...) -> dgamma (C,)"""
    return _sums(op, "sum_products", [Read(0), Read(1)])


def relu_backward_bias(op: Op) -> list[Recipe]:
    """y dy (N, C, ...) -> dx (N, C, ...), db (C,); dx may lie on dy. Its sums are those of `backward_bias`."""
    return _sums(op, "rectified_sum", [Read(0), Read(1), Write(0)])


def _sums(op: Op, kernel: str, maps: list[Read | Write]) -> list[Recipe]:
    """The sums are the op's last write."""
    g, out = reducing(op.reads[0].shape), Write(len(op.writes) - 1)
    if g.chunks == 1:
        return [plain(Launch("reduction", f"{kernel}_{g.vector}", (*maps, out, *g.arguments), g.grid))]
    scratch = Scratch()
    partial = scratch.take(g.chunks * g.channels * 4)
    first = Launch("reduction", f"{kernel}_chunks_{g.vector}", (*maps, partial, *g.arguments), g.grid)
    return [scratch.recipe("default", first, finish(partial, g.chunks, g.channels, out))]


def finish(partial: Space, chunks: int, channels: int, out: Write | Space) -> Launch:
    """out[c] = the sum of partial[., c]"""
    g = partials(chunks, channels)
    return Launch("reduction", "finish", (partial, out, *g.arguments), g.grid)


KINDS = {
    "convolution.backward_bias": backward_bias,
    "inner_product.backward_bias": backward_bias,
    "scale.backward_bias": backward_bias,
    "scale.backward_filter": scale_backward_filter,
    "relu.backward_bias": relu_backward_bias,
}
