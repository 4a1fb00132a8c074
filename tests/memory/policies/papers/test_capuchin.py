"""Capuchin-style: who is swapped, who is made again, by hand and on real devices."""

from __future__ import annotations

import pytest

from minidnn.memory.budget import BudgetError
from minidnn.memory.planning import arrange
from minidnn.memory.policies.papers.capuchin import _Maker
from tests.support.programs import KB, chain, costs, normed
from tests.support.trains import baseline, train


def moves(plan, program):
    """(names of the tensors that leave and come back, executions that run again)"""
    offloads = [t for t in plan.offloads if t.offload_at is not None and t.prefetch_at is not None]
    return {t.tensor.name for t in offloads}, len(plan.order) - len(program.ops)


def test_free_time_by_hand():
    """conv0 and relu0 end at 250 us, and the copy of relu0.y takes 64 us on a link of 1 GB/s. Its first use in backward
    begins when conv1's does."""
    program = chain(3)
    maker = _Maker(program, costs(), "m")
    (c,) = [c for c in maker.model.candidates if c.tensor.name == "relu0.y"]
    at = {op.name: float(maker.model.clock[p]) for p, op in enumerate(program.ops)}
    copy = 64 * KB / 1e9
    want = at["conv1.backward_filter"] - copy - (at["relu1.forward"] + copy)
    assert maker.free_time(c) == pytest.approx(want)


def test_hidden_swaps_come_first_and_then_what_is_cheaper():
    """On a slow link the copies of a norm's neighbours take longer than their ops; a convolution's result is dear."""
    program = normed()
    maker = _Maker(program, costs(bandwidth=2e8), "m")
    able, hidden = maker._able(300 * KB)
    assert [maker.free_time(c) for c in able] == sorted((maker.free_time(c) for c in able), reverse=True)
    choices = maker._ranked(able, hidden)
    assert 0 < hidden < len(able) and [again for _, again in choices[:hidden]] == [False] * hidden
    assert {c.tensor.name for c, again in choices if again} == {"relu1.y", "pool.y", "relu2.y", "conv2.y"}
    # with a quick link nothing is made again
    quick = _Maker(program, costs(bandwidth=1e12), "m")
    assert not any(again for _, again in quick._ranked(*quick._able(300 * KB)))


def test_no_more_is_chosen_than_the_limit_needs():
    program, found = normed(), []
    for kib in (640, 576, 512, 448):
        plan = arrange([program], "capuchin:m", costs(bandwidth=1e8), kib * KB).schedules["TRAIN"].plan
        swapped, again = moves(plan, program)
        found.append(len(swapped) + again)
    assert found == sorted(found) and found[0] < found[-1]


@pytest.mark.slow
@pytest.mark.parametrize("net", ["residual", "inception"])
def test_bit_identical_halfway(net):
    """A little above the smallest budget."""
    with pytest.raises(BudgetError) as refused:
        train(net, "cpu", "capuchin:m", budget=1)
    want, losses, _ = baseline(net, "cpu", "m")
    got, got_losses, _ = train(
        net, "cpu", "capuchin:m", debug=True, delays=2e-3, budget=refused.value.smallest * 5 // 4
    )
    assert got_losses == losses and got == want
