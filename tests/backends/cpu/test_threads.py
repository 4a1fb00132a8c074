"""On the cpu the bits of every algorithm of every kind are the same on any number of threads. Convolutions are tried as
nets have them, too.

The machine's own instructions decide which kernels there are: with AVX-512 these are others than with AVX2."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from minidnn.backends.cpu import native
from tests.support.op_examples import Example, Maker, compiled, examples, run
from tests.support.op_examples.products import convolution

SHARED = 1 << 13  # elements: below, all kernels leave the work to one thread (pieces.h)
OTHERS = (2, 3, 5, 8)
NETS = [  # n, c, h, w, outputs, kernel, stride, pad, dilation, group: the sorts that nets have, on smaller images
    (3, 3, 56, 56, 64, (7, 7), (2, 2), (3, 3), (1, 1), 1),
    (2, 3, 67, 67, 96, (11, 11), (4, 4), (0, 0), (1, 1), 1),
    (3, 96, 13, 13, 128, (5, 5), (1, 1), (2, 2), (1, 1), 2),
    (5, 128, 14, 14, 128, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    (3, 256, 14, 14, 256, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (2, 256, 7, 7, 512, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (5, 64, 28, 28, 256, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (3, 512, 14, 14, 128, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (3, 256, 28, 28, 512, (1, 1), (2, 2), (0, 0), (1, 1), 1),
    (2, 832, 7, 7, 48, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (4, 16, 28, 28, 96, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (3, 37, 31, 31, 13, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (4, 16, 7, 7, 24, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    (1, 64, 56, 56, 64, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (2, 96, 28, 28, 96, (3, 3), (2, 2), (1, 1), (1, 1), 96),
]


def same_bits(cases: Iterable[Example]) -> set[str]:
    """Compares every algorithm of the cases on several numbers of threads with one thread. Returns the kinds."""
    one, others, kinds = compiled(1), [compiled(n) for n in OTHERS], set()
    for e in cases:
        for algorithm in one.algorithms(e.op):
            want = run(one, e, algorithm)
            for device in others:
                its = {a.name: a for a in device.algorithms(e.op)}
                for t, a, b in zip(e.op.writes, want, run(device, e, its[algorithm.name]), strict=True):
                    where = f"{e.name} by {algorithm}: {t.name} on {device.threads} threads"
                    assert a.tobytes() == b.tobytes(), where
        kinds.add(e.op.kind)
    return kinds


def test_any_number_of_threads_gives_the_same_bits():
    large = [e for e in examples() if max(t.size for t in e.op.tensors) >= SHARED]
    assert same_bits(large) >= set(native.FIRST)


@pytest.mark.slow
@pytest.mark.parametrize("geometry", NETS, ids=str)
def test_any_number_of_threads_gives_the_same_bits_of_convolutions_of_nets(geometry):
    same_bits(convolution(Maker(7), *geometry))


def test_the_number_of_threads_is_no_part_of_the_facts_that_numbers_depend_on():
    one, other = compiled(1), compiled(3)
    assert one.numerics == other.numerics != one.description != other.description
