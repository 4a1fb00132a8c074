"""Gradients that are sums by channel: of dy (bias), of x * dy (Scale's gamma). Two stages with the chunks' sums in the
workspace, or one where there is but one chunk."""

from __future__ import annotations

from minidnn.backends.cuda.columns import partials, reducing
from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Scratch, Space, Write, plain
from minidnn.program import Op


def backward_bias(op: Op) -> list[Recipe]:
    """dy (N, C, ...) -> db (C,)"""
    return _sums(op, "sum")


def scale_backward_filter(op: Op) -> list[Recipe]:
    """x dy (N, C, ...) -> dgamma (C,)"""
    return _sums(op, "sum_products")


def _sums(op: Op, kernel: str) -> list[Recipe]:
    g = reducing(op.reads[0].shape)
    reads = tuple(Read(i) for i in range(len(op.reads)))
    if g.chunks == 1:
        return [plain(Launch("reduction", f"{kernel}_{g.vector}", (*reads, Write(0), *g.arguments), g.grid))]
    scratch = Scratch()
    partial = scratch.take(g.chunks * g.channels * 4)
    first = Launch("reduction", f"{kernel}_chunks_{g.vector}", (*reads, partial, *g.arguments), g.grid)
    return [scratch.recipe("default", first, finish(partial, g.chunks, g.channels, Write(0)))]


def finish(partial: Space, chunks: int, channels: int, out: Write | Space) -> Launch:
    """out[c] = the sum of partial[., c]"""
    g = partials(chunks, channels)
    return Launch("reduction", "finish", (partial, out, *g.arguments), g.grid)


KINDS = {
    "convolution.backward_bias": backward_bias,
    "inner_product.backward_bias": backward_bias,
    "scale.backward_bias": backward_bias,
    "scale.backward_filter": scale_backward_filter,
}
