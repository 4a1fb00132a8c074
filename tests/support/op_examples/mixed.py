"""Examples of kinds of several families: fused ops, and vectors of channels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidnn.backends.reference.pooling import maximum
from tests.support.op_examples.elements import SHAPES
from tests.support.op_examples.maker import Example, Maker, attrs
from tests.support.op_examples.products import convolutions, products
from tests.support.op_examples.windows import ceil_mode, poolings, some_index


def fused(m: Maker) -> Iterator[Example]:
    """Fused ops of programs/fusion/: a forward with its ReLU; a ReLU's backward with a bias gradient or pooling's
    backward."""
    for e in [e for made in (convolutions(m), products(m)) for e in made if e.op.kind.endswith(".forward")]:
        if len(e.op.reads) == 3:
            reads, shapes = [e.data[t] for t in e.op.reads], [t.shape for t in e.op.writes]
            yield m.example(f"{e.op.kind}_relu", reads, shapes, e.op.attrs, note=e.name)
    for shape in SHAPES:
        if len(shape) > 1:
            y, dy = np.maximum(m.normal(*shape), 0), m.normal(*shape)
            yield m.example("relu.backward_bias", [y, dy], [shape, (shape[1],)], inplace=[(1, 0)])
    for e in [e for made in (poolings(m), channels(m)) for e in made if e.op.kind == "pooling.backward"]:
        if e.op.attrs.method == "MAX":
            (was, dy), (dx,), a = e.op.reads, e.op.writes, e.op.attrs
            y, index = maximum(np.maximum(np.round(m.normal(*dx.shape) * 2 - 1) / 2, 0), a, dy.shape[2:])
            reads = [index.astype(was.dtype), y, e.data[dy]]
            yield m.example("pooling.backward_relu", reads, [dx.shape], a, note=e.name, exact=True)


def channels(m: Maker) -> Iterator[Example]:
    """Ops that are computed by vectors of channels, with fewer channels than lanes and with a few more."""
    for c in (1, 3, 9, 17, 69):
        k, s, p, size = (3, 2), (2, 3), (1, 1), (9, 11)
        o = tuple(ceil_mode(*axis) for axis in zip(size, k, s, p, strict=True))
        shape, x, dy = (2, c, *o), np.round(m.normal(2, c, *size) * 4) / 4, m.normal(2, c, *o)
        for places, dtype in ((None, "uint8"), ("index", "uint8"), ("index", "int32")):
            a = attrs(method="MAX", kernel=k, stride=s, pad=p, saved="index")
            outs, kinds = ([shape] * 2, {1: dtype}) if places else ([shape], {})
            note = f"MAX, {dtype} {places}"
            yield m.example("pooling.forward", [x], outs, a, dtypes=kinds, note=note, exact=True)
            index = some_index(m, size, o, k, s, p, shape, dtype)
            yield m.example("pooling.backward", [index, dy], [x.shape], a, note=note)
        a = attrs(method="AVE", kernel=k, stride=s, pad=p, saved=None)
        yield m.example("pooling.forward", [x], [shape], a, note="AVE")
        yield m.example("pooling.backward", [dy], [x.shape], a, note="AVE")
        for n, beta in ((5, 0.75), (7, 0.6)):
            a = attrs(size=n, alpha=0.3, beta=beta, k=2.0, region="ACROSS_CHANNELS", saved="x")
            yield m.example("lrn.forward", [dy], [shape], a, note=f"size {n}")
            yield m.example("lrn.backward", [dy, m.normal(*shape)], [shape], a, note=f"size {n}")
        for spread in (1, 60):  # with 60, some probabilities are too small for float32
            rows, a = m.normal(7, c) * spread, attrs(axis=1)
            e = np.exp(rows - rows.max(1, keepdims=True))
            yield m.example("softmax.forward", [rows], [rows.shape], a, inplace=[(0, 0)], note=f"spread {spread}")
            reads = [e / e.sum(1, keepdims=True), m.normal(7, c)]
            yield m.example("softmax.backward", reads, [rows.shape], a, inplace=[(1, 0)], note=f"spread {spread}")
            a = attrs(axis=1, ignore_label=0, normalization="VALID", loss_weight=0.5, label_smoothing=0.0)
            label = m.random.integers(0, c, 7).astype(np.int32)
            yield m.example("softmax_loss.forward", [rows, label], [(1,), rows.shape], a, note=f"spread {spread}")
