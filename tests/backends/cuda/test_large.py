"""Our own kernels number a tensor's elements in 64 bits, and those of a row, a plane or an axis in 32: more of these
are refused."""

from __future__ import annotations

import pytest

from minidnn.backends.cuda.recipe import TooLarge
from minidnn.program import Op, Pass, Tensor
from tests.support.cuda.fake import fake_device
from tests.support.op_examples import attrs


@pytest.mark.parametrize(
    "kind, shape, a, size",
    [
        ("softmax.forward", (2, 3 << 30), attrs(axis=1), 3 << 30),
        ("reduction.forward", (2, 3, 1 << 30), attrs(axis=0, operation="SUM", coeff=1.0), 6 << 30),
        ("dropout.forward", (1, 2, 1 << 16, 1 << 16), attrs(ratio=0.5, seed=1, key=1, block=0), 1 << 32),
    ],
)
def test_what_a_kernel_does_not_count_is_refused_by_name_and_number(kind, shape, a, size):
    x, y = Tensor("big.x", shape), Tensor("big.y", (1,) if kind.startswith("reduction") else shape)
    reads = (x, Tensor("iteration", (1,), "int64")) if kind.startswith("dropout") else (x,)
    op = Op("big.forward", kind, "big", Pass.FORWARD, reads, (y,), a)
    with pytest.raises(
        TooLarge, match=f"^layer big, big.forward: .*big.x {'x'.join(map(str, shape))}.* has {size} elem"
    ):
        fake_device().recipes(op)


@pytest.mark.parametrize(
    "kind, shape, a",
    [
        ("relu.forward", (3 << 30,), attrs(negative_slope=0.0, saved="y")),
        ("pooling.forward", (700, 64, 224, 224), attrs(kernel=(2, 2), stride=(2, 2), pad=(0, 0), method="MAX")),
        ("softmax.forward", (65536, 50257), attrs(axis=1)),
    ],
)
def test_more_than_32_bits_of_elements_are_no_matter(kind, shape, a):
    y = (*shape[:2], 112, 112) if kind.startswith("pooling") else shape
    op = Op("big.forward", kind, "big", Pass.FORWARD, (Tensor("x", shape),), (Tensor("y", y),), a)
    assert fake_device().recipes(op)
