"""Functions of single elements: those of layers/unary.py, and PReLU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidnn.backends.reference.activation import FUNCTIONS
from minidnn.layers.unary import READS, UnaryAttrs
from tests.support.op_examples.maker import Example, Maker

SHAPES = [(3, 5, 6, 7), (4, 13), (1, 1, 1, 1), (2, 3, 4), (33001,)]
# (function, numbers, whether it takes positive numbers alone, the largest number that it is tried on)
USES = [
    ("sigmoid", (), False, 1e4),
    ("tanh", (), False, 1e4),
    ("elu", (0.7,), False, 1e4),
    ("elu_falling", (-0.7,), False, 1e4),
    ("abs", (), False, 1e4),
    ("linear", (-2.0, 0.5), False, 1e4),
    ("square", (0.5, 1.0), False, 100),
    ("power", (0.5, 0.25, 1.7), True, 100),
    ("power", (1.0, -200.0, -3.0), False, 100),
    ("exp", (-0.5, 2.0), False, 10),
    ("log", (2.0, 0.25, 0.4), True, 1e4),
    ("bnll", (), False, 1e4),
    ("clip", (-0.5, 0.75), False, 1e4),
    ("threshold", (0.25,), False, 1e4),
    ("swish", (1.5,), False, 1e4),
    ("mish", (), False, 1e4),
    ("gelu", (), False, 1e4),
    ("gelu_tanh", (), False, 1e4),
    ("erf", (), False, 1e4),
    ("hard_sigmoid", (1 / 6, 0.5), False, 1e4),
    ("hard_swish", (), False, 1e4),
]


def activations(m: Maker) -> Iterator[Example]:
    for function, numbers, positive, most in USES:
        a = UnaryAttrs(function, numbers)
        for shape in SHAPES:
            x, dy = m.normal(*shape), m.normal(*shape)
            if shape == (4, 13):
                x[0, :7] = [most, -most, most / 100, -most / 100, 0, -0.0, 1e-7]
            x = np.abs(x) if positive else x
            yield m.example("unary.forward", [x], [shape], a, inplace=[(0, 0)], note=function)
            if function not in READS:
                continue
            y = FUNCTIONS[function][0](x, *numbers).astype(np.float32)
            saved = {"x": [x], "y": [y], "": []}[READS[function]]
            pair = [(len(saved), 0)]
            yield m.example("unary.backward", [*saved, dy], [shape], a, inplace=pair, note=function)
    for shape in [(3, 5, 6, 7), (2, 16, 5, 5), (7, 13), (1, 1, 1, 1), (2, 3, 4), (2, 64, 28, 28), (3000, 17)]:
        x, dy = m.normal(*shape), m.normal(*shape)
        for slope in (m.normal(shape[1]), m.normal(1)):
            note = f"{slope.size} slopes"
            yield m.example("prelu.forward", [x, slope], [shape], inplace=[(0, 0)], note=note)
            yield m.example("prelu.backward_data", [x, slope, dy], [shape], inplace=[(2, 0), (0, 0)], note=note)
            yield m.example("prelu.backward_filter", [x, dy], [slope.shape], note=note)
