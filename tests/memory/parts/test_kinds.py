"""Each op that may run in parts gives the bytes that it gives as a whole: for all examples, by all algorithms."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import pytest

from minidnn.backends import open_device
from minidnn.memory.execution.device import Device
from minidnn.memory.parts.kinds import KINDS, OF_TOKENS, TOKENS, operands
from minidnn.memory.parts.split import part_of
from minidnn.memory.parts.whole import by_parts
from minidnn.program import Algorithm, Op
from tests.support.blas import CORES, run_as
from tests.support.op_examples import Example, compiled, examples, run, stored

SMALL, MOST = 100_000, 16  # elements and rows of an example


def parts(e: Example) -> Iterator[Op]:
    """A part of the example's op: of as few as can be, and of as many. None if it is large, or cannot run in parts."""
    found = operands(e.op)
    small = sum(t.size for t in e.op.tensors) <= SMALL
    if small and found is not None and found.rows % found.step == 0 and 1 < found.rows // found.step <= MOST:
        most = found.rows // found.step
        fewest = next(n for n in range(2, most + 1) if found.divides(n))
        for count in sorted({fewest, most}):
            yield part_of(e.op, (0, found.rows // count))


def cases(device: Device, made: Iterable[Example]) -> Iterator[tuple[Example, Algorithm, Algorithm]]:
    """Each example with an algorithm of its op, and with the same one part by part."""
    for e in made:
        whole = {a.name: a for a in device.algorithms(e.op)}
        for one in parts(e):
            for a in (a for a in device.algorithms(one) if a.name in whole):
                yield e, whole[a.name], by_parts(one, a)


def check(device: Device, made: Iterable[Example] = examples(), kinds: Collection[str] = KINDS) -> None:
    """Compare each example's rows with those of the op as a whole. Only sums over images, gradients of parameters, and
    merged moments have an order of their own."""
    seen, of_tokens = set(), set()
    for e, whole, parted in cases(device, made):
        seen.add(e.op.kind)
        if operands(e.op).step == TOKENS:
            of_tokens.add(e.op.kind)
        late = operands(e.op).late
        for t, x, y in zip(e.op.writes, run(device, e, parted), run(device, e, whole), strict=True):
            if t in late:
                np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-3, err_msg=f"{e.name} by {parted.name}")
            else:
                assert x.tobytes() == y.tobytes(), f"{e.name} by {parted.name}: {t.name}"
    assert seen >= kinds and of_tokens >= OF_TOKENS.intersection(kinds)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_parts_have_the_bytes_of_the_whole(device):
    check(compiled() if device == "cpu" else open_device(device))


@pytest.mark.slow
@pytest.mark.extended
def test_parts_in_16_bits_have_the_bytes_of_the_whole():
    """Gradients of parameters and what is merged would be rounded, so they are not made in parts."""
    whole = {e.op.kind for e in examples() if (use := operands(e.op)) and use.late}
    check(compiled(), [stored(e, "float16") for e in examples()], KINDS - whole)


@pytest.mark.extended
@pytest.mark.parametrize("core", CORES)
def test_on_reference_with_the_kernels_of_other_cpus(core):
    run_as(
        core,
        "from minidnn.backends import open_device",
        "from tests.memory.parts.test_kinds import check",
        "check(open_device('reference'))",
    )
