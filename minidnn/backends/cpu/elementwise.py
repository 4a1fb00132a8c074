"""Kernels that do the same to every element: ReLU, sums, products, copies. They run over the bytes as they lie.

All of them permit the output on the bytes of any input, with the same result as apart.
"""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np

from minidnn.backends.cpu import dnnl as d
from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.recipe import BLOCK, Recipe, Scratch, blocks, plain
from minidnn.backends.layout import channels_last
from minidnn.program import Op, Tensor

_f = ctypes.c_float


def _eltwise(dnnl: d.Dnnl, size: int, algorithm: int, alpha: float, beta: float = 0.0) -> tuple[d.Primitive, d.Desc]:
    run = dnnl.desc((size,))
    return dnnl.best(
        "eltwise_forward", d.TRAINING, algorithm, run, run, _f(alpha), _f(beta), dnnl.attr
    ), run  # fmt: skip


def relu_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """x -> y (mask)"""
    if op.attrs.negative_slope == 0:
        recipe = _rectifier(dnnl, op.reads[0].size)
    else:
        p, run = _eltwise(dnnl, op.reads[0].size, d.RELU, op.attrs.negative_slope)
        recipe = plain(lambda r, w, _: [p.bind({d.SRC: (run, address(r[0])), d.DST: (run, address(w[0]))})])
    if len(op.writes) == 1:
        return [recipe]
    return [plain(lambda reads, writes, ws: [*recipe.bind(reads, writes, ws), *_signs(*writes)])]


def _signs(y: np.ndarray, mask: np.ndarray) -> list[d.Call]:
    """mask = y > 0, which is x > 0 where slopes keep signs; y's bytes may be x's."""
    zero = np.float32(0)
    return [partial(np.greater, a, zero, out=m) for a, m in blocks(flat(y), flat(mask).view(bool))]


def _rectifier(dnnl: d.Dnnl, size: int) -> Recipe:
    """max(x - x, x): the library's own ReLU makes 0 of NaN and of -inf, here x - x is NaN, and none of x is lost."""
    run = dnnl.desc((size,))
    p = dnnl.best("binary", d.SUBTRACT, run, run, run, dnnl.attributes([(d.MAXIMUM, run)]))

    def bind(reads, writes, _):
        x, y = ((run, address(a)) for a in (reads[0], writes[0]))
        return [p.bind({d.SRC: x, d.SRC_1: x, d.post_op(0): x, d.DST: y})]

    return plain(bind)


def relu_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """Reads y (then its sign is x's), x y, or the mask."""
    saved = op.attrs.saved
    if saved == "mask":
        return [_masked(dnnl, op) if op.attrs.negative_slope == 0 else _masked_slope(op)]
    algorithm, data = (d.RELU_FROM_DST, d.DST) if saved == "y" else (d.RELU, d.SRC)
    slope = op.attrs.negative_slope
    hint, run = _eltwise(dnnl, op.reads[0].size, algorithm, slope)
    p = dnnl.best("eltwise_backward", algorithm, run, run, run, _f(slope), _f(0), hint.pd, dnnl.attr)

    def bind(reads, writes, _):
        return [p.bind({
            data: (run, address(reads[0])),
            d.DIFF_DST: (run, address(reads[-1])),
            d.DIFF_SRC: (run, address(writes[0])),
        })]  # fmt: skip

    return [plain(bind)]


def _masked(dnnl: d.Dnnl, op: Op) -> Recipe:
    """mask dy -> dx = dy * mask: also of gradients that are not finite it makes what the others make"""
    size = op.writes[0].size
    run, ones = dnnl.desc((size,)), dnnl.desc((size,), dtype="uint8")
    p = dnnl.best("binary", d.MULTIPLY, run, ones, run, dnnl.attr)

    def bind(reads, writes, _):
        mask, dy = (address(a) for a in reads)
        return [p.bind({d.SRC: (run, dy), d.SRC_1: (ones, mask), d.DST: (run, address(writes[0]))})]

    return plain(bind)


def _masked_slope(op: Op) -> Recipe:
    """mask dy -> dx: dy where the mask is set, slope * dy elsewhere"""
    scratch = Scratch()
    piece = scratch.take(min(BLOCK, op.writes[0].size) * 4)
    slope = np.float32(op.attrs.negative_slope)

    def bind(reads, writes, workspace):
        steps: list[d.Call] = []
        for mask, dy, dx in blocks(flat(reads[0]).view(bool), flat(reads[1]), flat(writes[0])):
            term = piece.array(workspace)[: dx.size]
            steps += [
                partial(np.multiply, dy, slope, out=term),
                partial(np.copyto, term, dy, where=mask),
                partial(np.copyto, dx, term),
            ]
        return steps

    return scratch.recipe("numpy", bind)


def _binary(dnnl: d.Dnnl, algorithm: int, tensors: tuple[Tensor, ...]) -> list[Recipe]:
    """((a op b) op c) op ... in one pass: each element is read everywhere before it is written."""
    run = dnnl.desc((tensors[0].size,))
    attr = dnnl.attributes([(algorithm, run)] * (len(tensors) - 2))
    p = dnnl.best("binary", algorithm, run, run, run, attr)

    def bind(reads, writes, _):
        arguments = {d.SRC: (run, address(reads[0])), d.SRC_1: (run, address(reads[1]))}
        for i, more in enumerate(reads[2:]):
            arguments[d.post_op(i)] = (run, address(more))
        arguments[d.DST] = (run, address(writes[0]))
        return [p.bind(arguments)]

    return [plain(bind)]


def add(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """gradient.add (a b -> c) and gradient.accumulate (acc dw -> acc)"""
    return _binary(dnnl, d.ADD, op.reads)


def clear(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    return [plain(lambda _, writes, ws: [partial(flat(writes[0]).fill, 0)])]


def copy(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    return [plain(lambda reads, writes, _: _copy(reads[0], writes[0]))]


def _copy(source: np.ndarray, target: np.ndarray) -> list[d.Call]:
    if address(source) == address(target):
        return []
    return [partial(np.copyto, flat(target), flat(source))]


def eltwise_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    a = op.attrs
    if a.operation == "SUM":
        if all(c == 1 for c in a.coeff):
            return _binary(dnnl, d.ADD, op.reads)
        return _weighted_sum(op)
    if a.operation == "PROD":
        return _binary(dnnl, d.MULTIPLY, op.reads)
    return _maximum(op)


def _weighted_sum(op: Op) -> list[Recipe]:
    scratch = Scratch()
    sums, terms = scratch.take(BLOCK * 4), scratch.take(BLOCK * 4)
    coeff = [np.float32(c) for c in op.attrs.coeff]

    def bind(reads, writes, workspace):
        steps: list[d.Call] = []
        for *xs, y in blocks(*(flat(x) for x in reads), flat(writes[0])):
            total, term = sums.array(workspace)[: y.size], terms.array(workspace)[: y.size]
            steps.append(partial(np.multiply, xs[0], coeff[0], out=total))
            for x, c in zip(xs[1:], coeff[1:], strict=True):
                steps += [partial(np.multiply, x, c, out=term), partial(np.add, total, term, out=total)]
            steps.append(partial(np.copyto, y, total))
        return steps

    return [scratch.recipe("numpy", bind)]


def _maximum(op: Op) -> list[Recipe]:
    """x1 .. xn -> y which?; of equals the first, but the second of the first two, as in Caffe"""
    scratch = Scratch()
    piece = scratch.take(min(BLOCK, op.reads[0].size))

    def bind(reads, writes, workspace):
        greater_all = piece.array(workspace, "bool")
        steps: list[d.Call] = []
        for first, *block in blocks(*map(flat, (*reads, *writes))):
            others, (y, *which) = block[: len(reads) - 1], block[len(reads) - 1 :]
            greater = greater_all[: y.size]
            steps += [partial(np.copyto, y, first), *(partial(w.fill, 0) for w in which)]
            for i, x in enumerate(others, start=1):
                takes = np.greater_equal if i == 1 else np.greater
                for w in which:
                    steps += [partial(takes, x, y, out=greater), partial(np.copyto, w, i, where=greater)]
                steps.append(partial(np.maximum, y, x, out=y))
        return steps

    return [scratch.recipe("numpy", bind)]


def _chosen(op: Op) -> list[Recipe]:
    """which dy -> dx: dy where this bottom was the maximum"""
    scratch = Scratch()
    piece = scratch.take(min(BLOCK, op.reads[0].size))
    index = np.uint8(op.attrs.index)

    def bind(reads, writes, workspace):
        other = piece.array(workspace, "bool")
        steps: list[d.Call] = []
        for which, dy, dx in blocks(*map(flat, (*reads, *writes))):
            mask = other[: dx.size]
            steps.append(partial(np.not_equal, which, index, out=mask))
            steps += [partial(np.copyto, dx, dy), partial(np.copyto, dx, 0, where=mask)]
        return steps

    return [scratch.recipe("numpy", bind)]


def eltwise_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    a = op.attrs
    if a.operation == "SUM":
        p, run = _eltwise(dnnl, op.reads[0].size, d.LINEAR, a.coeff[a.index])
        return [plain(lambda r, w, _: [p.bind({d.SRC: (run, address(r[0])), d.DST: (run, address(w[0]))})])]
    if a.operation == "PROD":
        return _binary(dnnl, d.MULTIPLY, op.reads)
    return _chosen(op)


def scale_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """y = x * gamma (+ beta), by channel"""
    x, _, *beta = op.reads
    if not channels_last(x.shape):
        return None
    return [_by_channel(dnnl, x, bool(beta))]


def scale_backward_data(dnnl: d.Dnnl, op: Op) -> list[Recipe] | None:
    """dx = dy * gamma"""
    _, dy = op.reads
    if not channels_last(dy.shape):
        return None
    recipe = _by_channel(dnnl, dy, False)
    return [Recipe(recipe.algorithm, lambda reads, writes, ws: recipe.bind(reads[::-1], writes, ws))]


def _by_channel(dnnl: d.Dnnl, x: Tensor, shift: bool) -> Recipe:
    """reads: x, factors, (shifts)"""
    c = x.shape[1]
    matrix, row = dnnl.desc((x.size // c, c)), dnnl.desc((1, c))
    p = dnnl.best("binary", d.MULTIPLY, matrix, row, matrix, dnnl.attributes([(d.ADD, row)] if shift else []))

    def bind(reads, writes, _):
        arguments = {
            d.SRC: (matrix, address(reads[0])),
            d.SRC_1: (row, address(reads[1])),
            d.DST: (matrix, address(writes[0])),
        }
        if shift:
            arguments[d.post_op(0)] = (row, address(reads[2]))
        return [p.bind(arguments)]

    return plain(bind)


KINDS = {
    "relu.forward": relu_forward,
    "relu.backward": relu_backward,
    "gradient.add": add,
    "gradient.accumulate": add,
    "gradient.clear": clear,
    "identity.forward": copy,
    "eltwise.forward": eltwise_forward,
    "eltwise.backward": eltwise_backward,
    "scale.forward": scale_forward,
    "scale.backward_data": scale_backward_data,
}
