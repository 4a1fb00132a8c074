"""The softmax loss of an inner product: labels that do not count, divisors, smoothing, around the ends of blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidnn.layers.linear_loss import LinearLossAttrs
from tests.support.op_examples.maker import Example, Maker

GEOMETRIES = [  # leading axes of the rows, inputs, classes; what differs
    ((1,), 1, 1, {}),
    ((5,), 7, 3, {"loss_weight": 0.5}),
    ((3, 9), 33, 50, {"normalization": "FULL", "ignore_label": 4}),
    ((2, 140), 40, 65, {"label_smoothing": 0.1, "ignore_label": 2}),
    ((4, 257), 17, 100, {"normalization": "NONE", "loss_weight": 0.01}),
    ((1100,), 64, 130, {"label_smoothing": 0.3, "normalization": "BATCH_SIZE"}),
]


def linear_losses(m: Maker) -> Iterator[Example]:
    for lead, inputs, classes, how in GEOMETRIES:
        x, w = m.normal(*lead, inputs), m.normal(classes, inputs)
        label = m.random.integers(0, classes, lead).astype(np.int32)
        shapes, note = {"dx": x.shape, "dw": w.shape}, ", ".join(how)
        for gradients in (("dx", "dw"), ("dx",), ("dw",), ()):
            a, which = LinearLossAttrs(**how, gradients=gradients), " ".join(gradients) or "alone"
            writes = [(1,), *(shapes[name] for name in gradients)]
            yield m.example("linear_loss.forward", [x, w, label], writes, a, note=f"{note} {which}".strip())
    for lead, inputs, classes, how in GEOMETRIES:
        x, w, b = m.normal(*lead, inputs), m.normal(classes, inputs), m.normal(classes)
        label = m.random.integers(0, classes, lead).astype(np.int32)
        shapes = {"dx": x.shape, "dw": w.shape, "db": b.shape}
        for gradients in (("dx", "dw", "db"), ("db",), ("dx",)):
            writes = [(1,), *(shapes[name] for name in gradients)]
            a, note = LinearLossAttrs(**how, gradients=gradients), ", ".join([*how, "bias", *gradients])
            yield m.example("linear_loss.forward", [x, w, label, b], writes, a, note=note)
