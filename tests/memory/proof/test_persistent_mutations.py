"""The proof refuses what is wrong with tensors that live on the host: 500 wrong offload intervals, copies and places,
some of them right for each program and wrong for all. Independent oracles say which changes are wrong; the others are
not counted.

    pytest -s tests/memory/proof/test_persistent_mutations.py                            shows them by kinds
    HYPOTHESIS_PROFILE=deep pytest -s tests/memory/proof/test_persistent_mutations.py    tries 50 times as many
"""

from __future__ import annotations

import random

import pytest

import minidnn
from minidnn.memory.planning import arrange
from minidnn.memory.proof.verify import verify_all
from minidnn.memory.schedule import Schedule
from minidnn.optimizers import SGD
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from tests.support.examples import TIMES
from tests.support.hunt import hunted
from tests.support.mutate_persistent import CHANGES, lost
from tests.support.oracle import broken
from tests.support.paths import NET_FILES
from tests.support.programs import costs
from tests.support.slow import usual_are

TRAIN = TrainSpec(SGD(momentum=0.9), iter_size=2)


def arranged(policy: str, state: str, part: float | None = None) -> list[Schedule]:
    """ACCUMULATE, TRAIN and TEST of a small net. part: of the bytes that liveness takes"""
    net, device = minidnn.load(NET_FILES / "lenet.yaml").with_batch(4), costs(bandwidth=1e9)
    made = list(programs(net, TRAIN, ("TRAIN", "TEST"), state=state).values())
    budget = None if part is None else int(arrange(made, "liveness:m", device).arena * part)
    return list(arrange(made, policy, device, budget).schedules.values())


def wrong(schedules: list[Schedule]) -> str | None:
    return next((why for s in schedules if (why := broken(s))), None) or lost(schedules)


@pytest.mark.slow
@pytest.mark.parametrize("count", usual_are([100], [100, 500]))
def test_wrong_persistent_tensors_are_refused(count):
    r = random.Random(18)
    nets = [arranged(policy, "all") for policy in ("liveness:m", "vdnn_all:m", "recompute_all:m")]
    nets += [arranged("liveness:m", "host"), arranged("l2l:m", "device"), arranged("best", "device", 0.7)]
    for schedules in nets:
        verify_all(schedules)
        assert wrong(schedules) is None
        assert any(s.program.host_resident for s in schedules)
    found = hunted(
        nets, CHANGES, count * TIMES, r, lambda changed, *_: wrong(changed), lambda changed, _: verify_all(changed)
    )
    assert all(found[change] for change in CHANGES)
