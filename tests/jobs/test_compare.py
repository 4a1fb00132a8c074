"""Rows of a comparison, on programs made by hand: their sums, their order, what a refused policy shows."""

from dataclasses import replace
from itertools import chain as chain_of
from itertools import repeat
from typing import ClassVar

import numpy as np
import pytest

from minidnn.api.time import layer_rows
from minidnn.costs import Choice
from minidnn.jobs.compare import describe, paper_peak, simulated
from minidnn.measuring.load import Load
from minidnn.measuring.spread import Spread
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import Span, Trace
from minidnn.memory.moment import by_role
from minidnn.program import Role
from minidnn.results.policies import PolicyRow
from minidnn.training import comparison
from tests.support.policies import KINDS as POLICIES
from tests.support.programs import PROGRAMS, chain, costs

FIELDS = [
    "policy",
    "algorithms",
    "fits",
    "peak_bytes",
    "live_peak_bytes",
    "arena_bytes",
    "average_bytes",
    "offload_bytes",
    "prefetch_bytes",
    "input_bytes",
    "output_bytes",
    "host_bytes",
    "recomputed_ops",
    "step_seconds",
    "slowdown",
    "bound_seconds",
    "gap",
    "stall_seconds",
    "identical",
    "role_bytes",
]
WHOLE = {name for name in PolicyRow.model_fields if name.endswith("_bytes")} - {"average_bytes", "role_bytes"}
MOVING = ("vdnn_all", "vdnn_conv", "layrub", "superneurons_")  # whatever the budget
ROLES = ["weights", "weight_gradients", "optimizer_state", "feature_maps", "gradients", "extra", "workspace", "labels"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_add_up(name):
    program = PROGRAMS[name]()
    for result in simulated([program], POLICIES, costs()):
        row = result.row()
        assert list(row)[: len(FIELDS)] == FIELDS
        assert list(row["role_bytes"]) == ROLES
        assert sum(row["role_bytes"].values()) == row["live_peak_bytes"]
        assert row["live_peak_bytes"] <= row["arena_bytes"] == row["peak_bytes"]
        assert 0 < row["average_bytes"] <= row["live_peak_bytes"]
        assert row["fits"] and row["why"] is None and row["identical"] is None
        assert row["input_bytes"] == program.inputs[0].nbytes and row["output_bytes"] == 4
        assert all(isinstance(v, int) for k, v in row.items() if k in WHOLE and v is not None)
        again = program.inputs[0].nbytes if row["policy"] == "layrub:m" else 0  # the host still has the batch
        assert row["offload_bytes"] + again == row["prefetch_bytes"]
        assert (row["offload_bytes"] > 0) == row["policy"].startswith(MOVING)


def test_slowdown_is_against_baseline():
    results = simulated([chain()], ["baseline:m", "vdnn_all:m", "liveness:p"], costs(bandwidth=1e8))
    base, offloading, quick = results
    assert base.slowdown == 1.0 and base.trace.stall_seconds == pytest.approx(
        simulate(base.schedule, costs(bandwidth=1e8)).stall_seconds
    )
    assert offloading.slowdown > 1.2 and quick.slowdown < 1
    assert simulated([chain()], ["liveness:m"], costs())[0].slowdown is None


def test_with_a_budget_each_row_says_how_far_it_is_from_the_bound():
    policies = ["baseline:m", "vdnn_all:m", "best"]
    assert {r.row()["gap"] for r in simulated([chain()], policies, costs())} == {None}
    budget = simulated([chain()], ["baseline:m"], costs())[0].arrangement.arena * 2 // 3
    refused, lean, best = (r.row() for r in simulated([chain()], policies, costs(), budget))
    assert not refused["fits"] and refused["bound_seconds"] is refused["gap"] is None
    assert lean["bound_seconds"] == best["bound_seconds"] > 0
    assert -1e-9 <= best["gap"] < lean["gap"] == pytest.approx(lean["step_seconds"] / lean["bound_seconds"] - 1)


def test_a_refused_policy_keeps_its_row():
    free = {r.policy: r for r in simulated([chain()], ["baseline:m", "vdnn_all:m"], costs())}
    budget = free["vdnn_all:m"].arrangement.arena
    assert budget < free["baseline:m"].arrangement.arena
    base, lean = (r.row() for r in simulated([chain()], ["baseline:m", "vdnn_all:m"], costs(), budget))
    assert not base["fits"] and lean["fits"]
    assert "baseline:m needs" in base["why"] and "the budget is" in base["why"]
    assert base["peak_bytes"] == base["smallest_budget_bytes"] == free["baseline:m"].arrangement.arena
    assert base["role_bytes"] == free["baseline:m"].row()["role_bytes"]
    assert lean["slowdown"] is not None and lean["peak_bytes"] <= budget


def test_host_budget_refuses_with_the_numbers_of_the_device_budget():
    (row,) = (r.row() for r in simulated([chain()], ["vdnn_all:m"], costs(), None, 1000))
    assert not row["fits"] and "host budget" in row["why"] and row["offload_bytes"] > 0
    assert row["smallest_host_budget_bytes"] == row["host_bytes"] and row["smallest_budget_bytes"] is None


def test_a_refusal_tells_sizes_apart_that_differ_by_a_byte():
    (free,) = (r.arrangement for r in simulated([chain()], ["vdnn_all:m"], costs()))
    for limits, total in (((free.arena - 1, None), free.arena), ((None, free.host - 1), free.host)):
        (row,) = (r.row() for r in simulated([chain()], ["vdnn_all:m"], costs(), *limits))
        assert f" {total} bytes" in row["why"] and f"budget is {total - 1} bytes" in row["why"]


def test_roles_of_the_baseline_by_hand():
    """chain: 4 convolutions of 64 KiB in and out, ReLU in place, pool of 16 KiB, classifier of 4 KiB."""
    (result,) = simulated([chain()], ["baseline:m"], costs())
    roles = by_role(result.schedule)
    KiB = 1024
    assert roles["feature_maps"] == (64 + 4 * 64 + 16 + 4) * KiB + 4  # data, convolutions, pool, fc, the loss
    assert roles["gradients"] == 2 * 64 * KiB
    assert roles["weights"] == 4 * 64 * 4 + 4 * 4 and roles["workspace"] == 0


def test_paper_peak_counts_feature_layers_weights_only_for_vdnn():
    program = chain()
    everything = sum(t.nbytes for t in program.persistent if t.role is Role.PARAM)
    base, lean = simulated([program], ["baseline:m", "vdnn_all:m"], costs(), facts="vdnn2016")
    roles = by_role(base.schedule)
    assert paper_peak(base.schedule, "baseline:m") == roles["feature_maps"] + roles["gradients"] + everything
    maps = lean.schedule.curve(frozenset({Role.INPUT, Role.ACTIVATION, Role.GRADIENT})).max()
    assert lean.row()["paper_peak_bytes"] == maps + everything - 16  # fc.w has 4 values


def test_describe_counts_algorithms():
    (m,) = simulated([chain()], ["liveness:m"], costs())
    (p,) = simulated([chain()], ["liveness:p"], costs())
    assert "slow 11" in describe(m.schedule.plan.algorithm) and "fast 11" in describe(p.schedule.plan.algorithm)


# ---- real runs, with a machine that is not one


class Toy:
    """A runner whose every step adds one; its arrangement is real."""

    opened: ClassVar[list[tuple[str, object]]] = []

    def __init__(self, policy, c, budget, wrong=()):
        from minidnn.memory.planning import arrange

        self.arrangement = arrange([chain()], policy, c, budget)
        self.steps, self.wrong = 0, policy in wrong
        Toy.opened.append((policy, budget))

    def step(self, trace=False):
        self.steps += 1
        return Trace((Span(0, "compute", "a", 0.0, 1.0),), 1.0, 0.25, ((0.0, 5),)) if trace else None

    def values(self):
        return {"w": np.full(3, self.steps + self.wrong, np.float32)}

    def close(self):
        self.steps = -1


def ran(policies, wrong=(), **more):
    Toy.opened = []
    return {
        r.policy: r
        for r in comparison.ran(lambda p, c, b: Toy(p, c, b, wrong), [chain()], policies, costs(), steps=4, **more)
    }


def test_policies_are_compared_with_the_same_algorithms():
    results = ran(["baseline:m", "vdnn_all:m", "vdnn_all:p"], wrong=["vdnn_all:m"])
    assert [r.identical for r in results.values()] == [True, False, True]
    again = "baseline:p"  # once more, with what vdnn_all:p took
    assert [p for p, _ in Toy.opened] == ["baseline:m", "vdnn_all:m", "vdnn_all:p", again]
    assert results["baseline:m"].trace.stall_seconds == 0.25 and results["baseline:m"].seconds == 1, "the trace's"


def test_a_refused_baseline_is_still_the_reference():
    budget = simulated([chain()], ["vdnn_all:m"], costs())[0].arrangement.arena
    results = ran(["baseline:m", "vdnn_all:m"], budget=budget)
    assert not results["baseline:m"].fits and results["vdnn_all:m"].fits and results["vdnn_all:m"].identical
    assert Toy.opened[0] == ("baseline:m", results["baseline:m"].refused.smallest)
    assert Toy.opened[1] == ("vdnn_all:m", budget)


@pytest.mark.parametrize(("holds", "identical"), [(1, [True, True]), (0.99, [None, None])])
def test_a_device_that_cannot_hold_all_at_once_runs_one_after_the_other(holds, identical):
    """It has the memory for `holds` times a baseline, and says so when it is asked for more."""
    room = holds * simulated([chain()], ["baseline:m"], costs())[0].arrangement.arena
    alive: list[Toy] = []

    class Tight(Toy):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            if sum(t.arrangement.arena for t in [*alive, self]) > room:
                raise MemoryError("the arena takes more bytes than are free")
            alive.append(self)

        def close(self):
            alive.remove(self)
            super().close()

    policies = ["vdnn_all:p", "vdnn_all:m"] if holds < 1 else ["baseline:m", "vdnn_all:m"]
    found = comparison.ran(lambda p, c, b: Tight(p, c, b), [chain()], policies, costs(), steps=4)
    assert all(r.trace.spans and r.seconds == 1 for r in found) and not alive
    assert [r.identical for r in found] == identical


def test_what_this_machine_cannot_hold_is_simulated(monkeypatch):
    monkeypatch.setattr(comparison, "free_memory", lambda: 1000)
    results = ran(["baseline:m", "vdnn_all:m"])
    assert not Toy.opened and all(r.identical is None for r in results.values())
    assert results["vdnn_all:m"].slowdown is not None


def test_a_device_with_memory_of_its_own_takes_only_its_host_store_from_this_machine(monkeypatch):
    (baseline,) = simulated([chain()], ["baseline:m"], costs())
    monkeypatch.setattr(comparison, "free_memory", lambda: baseline.arrangement.arena)
    for own, opened in ((False, 0), (True, 1)):
        Toy.opened = []
        here = replace(costs(), own_memory=own)
        comparison.ran(lambda p, c, b: Toy(p, c, b, ()), [chain()], ["baseline:m"], here, steps=4)
        assert len(Toy.opened) == opened


class Clock:
    """A clock that only steps move: a Toy's step takes what `takes` says for its policy."""

    def __init__(self, monkeypatch, takes):
        self.now, self.takes = 0.0, takes
        monkeypatch.setattr(comparison, "perf_counter", lambda: self.now)
        monkeypatch.setattr(comparison.Load, "now", lambda: Load(self.now, 2.5 * self.now, self.now / 2))

    def toy(self, policy, c, budget):
        clock = self

        class Timed(Toy):
            def step(self, trace=False):
                super().step()
                seconds = next(clock.takes[policy])
                clock.now += seconds
                return Trace((), seconds, 0.0, ((0.0, 5),)) if trace else None

        return Timed(policy, c, budget)


def test_a_result_is_the_median_step_and_its_trace(monkeypatch):
    """Eight steps: one that warms up, seven that are timed."""
    clock = Clock(
        monkeypatch, {"baseline:m": iter([9, 1, 1, 2, 4, 1, 1, 1]), "liveness:m": iter([9, 2, 3, 4, 8, 7, 5, 6])}
    )
    base, other = comparison.ran(clock.toy, [chain()], ["baseline:m", "liveness:m"], costs(), steps=8)
    assert list(base.steps) == [1, 1, 2, 4, 1, 1, 1] and base.seconds == base.trace.seconds == 1
    assert other.seconds == other.trace.seconds == 5
    row = other.row()
    assert (row["slowdown"], row["slowdown_low"], row["slowdown_high"]) == (3, 2, 7)  # 2 3 2 2 7 5.5
    assert (row["timed_steps"], row["step_seconds_low"], row["step_seconds_high"]) == (7, 2, 8)
    assert row["other_processors"] == pytest.approx(2, abs=0.1)


def test_of_two_median_steps_the_quicker_is_shown(monkeypatch):
    clock = Clock(monkeypatch, {"baseline:p": repeat(1), "liveness:m": iter([9, 5, 2, 3, 8])})
    (result,) = comparison.ran(clock.toy, [chain()], ["liveness:m"], costs(), steps=5)
    assert result.seconds == result.trace.seconds == result.row()["step_seconds"] == 3


def test_where_a_trace_slows_steps_down_the_timed_ones_have_none(monkeypatch):
    """Eight steps on a device with memory of its own: one that warms up, four that are timed, three that are traced."""
    clock = Clock(monkeypatch, {"baseline:p": repeat(1), "liveness:m": iter([9, 2, 3, 4, 8, 70, 50, 60])})
    there = replace(costs(), own_memory=True)
    (result,) = comparison.ran(clock.toy, [chain()], ["liveness:m"], there, steps=8)
    assert list(result.steps) == [2, 3, 4, 8] and result.seconds == 3
    assert result.trace.seconds == 60


@pytest.mark.parametrize(("seconds", "steps"), [(0.001, 300), (0.25, 10), (10.0, 8)])
def test_the_shorter_the_steps_the_more_of_them(monkeypatch, seconds, steps):
    """A round that a busy machine makes a hundred times as long changes nothing."""
    taken = {p: chain_of([seconds, seconds, 100 * seconds], repeat(seconds)) for p in ("baseline:m", "liveness:m")}
    clock = Clock(monkeypatch, taken)
    base, other = comparison.ran(clock.toy, [chain()], ["baseline:m", "liveness:m"], costs())
    starts = 6 if steps == 300 else 1
    assert len(base.steps) == len(other.steps) == steps - starts and other.slowdowns == Spread(1, 1, 1)
    assert other.row()["starts"] == starts


def test_the_starts_of_a_comparison_are_the_independent_measurements_of_its_interval(monkeypatch):
    """Each start has its own time, and has to end with the same bytes."""
    taken = {"baseline:m": repeat(0.001), "liveness:m": chain_of(*(repeat(0.001 * k, 50) for k in (1, 2, 3, 4, 5, 6)))}
    clock = Clock(monkeypatch, taken)
    _, other = comparison.ran(clock.toy, [chain()], ["baseline:m", "liveness:m"], costs())
    assert other.slowdowns == Spread(3.5, 1, 6) and other.identical
    clock = Clock(monkeypatch, {p: repeat(0.001) for p in taken})

    def changed(policy, c, budget):
        toy = clock.toy(policy, c, budget)
        if policy == "liveness:m" and opened.append(1) is None and len(opened) == 4:
            toy.values = lambda: {"w": np.ones(3, np.float32)}
        return toy

    opened: list[int] = []
    _, other = comparison.ran(changed, [chain()], ["baseline:m", "liveness:m"], costs())
    assert len(opened) == 6 and other.identical is False


def test_forced_costs_leave_no_choice():
    (p,) = simulated([chain()], ["liveness:p"], costs())
    forced = comparison.restricted(costs(), p.arrangement)
    taken = {op.name: algorithm for op, algorithm in p.schedule.plan.algorithm.items()}
    for op in chain().ops:
        (choice,) = forced.choices(op)
        assert choice == Choice(taken[op.name], costs().seconds(op, taken[op.name]))


def test_digest_tells_bits_apart():
    a = {"w": np.array([0.0, np.nan], np.float32)}
    b = {"w": np.array([-0.0, np.nan], np.float32)}
    assert comparison.digest(a) == comparison.digest({"w": a["w"].copy()}) != comparison.digest(b)


def test_time_sums_phases_by_layer():
    (r,) = simulated([chain(1)], ["liveness:m"], costs())
    rows = {row["layer"]: row for row in layer_rows(r.schedule, [r.trace, r.trace, r.trace])}
    assert rows["conv0"]["forward_seconds"] == pytest.approx(2e-4)
    assert rows["conv0"]["backward_seconds"] == pytest.approx(2e-4) and rows["conv0"][
        "update_seconds"
    ] == pytest.approx(5e-5)
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1.0)
    assert list(rows)[:3] == ["conv0", "relu0", "pool"]
