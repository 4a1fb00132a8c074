"""The functions of single elements in C (backends/cpu/native/functions.h), on numbers of every size, beside the
reference's in float64. An element's bits do not depend on its place."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.reference.activation import FUNCTIONS
from minidnn.layers.unary import READS, UnaryAttrs
from tests.support.grid import LARGEST, grid
from tests.support.op_examples import Maker, compiled, run
from tests.support.op_examples.activations import USES

ULP = 0.51  # most units in the last place by which a result is off; rounding alone may take 0.5
EVERY = 20011  # one float32 of so many: some 300,000 in all
# Those that compute in floats are off by more: in units of the result, or of a thousandth if that is larger; slopes in
# units of 1. Far down their tails they are right to TAIL of the result.
QUICK = {"swish": 10, "gelu": 5, "gelu_tanh": 15}
QUICK_SLOPE, TAIL = 1.6, 1e-5

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
BY_NAME = pytest.mark.parametrize(("function", "numbers"), [use[:2] for use in USES], ids=str)


def forward(device, function, numbers, x):
    e = Maker(0).example("unary.forward", [x], [x.shape], UnaryAttrs(function, numbers))
    return run(device, e, device.algorithms(e.op)[0])[0]


def backward(device, function, numbers, saved, dy):
    e = Maker(0).example("unary.backward", [saved, dy], [saved.shape], UnaryAttrs(function, numbers))
    return run(device, e, device.algorithms(e.op)[0])[0]


def units(got: np.ndarray, want: np.ndarray, least: float = 0.0) -> np.ndarray:
    """By how many float32 units in the last place of `want`, or of `least` if that is larger, `got` is off. Where no
    float32 holds `want`, both must be the same infinity, or NaN."""
    holds = np.abs(want) <= LARGEST
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(got[~holds], want[~holds].astype(np.float32), equal_nan=True)
    size = np.maximum(np.abs(want[holds]), least).astype(np.float32)
    return np.abs(got[holds] - want[holds]) / np.spacing(size).astype(np.float64)


@BY_NAME
def test_values_are_off_by_half_a_unit(function, numbers):
    x = grid(EVERY)
    want, got = FUNCTIONS[function][0](x.astype(np.float64), *numbers), forward(compiled(), function, numbers, x)
    if function in QUICK:
        normal = np.isfinite(want) & (np.abs(want) > 1e-30)
        assert (np.abs(got - want)[normal] <= TAIL * np.abs(want[normal])).all()
    assert units(got, want, 1e-3 if function in QUICK else 0).max() <= QUICK.get(function, ULP)


@BY_NAME
def test_slopes_are_off_by_half_a_unit(function, numbers):
    if function not in READS:
        return
    x = grid(EVERY)
    saved = FUNCTIONS[function][0](x, *numbers).astype(np.float32) if READS[function] == "y" else x
    want = FUNCTIONS[function][1](saved.astype(np.float64), *numbers) * np.ones(x.shape)
    got = backward(compiled(), function, numbers, saved, np.ones_like(x))
    quick = function in QUICK
    assert units(got, want, 1.0 if quick else 0.0).max() <= (QUICK_SLOPE if quick else ULP)


@BY_NAME
def test_an_element_has_the_same_bits_at_every_place(function, numbers):
    """Also among the last, which do not fill a vector."""
    device, x = compiled(), Maker(3).normal(67) + 1
    whole = forward(device, function, numbers, x)
    dx = backward(device, function, numbers, whole, x) if function in READS else None
    for begin, end in ((1, 67), (3, 20), (5, 6), (60, 67), (0, 66)):
        part = slice(begin, end)
        assert forward(device, function, numbers, x[part].copy()).tobytes() == whole[part].tobytes()
        if dx is not None:
            again = backward(device, function, numbers, whole[part].copy(), x[part].copy())
            assert again.tobytes() == dx[part].tobytes()
