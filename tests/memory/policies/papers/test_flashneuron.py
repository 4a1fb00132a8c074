"""FlashNeuron-style selection: the first tensors of forward, as few as fit the rest; then those that compress well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.costs.costs import Disk, Staging
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.policies.papers.flashneuron import behind, compressible, flashneuron, offload_seconds, selected
from minidnn.memory.policies.shared.algorithms import choose
from minidnn.memory.policies.shared.swap_model import Model
from tests.support.programs import KB, PROGRAMS, Builder, chain, costs


def modelled(program, device):
    return Model(program, device, choose(program, device, "m"))


@pytest.mark.parametrize("net", ["chain", "residual", "inception"])
def test_the_tensors_that_leave_are_the_first_of_forward_and_one_fewer_would_not_do(net):
    program, device = PROGRAMS[net](), costs(bandwidth=1e12)
    model = modelled(program, device)
    made = sorted(model.candidates, key=lambda c: -1 if c.written is None else c.written)
    counts = set()
    for part in (0.95, 0.8, 0.6):
        offloads = selected(program, model, int(model.peak * part))
        count = len(offloads)
        assert [t.tensor for t in offloads] == [c.tensor for c in made[:count]]
        assert model.windows(made[: count - 1], int(model.peak * part)) is None
        assert offload_seconds(model, offloads) <= model.clock[program.forward]
        counts.add(count)
    assert len(counts) > 1


def two_branches():
    """Large results of convolutions, then small ones of ReLUs: on a slow link the latter leave in less time."""
    b = Builder(16)
    last = "data"
    for k, size in enumerate((96, 96, 32, 32, 32, 32)):
        last = b.add(f"conv{k}", "convolution", last, size=size)
        if size == 32:
            last = b.add(f"relu{k}", "relu", last, size=size)
    b.add("fc", "inner_product", last, size=4)
    return b.program()


def test_what_compresses_leaves_first_if_the_first_selection_takes_longer_than_forward():
    program, device = two_branches(), costs(bandwidth=5e7)
    model = modelled(program, device)
    zeros = compressible(program)
    assert {t.name for t in zeros} == {f"relu{k}.y" for k in range(2, 6)}
    memory = model.peak - 60 * KB
    offloads = selected(program, model, memory)
    assert {t.tensor for t in offloads} <= zeros and len(offloads) > 1
    quick = replace(device, bandwidth_out=1e12, bandwidth_in=1e12)
    assert {t.tensor.name for t in selected(program, modelled(program, quick), memory)} == {"data", "conv0.y"}
    for slow in (Disk(write_rate=5e7, read_rate=5e7), None):  # behind the quick link
        staged = replace(quick, staging=Staging(0, disk=slow))
        assert (selected(program, modelled(program, behind(staged)), memory) == offloads) == (slow is not None)


def test_every_budget_that_its_refusal_names_and_any_larger_one_is_kept():
    program, device = chain(), costs()
    with pytest.raises(BudgetError) as refused:
        arrange([program], "flashneuron:m", device, 1)
    whole, before = arrange([program], "liveness:m", device, 1 << 40).arena, None
    for budget in range(refused.value.smallest, whole + 1, (whole - refused.value.smallest) // 6):
        schedule = arrange([program], "flashneuron:m", device, budget).schedules["TRAIN"]
        moved = sum(t.offload_at is not None and t.prefetch_at is not None for t in schedule.plan.offloads)
        assert before is None or moved <= before[0], "more memory, fewer tensors"
        before = moved, simulate(schedule, device).seconds
    assert flashneuron(program, device, whole).offloads == ()
