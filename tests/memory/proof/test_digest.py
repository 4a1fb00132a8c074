"""Ranks with one digest run one schedule; and what tells their communications apart."""

from __future__ import annotations

import copy
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from minidnn.memory.proof.digest import collectives, difference, digest
from minidnn.memory.schedule import Compute
from tests.support.mutate import mutated
from tests.support.several import arranged

PRINTED = "from tests.support.several import arranged; from minidnn.memory.proof.digest import digest; print(digest("


@pytest.mark.parametrize("policy", ["liveness", "vdnn_all"])
def test_no_rank_has_a_digest_of_its_own(policy):
    found = {digest(arranged(4, policy=policy, rank=rank)) for rank in range(4)}
    assert len(found) == 1
    assert found == {digest(arranged(4, policy=policy))}
    assert len(found | {digest(arranged(2, policy=policy)), digest(arranged(4, policy="baseline"))}) == 3


def test_no_process_has_a_digest_of_its_own():
    """Hashes of texts differ between processes of Python."""
    code = PRINTED + "arranged(2)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == digest(arranged(2))


@pytest.mark.parametrize("kind", ["drop", "drop wait", "run again", "algorithm", "shift"])
def test_every_change_of_a_schedule_changes_its_digest(kind):
    r = random.Random(17)
    s = arranged(2, policy="vdnn_all").schedules["TRAIN"]
    assert digest(s) not in {digest(mutated(s, r, kind)) for _ in range(10)}


def test_the_first_communication_that_differs_is_named():
    arrangement = arranged(2)
    mine = collectives(arrangement)
    assert [line.split(",")[0] for line in mine[:2]] == ["TRAIN: net.all_gather", "TRAIN: net.all_gather1"]
    assert difference([mine, mine, mine]) is None
    s = arrangement.schedules["TRAIN"]
    at = [i for i, x in enumerate(s.instructions) if isinstance(x, Compute) and x.op.on_net]
    swapped = copy.copy(s)
    order = list(s.instructions)
    order[at[0]], order[at[1]] = order[at[1]], order[at[0]]
    swapped.instructions = tuple(order)
    said = difference([mine, mine, collectives(swapped)])
    assert said is not None
    assert said.startswith("communication 0 of rank 2 is not that of rank 0: TRAIN: net.all_gather1, net.all_gather, ")
    shorter = difference([mine, mine[:-1]])
    assert shorter is not None and f"communication {len(mine) - 1} of rank 1 is not that of rank 0: nothing" in shorter


def test_a_communication_of_more_ranks_differs():
    mine = collectives(arranged(2))
    s = arranged(2).schedules["TRAIN"]
    more = copy.copy(s)
    more.instructions = tuple(
        replace(x, op=replace(x.op, attrs=replace(x.op.attrs, ranks=3)))
        if isinstance(x, Compute) and x.op.on_net
        else x
        for x in s.instructions
    )
    assert difference([mine, collectives(more)]) is not None
