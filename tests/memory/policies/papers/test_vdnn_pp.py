"""vDNN++ against vDNN: the same maps, under the same budget, and compute never stands still for longer."""

from __future__ import annotations

import os
from functools import lru_cache

import pytest

from minidnn.costs import profile
from minidnn.jobs.solver_file import understand
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.planning import arrange
from minidnn.memory.policies import find
from minidnn.memory.schedule import Compute, Offload, Prefetch, Schedule
from minidnn.programs.build import programs
from tests.support.oracle import broken
from tests.support.paths import GOLDEN
from tests.support.programs import PROGRAMS, chain, costs, random_graph
from tests.support.slow import usual_are

PAIRS = [("vdnn_all", "vdnn_pp"), ("vdnn_conv", "vdnn_pp_conv")]


def compute_ends(schedule: Schedule, on) -> dict[tuple[str, int], float]:
    """When each execution ends, by op and run."""
    ends = {s.index: s.end for s in simulate(schedule, on).spans}
    return {(x.op.name, x.run): ends[i] for i, x in enumerate(schedule.instructions) if isinstance(x, Compute)}


def no_worse(programs_, vdnn: str, pp: str, on, budget: int, name: str = "TRAIN") -> tuple[float, float]:
    """Assert that vDNN++ keeps a budget that vDNN keeps, and is nowhere later; return both stalls."""
    one = arrange(programs_, vdnn, on, budget).schedules[name]
    two = arrange(programs_, pp, on, budget).schedules[name]
    before, after = copied(one.instructions, one), copied(two.instructions, two)
    assert after["offload_bytes"] <= before["offload_bytes"] and after["prefetch_bytes"] <= before["prefetch_bytes"]
    ends = compute_ends(one, on)
    late = {op: (t, ends[op]) for op, t in compute_ends(two, on).items() if t > ends[op] * (1 + 1e-9)}
    assert not late, "an op ends later than under vDNN"
    stalls = simulate(one, on).stall_seconds, simulate(two, on).stall_seconds
    assert stalls[1] <= stalls[0] * (1 + 1e-9)
    return stalls


def budgets(programs_, vdnn: str, algorithms: str, on, parts: int = 6):
    """From the least that vDNN keeps to what it takes that nothing leaves."""
    least = arrange(programs_, f"{vdnn}:{algorithms}", on, 1 << 60).arena
    most = arrange(programs_, f"liveness:{algorithms}", on, 1 << 60).arena
    return [least + (most - least) * k // parts for k in range(parts + 1)]


@pytest.mark.extended
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("vdnn", "pp"), PAIRS)
def test_never_later_than_vdnn_on_small_graphs(name, vdnn, pp):
    program = PROGRAMS[name]()
    for bandwidth in (1e8, 3e8, 1e9):
        on = costs(bandwidth=bandwidth)
        for budget in budgets([program], vdnn, "p", on):
            no_worse([program], f"{vdnn}:p", f"{pp}:p", on, budget)


@pytest.mark.parametrize("seed", usual_are([1, 2], range(12)))
def test_never_later_than_vdnn_on_any_graph(seed):
    program = random_graph(seed, 14)
    on = costs(bandwidth=2e8)
    for budget in budgets([program], "vdnn_all", "m", on):
        no_worse([program], "vdnn_all:m", "vdnn_pp:m", on, budget)
        s = arrange([program], "vdnn_pp:m", on, budget).schedules["TRAIN"]
        assert broken(s) is None


@lru_cache
def network(name: str, batch: int):
    net, _, _ = understand(name, batch=batch)
    return tuple(programs(net, None, ("TRAIN",)).values())


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "batch", "algorithms", "gain"),
    [("alexnet", 128, "p", 1.2), ("vgg19", 64, "m", 1.07), ("resnet50", 32, "m", 2.1)],
)
def test_never_later_than_vdnn_on_the_papers_networks(name, batch, algorithms, gain):
    on = profile("titan_x")
    for vdnn, pp in PAIRS:
        found = budgets(network(name, batch), vdnn, algorithms, on, 2)
        stalls = [no_worse(network(name, batch), f"{vdnn}:{algorithms}", f"{pp}:{algorithms}", on, b) for b in found]
        assert stalls[-1][1] < stalls[0][1] or stalls[0][1] < 0.01, "more memory, less waiting"
        assert stalls[0][1] < stalls[0][0], "also where vDNN can do with no less"
    seconds = [
        simulate(arrange(network(name, batch), f"{p}:{algorithms}", on, 12 << 30).schedules["TRAIN"], on).seconds
        for p in PAIRS[0]
    ]
    assert seconds[0] / seconds[1] > gain


@pytest.mark.parametrize("policy", ["vdnn_pp:m", "vdnn_pp_conv:m", "vdnn_pp_alt:m"])
def test_where_nobody_asks_for_bytes_nothing_moves_and_nothing_waits(policy):
    program = PROGRAMS["inception"](3)
    slow = costs(bandwidth=1e7)
    s = arrange([program], policy, slow).schedules["TRAIN"]
    moved = copied(s.instructions, s)
    assert moved["offload_bytes"] == moved["prefetch_bytes"] == 0
    residencies = arrange([program], "liveness:m", slow).schedules["TRAIN"]
    assert simulate(s, slow).stall_seconds == pytest.approx(simulate(residencies, slow).stall_seconds)


@pytest.mark.parametrize(("vdnn", "pp"), PAIRS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_keeps_every_budget_that_vdnn_keeps_and_refuses_with_the_smallest(name, vdnn, pp):
    program = PROGRAMS[name]()
    least = arrange([program], f"{vdnn}:m", costs()).arena
    arrange([program], f"{pp}:m", costs(), least)
    with pytest.raises(BudgetError) as refused:
        arrange([program], f"{pp}:m", costs(), least - 256)
    assert refused.value.smallest == least


def test_where_placement_loses_bytes_it_tries_with_fewer_alive_and_does_not_give_up():
    """The first plan's live bytes fit 6 GiB, and its arena does not."""
    moved = {}
    for policy in ("vdnn_all:p", "vdnn_pp:p"):
        s = arrange(network("vgg19", 64), policy, profile("titan_x"), 6 << 30).schedules["TRAIN"]
        moved[policy] = copied(s.instructions, s)["offload_bytes"]
    assert moved["vdnn_pp:p"] < 0.5 * moved["vdnn_all:p"]


def tight():
    program = chain(5)
    return arrange([program], "vdnn_pp:m", costs(), arrange([program], "vdnn_all:m", costs()).arena).schedules["TRAIN"]


def test_the_next_layer_begins_before_the_copy_ends():
    """vDNN's barrier at a layer's end is gone: a copy may end long after the layer beside which it began."""
    on = costs(bandwidth=1e8)
    program = chain(5)
    room = arrange([program], "vdnn_all:m", on).arena + 128 * 1024
    s = arrange([program], "vdnn_pp:m", on, room).schedules["TRAIN"]
    spans = {x.index: x for x in simulate(s, on).spans}
    overlaps = 0
    for i, x in enumerate(s.instructions):
        if isinstance(x, Offload) and x.residency.tensor not in program.outputs:
            beside = next(k for k in range(i, len(s.instructions)) if isinstance(s.instructions[k], Compute))
            after = next(k for k in range(beside + 1, len(s.instructions)) if isinstance(s.instructions[k], Compute))
            overlaps += spans[after].start < spans[i].end
    assert overlaps


def test_the_batch_is_not_copied_out_and_comes_twice():
    s = tight()
    (data,) = s.program.inputs
    assert not [x for x in s.instructions if isinstance(x, Offload) and x.residency.tensor == data]
    assert len([x for x in s.instructions if isinstance(x, Prefetch) and x.residency.tensor == data]) == 2
    # it is still among what vDNN copies
    v = arrange([chain(5)], "vdnn_all:m", costs()).schedules["TRAIN"]
    assert [x for x in v.instructions if isinstance(x, Offload) and x.residency.tensor.name == "data"]


def test_a_copy_back_is_awaited_at_its_first_use():
    s = tight()
    reads = {}
    for p, op in enumerate(s.program.ops):
        for t in op.reads:
            reads.setdefault(t, []).append(p)
    offloads = [
        offload for offload in s.plan.offloads if offload.prefetch_at is not None and offload.free_at is not None
    ]
    assert offloads
    for offload in offloads:
        assert offload.needed_at == min(p for p in reads[offload.tensor] if p >= offload.prefetch_at)


def test_alternate_takes_every_other_convolution():
    program = chain(5)
    leave = {offload.tensor.name for offload in find("vdnn_pp_alt:m")(program, costs(), 0).offloads}
    assert leave == {"data", "relu1.y", "relu3.y"}, "X of conv0, conv2 and conv4"


def test_listing():
    text = str(tight()) + "\n"
    file = GOLDEN / "vdnn_pp.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()
