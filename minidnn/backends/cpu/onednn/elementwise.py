"""Element-wise kernels: sums, products and maxima of tensors of one shape, and copies. They take the elements in the
order of memory.

An output may have the bytes of any input: the result is the same as with bytes of its own.
"""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np

from minidnn.backends.cpu.layout import address, flat
from minidnn.backends.cpu.onednn import dnnl as d
from minidnn.backends.cpu.recipe import BLOCK, Call, Recipe, Scratch, blocks, copied, plain
from minidnn.program import Op, Tensor

_f = ctypes.c_float


def eltwise(dnnl: d.Dnnl, size: int, algorithm: int, alpha: float) -> tuple[d.Primitive, d.Desc]:
    """oneDNN's primitive for a function of each of `size` elements, and the layout of its operands."""
    run = dnnl.desc((size,))
    return dnnl.best("eltwise_forward", d.TRAINING, algorithm, run, run, _f(alpha), _f(0), dnnl.attr), run


def binary(dnnl: d.Dnnl, algorithm: int, tensors: tuple[Tensor, ...]) -> list[Recipe]:
    """One recipe for ((a op b) op c) op ..., in one pass: an element of every tensor is read before it is written."""
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
    """One recipe for a b -> c = a + b."""
    return binary(dnnl, d.ADD, op.reads)


def fill(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for (scale) -> dx: the value in each element, times the scale if there is one."""
    value = np.float32(op.attrs.value)

    def bind(reads, writes, _):
        dx = flat(writes[0])
        return [partial(np.multiply, reads[0][:1], value, out=dx) if reads else partial(dx.fill, value)]

    return [plain(bind, "numpy")]


def cast(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x scale -> y = scale x, and for x -> y = x."""
    if len(op.reads) == 1:
        return copy(dnnl, op)

    def bind(reads, writes, _):
        return [partial(np.multiply, flat(reads[0]), reads[1][:1], out=flat(writes[0]))]

    return [plain(bind, "numpy")]


def copy(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x -> y = x."""
    return [plain(lambda reads, writes, _: copied(reads[0], writes[0]))]


def eltwise_forward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y (which), by the op's SUM, PROD or MAX."""
    a = op.attrs
    if a.operation == "SUM":
        if all(c == 1 for c in a.coeff):
            return binary(dnnl, d.ADD, op.reads)
        return _weighted_sum(op)
    if a.operation == "PROD":
        return binary(dnnl, d.MULTIPLY, op.reads)
    return _maximum(op)


def _weighted_sum(op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y = c1 x1 + ... + cn xn, by NumPy over blocks."""
    scratch = Scratch()
    sums, terms = scratch.take(BLOCK * 4), scratch.take(BLOCK * 4)
    coeff = [np.float32(c) for c in op.attrs.coeff]

    def bind(reads, writes, workspace):
        steps: list[Call] = []
        for *xs, y in blocks(*(flat(x) for x in reads), flat(writes[0])):
            total, term = sums.array(workspace)[: y.size], terms.array(workspace)[: y.size]
            steps.append(partial(np.multiply, xs[0], coeff[0], out=total))
            for x, c in zip(xs[1:], coeff[1:], strict=True):
                steps += [partial(np.multiply, x, c, out=term), partial(np.add, total, term, out=total)]
            steps.append(partial(np.copyto, y, total))
        return steps

    return [scratch.recipe("numpy", bind)]


def _maximum(op: Op) -> list[Recipe]:
    """One recipe for x1 .. xn -> y (which), by NumPy over blocks. Of equal values the first wins, except that x2 wins
    over x1, as in Caffe."""
    scratch = Scratch()
    piece = scratch.take(min(BLOCK, op.reads[0].size))

    def bind(reads, writes, workspace):
        greater_all = piece.array(workspace, "bool")
        steps: list[Call] = []
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


def _masked(op: Op) -> list[Recipe]:
    """One recipe for which dy -> dx: dy where this bottom was the maximum, 0 elsewhere."""
    scratch = Scratch()
    piece = scratch.take(min(BLOCK, op.reads[0].size))
    index = np.uint8(op.attrs.index)

    def bind(reads, writes, workspace):
        other = piece.array(workspace, "bool")
        steps: list[Call] = []
        for which, dy, dx in blocks(*map(flat, (*reads, *writes))):
            mask = other[: dx.size]
            steps.append(partial(np.not_equal, which, index, out=mask))
            steps += [partial(np.copyto, dx, dy), partial(np.copyto, dx, 0, where=mask)]
        return steps

    return [scratch.recipe("numpy", bind)]


def eltwise_backward(dnnl: d.Dnnl, op: Op) -> list[Recipe]:
    """One recipe for the gradient of one bottom: a multiple of dy (SUM), a product (PROD), or a choice (MAX)."""
    a = op.attrs
    if a.operation == "SUM":
        p, run = eltwise(dnnl, op.reads[0].size, d.LINEAR, a.coeff[a.index])
        return [plain(lambda r, w, _: [p.bind({d.SRC: (run, address(r[0])), d.DST: (run, address(w[0]))})])]
    if a.operation == "PROD":
        return binary(dnnl, d.MULTIPLY, op.reads)
    return _masked(op)


KINDS = {
    "eltwise.forward": eltwise_forward,
    "eltwise.backward": eltwise_backward,
    "gradient.add": add,
    "gradient.fill": fill,
    "identity.forward": copy,
    "cast.backward": cast,
}
