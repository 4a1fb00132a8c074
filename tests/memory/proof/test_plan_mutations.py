"""The proof refuses what a wrong plan does: 500 plans that share the wrong bytes, residency by residency, or whose
tensors travel wrongly, gap by gap. An independent oracle says which of the changed plans are wrong; the others are not
counted.

    pytest -s tests/memory/proof/test_plan_mutations.py                            shows them by kinds
    HYPOTHESIS_PROFILE=deep pytest -s tests/memory/proof/test_plan_mutations.py    tries 50 times as many
"""

from __future__ import annotations

import random
from itertools import cycle, islice

import pytest

from minidnn.memory.planning import unproved
from minidnn.memory.proof.verify import verify
from minidnn.memory.schedule import Schedule
from tests.support.decisions import schedule_at_random
from tests.support.examples import TIMES
from tests.support.hunt import hunted
from tests.support.mutate_plan import CHANGES
from tests.support.oracle import broken
from tests.support.programs import PROGRAMS, costs, normed, wild_graph
from tests.support.slow import usual_are


def planned_by_best() -> list[Schedule]:
    found = []
    for program in (PROGRAMS["residual"](2), normed(), wild_graph(2, 7), wild_graph(8, 7)):
        device = costs(bandwidth=1e9)
        whole = unproved([program], "liveness:p", device, device.memory)["TRAIN"].arena
        found += [unproved([program], "best", device, whole * part // 100)["TRAIN"] for part in (75, 50)]
    return found


def shares_in_some_residencies(s: Schedule) -> bool:
    """Whether a tensor is written where it takes another's bytes, and again where it has bytes of its own."""
    written = {(t, p) for p, op in enumerate(s.plan.order) for t in op.writes}
    sharing = {t for t, p in written if (t, p) in s.plan.share}
    return any(t in sharing for t, p in written if (t, p) not in s.plan.share)


def planned_at_random(count: int, r: random.Random) -> list[Schedule]:
    """Schedules in which a tensor shares bytes in some stays only."""
    programs = cycle([PROGRAMS["residual"](2), normed(), PROGRAMS["inception"](1), wild_graph(2, 7)])
    made = (schedule_at_random(program, costs(bandwidth=r.choice([2e8, 2e9])), r) for program in programs)
    return list(islice(filter(shares_in_some_residencies, made), count))


@pytest.mark.slow
@pytest.mark.parametrize("count", usual_are([100], [100, 500]))
def test_wrong_plans_are_refused(count):
    r = random.Random(14)
    schedules = [*planned_by_best(), *planned_at_random(12 * TIMES, r)]
    for s in schedules:
        verify(s)
        assert broken(s) is None
    wrong = hunted(schedules, CHANGES, count * TIMES, r, lambda s, *_: broken(s), lambda s, _: verify(s), goes_on=True)
    assert all(wrong[change] for change in CHANGES)
