"""What runs again need of tensors that no op uses any more raises the bound, and no plan is below it."""

from __future__ import annotations

import random

import pytest

from minidnn.memory.joint import behind
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.chains import chains
from minidnn.memory.joint.index import Index
from minidnn.memory.joint.planner import Planner
from tests.memory.joint.test_bound import is_below
from tests.support.decisions import schedule_at_random
from tests.support.programs import KB, Builder, costs, permuted

SLOW = 1e7  # bytes per second of copies: to run again is quicker


def routed():
    """a -> once -> twice -> out: backward reads a and twice alone."""
    b = Builder()
    once = b.add("once", "permute", b.add("a", "convolution", "data"), size=32)
    b.add("out", "convolution", b.add("twice", "permute", once), size=16)
    b.add("fc", "inner_product", b.add("far", "convolution", "out"), size=4)
    return b.program()


def test_a_chain_ends_at_what_backward_reads_and_holds_the_bytes_of_its_smallest_tensor():
    index = Index(routed(), costs())
    (gap,) = (g for g in index.gaps if g.tensor.name == "twice.y" and g.crosses)
    (chain,) = chains(index, [gap])
    needs = {t.name: [u.name for u in some] for t, some in chain.needs.items()}
    assert needs["twice.y"] == ["once.y"]
    assert chain.held == 32 * KB and chain.first == gap.last + 1
    assert "a.y" not in {t.name for t in chain.tensors} or needs["once.y"] == ["a.y"]


def test_a_tensor_in_several_chains_counts_in_parts():
    b = Builder()
    once = b.add("once", "permute", b.add("a", "convolution", "data"), size=32)
    left, right = (b.add(name, "permute", once) for name in ("left", "right"))
    b.add("sum", "concat", b.add("of_left", "convolution", left), b.add("of_right", "convolution", right))
    b.add("fc", "inner_product", "sum", size=4)
    index = Index(b.program(), costs())
    found = chains(index, [g for g in index.gaps if g.tensor.name in ("left.y", "right.y") and g.crosses])
    assert [c.held for c in found] == [16 * KB, 16 * KB]


@pytest.mark.extended
def test_no_plan_at_random_is_below_the_bound_that_counts_chains(monkeypatch):
    r, higher = random.Random("chains"), 0
    for seed in range(20):
        program, device = permuted(seed, r.randint(4, 12)), costs(bandwidth=(SLOW, 1e9)[seed % 4 == 0])
        bound = LowerBound(Index(program, device))
        for _ in range(4):
            assert is_below(bound, schedule_at_random(program, device, r), device) is None, seed
        budget = bound.least() * 5 // 4
        planned = Planner(program, device).within(budget)
        assert planned is None or planned.seconds >= bound.at(budget).seconds * (1 - 1e-9), seed
        with monkeypatch.context() as m:
            m.setattr(behind, "chains", lambda index, gaps: [])
            without = LowerBound(Index(program, device)).at(budget)
        assert bound.at(budget).seconds >= without.seconds * (1 - 1e-6), seed
        higher += bound.at(budget).seconds > without.seconds * 1.0005
    assert higher > 0
