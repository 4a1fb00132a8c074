"""Wrong schedules of several ranks are refused: by the proof, which looks at one rank, or where ranks compare their
communications. An independent oracle says which of the changed schedules are wrong; the others are not counted.

    pytest -s tests/memory/proof/test_rank_mutations.py                            shows them by kinds
    HYPOTHESIS_PROFILE=deep pytest -s tests/memory/proof/test_rank_mutations.py    tries 50 times as many
"""

from __future__ import annotations

import random

import pytest

from minidnn.memory.proof.digest import collectives, difference
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Schedule
from tests.support.examples import TIMES
from tests.support.hunt import Change, hunted
from tests.support.mutate_ranks import CHANGES, communications, dropped_wait, early_free
from tests.support.oracle import broken
from tests.support.several import CASES, arranged
from tests.support.slow import quick_are, usual_pairs

POLICIES = ["liveness:m", "vdnn_all:m", "vdnn_conv:p", "layrub:m", "superneurons_memory:p", "recompute_all:m"]
WRONG = 100 * TIMES  # of each net


def judged(s: Schedule, mine: Schedule, change: Change[Schedule]) -> str | None:
    """Why ranks that run `mine` and one that runs `s` could go wrong: `s` is broken, or a rank waits for what another
    one does not send then."""
    # Who takes bytes that are free already is another change's matter: to free them while they are used is wrong.
    if change is early_free:
        return "freed too early"
    why = broken(s)
    if why is None and sent(s) != sent(mine):
        why = "the ranks' communications do not meet"
    return why


def sent(s: Schedule) -> list[tuple]:
    """What meets what: the bytes of each communication, in their order, and of how many ranks."""
    found = []
    for i in communications(s):
        op = s.instructions[i].op
        found.append((op.name, op.attrs.ranks, *((t.name, t.nbytes) for t in (*op.reads, *op.writes))))
    return found


def prove(s: Schedule, mine: Schedule) -> None:
    verify(s)
    if (found := difference([collectives(mine), collectives(s)])) is not None:
        raise ScheduleError(str(found))


@pytest.mark.parametrize(("case", "ranks"), usual_pairs(quick_are(["normed"], CASES), [2, 4]))
def test_wrong_schedules_of_several_ranks_are_refused(case, ranks):
    r = random.Random(17)
    schedules = [s for policy in POLICIES for s in arranged(ranks, case, policy).schedules.values()]
    schedules = [s for s in schedules if communications(s)]
    assert all(broken(s) is None for s in schedules)
    changes = (*CHANGES, dropped_wait, dropped_wait)
    wrong = hunted(schedules, changes, WRONG, r, judged, prove, title=f"{case}, {ranks} ranks")
    assert len(wrong) >= len(CHANGES) - 1
