"""The gradients of micro-batches are summed along a balanced binary tree, whoever walks it."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.reference import KERNELS
from minidnn.programs.spec import TrainSpec
from minidnn.programs.sum_tree import SumAttrs


def walked(leaves):
    """The sum of these leaves as the ops of ACCUMULATE and TRAIN take it."""
    every, size = len(leaves), leaves[0].size
    a, sums = SumAttrs(every), np.full(TrainSpec(iter_size=every).waiting * size, np.nan, np.float32)
    for k, leaf in enumerate(leaves[:-1]):
        KERNELS["gradient.accumulate"](a, [sums, leaf, np.array([3 * every + k])], [sums])
    total = np.empty_like(leaves[-1])
    KERNELS["gradient.total"](a, [sums, leaves[-1]], [total])
    return total


def tree(leaves):
    """The sum along a tree whose left part is the longest run of 2^n leaves that leaves something over."""
    if len(leaves) == 1:
        return leaves[0]
    left = 1 << ((len(leaves) - 1).bit_length() - 1)
    return tree(leaves[:left]) + tree(leaves[left:])


def leaves(count):
    """Gradients of all sizes, so that each order of sums has bits of its own."""
    random = np.random.default_rng(count)
    return [(random.standard_normal((3, 5)) * 10.0 ** random.integers(-3, 4)).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("count", [*range(2, 18), 31, 32, 33, 64])
def test_it_is_the_tree_s_sum(count):
    made = leaves(count)
    assert walked(made).tobytes() == tree(made).tobytes()
    one_by_one = sum(made[1:], made[0])
    assert count < 4 or walked(made).tobytes() != one_by_one.tobytes()


@pytest.mark.parametrize("devices, each", [(2, 1), (2, 2), (4, 2), (3, 4), (5, 8), (8, 4)])
def test_devices_that_take_runs_of_a_power_of_two_end_with_the_same_bytes(devices, each):
    made = leaves(devices * each)
    runs = [walked(made[k : k + each]) if each > 1 else made[k] for k in range(0, len(made), each)]
    assert walked(runs).tobytes() == walked(made).tobytes()


def test_as_many_sums_wait_as_the_logarithm_says():
    assert [TrainSpec(iter_size=n).waiting for n in (2, 3, 4, 7, 8, 1000, 1024)] == [1, 1, 2, 2, 3, 9, 10]
