"""The pinned ring and the store behind it: proved, judged by the oracle, run with late copies, and priced."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import numpy as np
import pytest

from minidnn.costs import Staging
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.machine import Machine
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Fetch, Offload, Prefetch, Stash, Wait
from tests.support.mixer import Mixer
from tests.support.mutate import mutate, without
from tests.support.oracle import broken
from tests.support.paths import GOLDEN
from tests.support.programs import PROGRAMS, chain, costs, random_graph

KIB = 1024
HOSTS = {"store", "load"}  # the streams that the host runs
POLICIES = ["vdnn_all:m", "vdnn_all:p", "vdnn_conv:m", "vdnn_pp:m"]


def staged(program, policy, ring, compress=False, budget=None, **more):
    on = replace(costs(**more), staging=Staging(ring, compress))
    return arrange([program], policy, on, budget)


def least(program):
    return arrange([program], "vdnn_all:m", costs()).arena


@pytest.mark.slow
@pytest.mark.parametrize("ring", [96, 160, 224, 1 << 20])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_proved_and_the_oracle_agrees(name, policy, ring):
    program = PROGRAMS[name]()
    budget = least(program) if policy == "vdnn_pp:m" else None
    s = staged(program, policy, ring * KIB, budget=budget).schedules["TRAIN"]
    assert broken(s) is None
    assert s.ring <= ring * KIB and s.arena == arrange([program], policy, costs(), budget).arena


@pytest.mark.parametrize("seed", range(16))
def test_any_graph_is_proved(seed):
    program = random_graph(seed, 14)
    for ring in (64, 100, 200):
        assert broken(staged(program, "vdnn_all:m", ring * KIB).schedules["TRAIN"]) is None


def train(program, policy, staging, budget=None, **options):
    arrangement = arrange([program], policy, replace(costs(), staging=staging), budget)
    with Machine(Mixer(), arrangement, **options) as m:
        for t in program.persistent:
            m.set(t, np.full(t.shape, 0.5, np.float32))
        for k in range(3):
            (data,) = program.inputs
            m.write(data, np.arange(data.size, dtype=np.float32).reshape(data.shape) + k, "TRAIN")
            trace = m.step("TRAIN", trace=k == 2)
        out = {t.name: m.get(t).tobytes() for t in program.persistent}
        out["loss"] = m.read(program.outputs[0], "TRAIN").tobytes()
    return out, trace, arrangement


@pytest.mark.slow
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_bytes_with_poison_and_late_copies(name, policy, compress):
    program = PROGRAMS[name]()
    want, _, _ = train(program, "baseline:m", None)
    budget = least(program) if policy == "vdnn_pp:m" else None
    staging = Staging(100 * KIB, compress)
    got, _, _ = train(program, policy, staging, budget, debug=True, delays=1e-3, seed=len(name))
    assert got == want


def test_the_machine_and_the_simulator_run_the_same():
    _, real, arrangement = train(PROGRAMS["inception"](), "vdnn_all:m", Staging(100 * KIB))
    simulated = simulate(arrangement.schedules["TRAIN"], costs())
    assert [(s.index, s.stream, s.name) for s in real.spans] == [(s.index, s.stream, s.name) for s in simulated.spans]
    assert min(sum(s.stream == host for s in real.spans) for host in HOSTS) > 4


def test_a_ring_for_one_tensor_will_do_and_a_smaller_one_is_refused_with_what_would():
    program = chain(5)
    s = staged(program, "vdnn_all:m", 64 * KIB).schedules["TRAIN"]
    assert s.ring == 64 * KIB and s.store_bytes == 4 * 64 * KIB  # relu0.y to relu3.y: relu4.y is still in the ring
    with pytest.raises(BudgetError, match="smallest ring that it can use is 64") as refused:
        staged(program, "vdnn_all:m", 64 * KIB - 1)
    assert refused.value.host and refused.value.smallest == 64 * KIB


def test_a_ring_for_all_that_travels_is_vdnns_pinned_memory():
    program = PROGRAMS["inception"]()
    plain = arrange([program], "vdnn_all:m", costs())
    a = staged(program, "vdnn_all:m", 1 << 30)
    s = a.schedules["TRAIN"]
    assert not [x for x in s.instructions if isinstance(x, (Stash, Fetch))] and a.store == 0
    assert a.host == plain.host
    assert simulate(s, costs()).seconds == simulate(plain.schedules["TRAIN"], costs()).seconds
    assert len(s.instructions) == len(plain.schedules["TRAIN"].instructions)


def test_a_small_ring_pins_less_and_the_rest_is_pageable():
    program = chain(8)
    plain = arrange([program], "vdnn_all:m", costs())
    a = staged(program, "vdnn_all:m", 128 * KIB)
    assert a.host == plain.host - (8 - 2) * 64 * KIB  # what relu0.y to relu7.y took, less the ring
    assert a.ring == 128 * KIB and a.store == (8 - 2) * 64 * KIB  # the last two are still there


def test_host_budget_counts_both():
    program = chain(8)
    a = staged(program, "vdnn_all:m", 128 * KIB)
    on = replace(costs(), staging=Staging(128 * KIB))
    arrange([program], "vdnn_all:m", on, None, a.host + a.store)
    with pytest.raises(BudgetError) as refused:
        arrange([program], "vdnn_all:m", on, None, a.host + a.store - 1)
    assert refused.value.smallest == a.host + a.store


def test_a_timeline_by_hand():
    """Two maps of 64 KiB and a ring of 64 KiB: the second may leave only once the first is stashed."""
    program = chain(4)
    rate = 64 * KIB / 1e-3  # a millisecond each
    on = replace(costs(bandwidth=rate), staging=Staging(64 * KIB, copy_rate=rate / 2))
    s = arrange([program], "vdnn_all:m", on).schedules["TRAIN"]
    at = {(type(s.instructions[x.index]), x.name): x for x in simulate(s, on).spans}
    first, stash, second = at[Offload, "relu0.y"], at[Stash, "relu0.y"], at[Offload, "relu1.y"]
    assert stash.start == pytest.approx(first.end) and stash.end == pytest.approx(first.end + 2e-3)
    assert second.start == pytest.approx(stash.end)
    fetch, back = at[Fetch, "relu0.y"], at[Prefetch, "relu0.y"]
    assert fetch.end <= back.start + 1e-12 and fetch.end - fetch.start == pytest.approx(2e-3)


def test_fetches_run_ahead_as_far_as_the_ring_has_room():
    def ahead(ring):
        s = staged(chain(8), "vdnn_all:m", ring * KIB).schedules["TRAIN"]
        fetched, most = set(), 0
        for x in s.instructions:
            if isinstance(x, Fetch):
                fetched.add(x.staging_slot)
            elif isinstance(x, Prefetch):
                fetched.discard(x.staging_slot)
            most = max(most, len(fetched))
        return most

    assert [ahead(64), ahead(128), ahead(256)] == [1, 2, 4]


def test_dropping_any_stash_or_fetch_is_refused():
    s = staged(chain(6), "vdnn_all:m", 100 * KIB).schedules["TRAIN"]
    dropped = 0
    for i, x in enumerate(s.instructions):
        if isinstance(x, (Stash, Fetch)):
            dropped += 1
            with pytest.raises(ScheduleError):
                verify(without(s, i))
    assert dropped >= 8


@pytest.mark.slow
def test_random_mutations_that_break_a_staged_schedule_are_all_refused():
    """Also of where staging slots lie; the oracle knows nothing of how the ring is taken."""
    r = random.Random(4)
    schedules = [
        staged(make(), "vdnn_all:m", ring * KIB).schedules["TRAIN"] for make in PROGRAMS.values() for ring in (96, 130)
    ]
    caught, missed = 0, []
    while caught < 500:
        s = r.choice(schedules)
        m = mutate(s, r) if r.random() < 0.5 else shifted(s, r)
        if broken(m) is None:
            continue
        try:
            verify(m)
            missed.append(broken(m))
        except ScheduleError:
            caught += 1
        assert not missed


def shifted(s, r):
    """A staging slot somewhere else, for all who use it or only for one of them; or a wait of the host's streams
    gone."""
    slots = [i for i, x in enumerate(s.instructions) if getattr(x, "staging_slot", None) is not None]
    waits = [i for i, x in enumerate(s.instructions) if isinstance(x, Wait) and HOSTS & {
        x.stream, getattr(s.instructions[x.on], "stream", None)}]  # fmt: skip
    if waits and r.random() < 0.4:
        return without(s, r.choice(waits))
    slot = s.instructions[r.choice(slots)].staging_slot
    moved = replace(slot, at=slot.at + 256 * r.choice([-200, -16, -1, 1, 16, 200]))
    users = [i for i in slots if s.instructions[i].staging_slot is slot]
    users = users if r.random() < 0.5 else [r.choice(users)]
    xs = list(s.instructions)
    for i in users:
        xs[i] = replace(xs[i], staging_slot=moved)
    return replace(s, instructions=tuple(xs))


def test_listing():
    text = str(staged(chain(4), "vdnn_all:m", 128 * KIB).schedules["TRAIN"]) + "\n"
    file = GOLDEN / "vdnn_all_ring.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()
