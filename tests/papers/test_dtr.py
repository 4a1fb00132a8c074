"""DTR's own claim (Kirisame et al., ICLR 2021, abstract): N layers in the root of N bytes, with O(N) ops."""

from __future__ import annotations

import math

import pytest

from minidnn.memory.policies.papers.dtr_runtime import Full, Runtime
from minidnn.memory.policies.shared.algorithms import choose
from tests.support.programs import chain, costs

MAP = 64 * 1024  # bytes of each map of the chain


def again(layers, maps):
    """Ops that run again on a chain of so many layers, by layer, in the bytes of so many maps."""
    program = chain(layers)
    runtime = Runtime(program, costs(), choose(program, costs(), "m"))
    fixed = sum(runtime.size[t] for t in runtime.fixed)
    return (len(runtime.order(fixed + maps * MAP)) - len(program.ops)) / layers


def test_on_a_chain_it_takes_the_root_of_the_layers_and_a_constant_number_of_runs_for_each():
    """The paper proves it for a chain. A layer here has two ops of forward."""
    found = [again(n, 2 * math.isqrt(n)) for n in (64, 144, 256, 400)]
    assert max(found) < 2, "not even one forward pass more"
    assert again(256, 4 * math.isqrt(256)) < found[2], "more bytes, fewer runs"


def test_with_room_for_all_nothing_runs_again_and_without_room_for_one_layer_it_says_so():
    assert again(16, 40) == 0
    with pytest.raises(Full):
        again(16, 2)
