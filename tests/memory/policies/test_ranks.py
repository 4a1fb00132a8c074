"""Policies with programs of several ranks: forward runs again as it does without them, and no communication does."""

from __future__ import annotations

import pytest

from tests.support.several import arranged, made


@pytest.mark.parametrize("case, policy", [("normed", "recompute_all:m"), ("normed", "sqrt_n:m"), ("plain", "sqrt_n:m")])
def test_as_many_ops_run_again_as_on_one_device(case, policy):
    again = [_again(arranged(ranks, case, policy).schedules["TRAIN"].plan.order) for ranks in (1, 2, 4)]
    assert again[0] and again[1] == again[2] == again[0]


def _again(order):
    seen, found = set(), []
    for op in order:
        if op in seen:
            assert not op.on_net
            found.append(op.name)
        seen.add(op)
    return found


@pytest.mark.parametrize("ranks", [1, 2])
def test_forward_ends_where_backward_begins(ranks):
    """Among several ranks a step begins with gathers, which belong to no layer."""
    (program,) = made(ranks).values()
    assert program.ops[0].on_net == (ranks > 1)
    assert program.ops[program.forward].name == "loss.backward"
    assert "loss.forward" in {op.name for op in program.ops[: program.forward]}
