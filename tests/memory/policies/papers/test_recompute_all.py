"""recompute_all, where ops run in parts: nothing runs again once its weights have been updated."""

from __future__ import annotations

import pytest

from minidnn import zoo
from minidnn.costs import profile
from minidnn.memory.planning import arrange
from minidnn.optimizers import SGD
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.programs.spec import TrainSpec


@pytest.mark.extended
@pytest.mark.parametrize(("net", "batch"), [("wrn_28_10", 64), ("inception_v4", 32)])
def test_backward_in_parts_brings_back_nothing_that_it_has_passed(net, batch):
    """Its parts run one after the other, so that tensors of later layers cross the cuts before the present place."""
    train = programs(zoo.find(net, batch), TrainSpec(SGD(momentum=0.9)), ("TRAIN",), fuses=as_cuda)["TRAIN"]
    schedule = arrange([train.synchronous_inputs()], "recompute_all:p@8", profile("titan_x"), 1 << 40).schedules[
        "TRAIN"
    ]
    assert schedule.program.parts and len(schedule.plan.order) > len(schedule.program.ops)
