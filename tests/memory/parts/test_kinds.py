"""Each op that may run in parts gives the bytes that it gives as a whole: for all examples, by all algorithms."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends import open_device
from minidnn.memory.execution.device import Device
from minidnn.memory.parts.kinds import KINDS, operands
from minidnn.memory.parts.split import part_of
from minidnn.memory.parts.whole import by_parts
from minidnn.program import Op
from tests.support.op_examples import Example, compiled, examples, run

SMALL, MOST = 100_000, 16  # elements and rows of an example
BY_BLAS = "inner_product.forward", "inner_product.forward_relu"  # NumPy's products depend on the number of rows


def parts(e: Example) -> Op | None:
    """A part of the example's op, of as few as can be; None: it is large, or cannot run in parts."""
    found = operands(e.op)
    if found is None or not 1 < found.rows <= MOST or sum(t.size for t in e.op.tensors) > SMALL:
        return None
    count = next(n for n in range(2, found.rows + 1) if found.rows % n == 0)
    return part_of(e.op, (0, found.rows // count))


def check(device: Device) -> set[str]:
    """Compare each example's rows with those of the op as a whole; the kinds that were compared."""
    seen = set()
    for e in examples():
        one = parts(e)
        if one is None:
            continue
        sums = operands(e.op).sums
        whole = {a.name: a for a in device.algorithms(e.op)}
        for a in (a for a in device.algorithms(one) if a.name in whole):
            seen.add(e.op.kind)
            got, want = run(device, e, by_parts(one, a)), run(device, e, whole[a.name])
            for t, x, y in zip(e.op.writes, got, want, strict=True):
                if t in sums or (device.name == "reference" and e.op.kind in BY_BLAS):
                    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-3, err_msg=f"{e.name} by {a.name}")
                else:
                    assert x.tobytes() == y.tobytes(), f"{e.name} by {a.name}: {t.name}"
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_parts_have_the_bytes_of_the_whole(device):
    """Only sums over images, gradients of parameters, have an order of their own."""
    assert check(compiled() if device == "cpu" else open_device(device)) == KINDS
