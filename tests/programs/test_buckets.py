"""The size of buckets: the quickest step that is predicted, alike on all ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.costs.net import REDUCE_SCATTER, Link, among
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.optimizers import SGD
from minidnn.programs.buckets import LEAST, sized
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.zoo import load
from tests.support import programs as toys

NET = load("lenet")
SPEC = TrainSpec(SGD(momentum=0.9), ranks=4)


def train(spec):
    return programs(NET, spec, ("TRAIN",))["TRAIN"]


def exchanges(spec):
    return [op for op in train(spec).ops if op.kind == REDUCE_SCATTER]


def seconds(spec, costs):
    return simulate(arrange([train(spec)], "liveness:p", costs).schedules["TRAIN"], costs).seconds


def test_a_long_latency_wants_one_bucket_and_a_slow_link_several():
    late = among(toys.costs(), Link(1e12, 1e-2, gap=0.0))
    slow = among(toys.costs(), Link(2e9, 1e-7))
    one, several = sized(SPEC, train, late), sized(SPEC, train, slow)
    assert len(exchanges(one)) == 1 < len(exchanges(several))
    assert seconds(one, late) < seconds(several, late) and seconds(several, slow) < seconds(one, slow)


@pytest.mark.parametrize("link", [Link(1e9, 1e-5), Link(1e7, 1e-3)])
def test_no_size_that_is_tried_is_quicker(link):
    costs = among(toys.costs(), link)
    chosen = sized(SPEC, train, costs)
    assert chosen.bucket >= LEAST
    for size in (LEAST, 4 * LEAST, 16 * LEAST):
        assert seconds(replace(SPEC, bucket=size), costs) * 1.005 >= seconds(chosen, costs)


def test_all_ranks_choose_alike_and_one_that_is_named_stays():
    costs = among(toys.costs(), Link(1e9, 1e-5))
    assert len({sized(replace(SPEC, rank=rank), train, costs).bucket for rank in range(4)}) == 1
    assert sized(replace(SPEC, bucket=1000), train, costs).bucket == 1000
    assert sized(replace(SPEC, ranks=1), train, costs).bucket is None and sized(None, train, costs) is None
