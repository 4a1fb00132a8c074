"""A disk behind the host's memory: what lies there, proved, judged by the oracle, run with late copies, and priced."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from minidnn.costs import Disk, Staging
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.disk import NoDisk
from minidnn.memory.execution.machine import Machine
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import BLOCK, Fetch, Stash, Wait, aligned, changing
from tests.support.mixer import Mixer
from tests.support.mutate import mutate, without
from tests.support.oracle import broken
from tests.support.programs import PROGRAMS, chain, costs, random_graph
from tests.support.slow import quick_are

KIB = 1024
DISK = Staging(100 * KIB, disk=Disk())


def arranged(program, host_budget=None, staging=DISK, policy="vdnn_all:m", **more):
    return arrange([program], policy, replace(costs(**more), staging=staging), host_budget=host_budget)


def train(program, arrangement, disk=None, **options):
    with Machine(Mixer(), arrangement, disk=disk, **options) as m:
        for t in program.persistent:
            m.set(t, np.full(t.shape, 0.5, np.float32))
        for k in range(3):
            (data,) = program.inputs
            m.write(data, np.arange(data.size, dtype=np.float32).reshape(data.shape) + k, "TRAIN")
            m.step("TRAIN")
        out = {t.name: m.get(t).tobytes() for t in program.persistent}
        out["loss"] = m.read(program.outputs[0], "TRAIN").tobytes()
    return out


@pytest.mark.parametrize("name", quick_are(["chain", "inception"], PROGRAMS))
@pytest.mark.parametrize("policy", quick_are(["vdnn_all:m"], ["vdnn_all:m", "vdnn_conv:p", "superneurons"]))
def test_the_same_bytes_through_a_disk_with_poison_and_late_copies(name, policy, tmp_path):
    program = PROGRAMS[name]()
    want = train(program, arrange([program], "baseline:m" if policy[-1] != "p" else "baseline:p", costs()))
    all_there = arranged(program, policy=policy)
    some = arranged(program, all_there.off_device + 2 * 64 * KIB, policy=policy)
    for arrangement in (all_there, some):
        assert broken(arrangement.schedules["TRAIN"]) is None
        assert train(program, arrangement, tmp_path, debug=True, delays=1e-3, seed=len(name)) == want
        assert not list(tmp_path.iterdir())
    assert some.disk < all_there.disk or not all_there.disk


def test_what_lies_in_memory_may_be_packed_and_what_lies_on_the_disk_is_not(tmp_path):
    program, packed = chain(8), replace(DISK, compress=True)
    want = train(program, arrange([program], "baseline:m", costs()))
    bare = arranged(program, staging=packed)
    some = arranged(program, bare.off_device + 3 * 65 * KIB, packed)
    s = some.schedules["TRAIN"]
    assert len(s.store_offset) == 3 and some.disk == bare.disk - 3 * 64 * KIB
    assert some.store == 3 * (64 * KIB + 256)  # with room for headers
    assert train(program, some, tmp_path, debug=True, delays=5e-4) == want


def test_memory_is_filled_first_with_what_is_away_for_the_shortest_time():
    program = chain(8)
    bare = arranged(program)
    assert bare.store == 0 and bare.disk == 7 * 64 * KIB and bare.host % BLOCK == 0
    undo = aligned(sum(t.nbytes for t in changing(program)), BLOCK)
    assert bare.undo == undo and bare.off_device == bare.host and bare.on_disk == bare.disk + undo
    some = arranged(program, bare.off_device + 3 * 64 * KIB + 255)
    s = some.schedules["TRAIN"]
    assert [t.name for t in s.store_offset] == ["relu6.y", "relu5.y", "relu4.y"]
    assert {t.name for t in s.disk_offset} == {"relu0.y", "relu1.y", "relu2.y", "relu3.y"}
    assert some.off_device <= bare.off_device + 3 * 64 * KIB
    enough = arranged(program, bare.off_device + bare.disk)  # without a disk nothing need be kept to go back
    assert (enough.disk, enough.undo, enough.store) == (0, 0, bare.disk)
    with pytest.raises(BudgetError, match=f"smallest host budget vdnn_all:m can keep is {bare.off_device} bytes"):
        arranged(program, bare.off_device - 1)


def test_more_than_the_disks_size_is_refused_with_what_would_do():
    program = chain(8)
    need = arranged(program)
    assert arranged(program, staging=replace(DISK, disk=Disk(need.on_disk))).disk == need.disk
    with pytest.raises(BudgetError, match=f"give {need.on_disk} bytes there") as refused:
        arranged(program, staging=replace(DISK, disk=Disk(need.on_disk - 1)))
    assert refused.value.smallest == need.on_disk
    budget = int(str(refused.value).split("a host budget of ")[1].split()[0])
    less = replace(DISK, disk=Disk(need.on_disk - 1))
    assert arranged(program, budget, staging=less).disk == need.disk - 64 * KIB
    with pytest.raises(BudgetError):
        arranged(program, budget - BLOCK, staging=less)


def test_a_ring_that_nobody_gave_a_size_holds_four_of_the_largest():
    a = arranged(chain(12), staging=Staging(0, disk=Disk()))
    assert a.ring == 4 * 64 * KIB and a.disk == 8 * 64 * KIB


def test_a_machine_wants_to_know_where_the_disk_is():
    with pytest.raises(NoDisk, match="name a folder on it, disk=PATH"):
        Machine(Mixer(), arranged(chain(8)))


def test_staging_slots_are_of_whole_blocks_where_there_is_a_disk():
    s = arranged(random_graph(3, 14)).schedules["TRAIN"]
    slots = [x.staging_slot for x in s.instructions if isinstance(x, (Stash, Fetch))]
    assert slots and all(slot.at % BLOCK == slot.nbytes % BLOCK == 0 for slot in slots)


@pytest.mark.parametrize("seed", quick_are(range(4), range(16)))
def test_any_graph_is_proved(seed):
    program = random_graph(seed, 14)
    for ring in (100, 200):
        whole = arranged(program, staging=Staging(ring * KIB, disk=Disk()))
        assert broken(whole.schedules["TRAIN"]) is None
        some = arranged(program, whole.off_device + whole.disk // 2, Staging(ring * KIB, disk=Disk()))
        assert broken(some.schedules["TRAIN"]) is None


def test_no_wait_of_the_stream_that_fetches_can_be_dropped():
    s = arranged(chain(6)).schedules["TRAIN"]
    waits = [i for i, x in enumerate(s.instructions) if isinstance(x, Wait) and x.stream == "load"]
    assert len(waits) >= 3
    for i in waits:
        with pytest.raises(ScheduleError):
            verify(without(s, i))
        assert broken(without(s, i)) is not None


def test_a_fetch_beside_the_stash_of_its_tensor_is_refused():
    """The ring has room for the fetch at once, so no staging slot's former user comes between."""
    s = arranged(chain(6)).schedules["TRAIN"]
    for i in reversed([i for i, x in enumerate(s.instructions) if isinstance(x, Wait) and x.stream == "load"]):
        s = without(s, i)
    first = next(i for i, x in enumerate(s.instructions) if isinstance(x, Fetch))
    far = replace(s.instructions[first].staging_slot, at=s.ring)
    xs = list(s.instructions)
    xs[first] = replace(xs[first], staging_slot=far)
    with pytest.raises(ScheduleError, match=f"the store's copy of {far.tensor.name} races"):
        verify(replace(s, instructions=tuple(xs), ring=s.ring + far.nbytes))


def test_wrong_places_on_the_disk_are_refused():
    s = arranged(chain(6)).schedules["TRAIN"]
    (a, at), (b, _), *_ = s.disk_offset.items()

    def refused(match, **fields):
        with pytest.raises(ScheduleError, match=match):
            verify(replace(s, **fields))

    refused("relu3.y and relu4.y overlap on the disk", disk_offset={**s.disk_offset, b: at})
    refused("not at a multiple of 4096", disk_offset={**s.disk_offset, a: at + 256})
    refused("ends beyond", disk_bytes=s.disk_bytes - BLOCK)
    refused("a place in the store and one on the disk", store_offset={a: 0}, store_bytes=a.nbytes)
    refused("has no place in the store", disk_offset={t: o for t, o in s.disk_offset.items() if t != a})
    slots = [
        i
        for i, x in enumerate(s.instructions)
        if getattr(x, "staging_slot", None) is not None and x.staging_slot.tensor == a
    ]
    xs = list(s.instructions)
    moved = replace(xs[slots[0]].staging_slot, at=xs[slots[0]].staging_slot.at + 256)
    for i in slots[:2]:
        xs[i] = replace(xs[i], staging_slot=moved)
    refused("its staging slot is not of blocks|beyond|of a ring of", instructions=tuple(xs))


@pytest.mark.slow
def test_random_mutations_that_break_a_schedule_with_a_disk_are_all_refused():
    r = random.Random(5)
    schedules = []
    for make in PROGRAMS.values():
        whole = arranged(make())
        schedules += [whole.schedules["TRAIN"], arranged(make(), whole.off_device + whole.disk // 2).schedules["TRAIN"]]
    caught, tried = 0, 0
    while caught < 400:
        tried += 1
        s = r.choice(schedules)
        m = mutate(s, r) if r.random() < 0.4 else host_side(s, r)
        wrong = broken(m)
        if wrong is None:
            continue
        with pytest.raises(ScheduleError):
            verify(m)
        caught += 1
    assert tried < 2000


def host_side(s, r):
    """A change of what the host does: a wait gone, a staging slot or a place on the disk elsewhere, a stream
    exchanged."""
    kind = r.choice(["wait", "leg", "place", "stream"])
    hosts = {"store", "load"}
    if kind == "wait":
        found = [
            i for i, x in enumerate(s.instructions)
            if isinstance(x, Wait) and hosts & {x.stream, getattr(s.instructions[x.on], "stream", None)}
        ]  # fmt: skip
        return without(s, r.choice(found)) if found else s
    if kind == "place":
        if not s.disk_offset:
            return s
        t = r.choice(list(s.disk_offset))
        return replace(s, disk_offset={**s.disk_offset, t: s.disk_offset[t] + r.choice([-16, -1, 1, 16]) * BLOCK})
    xs = list(s.instructions)
    at = [i for i, x in enumerate(xs) if isinstance(x, (Stash, Fetch))]
    if not at:
        return s
    i = r.choice(at)
    if kind == "stream":
        xs[i] = replace(xs[i], stream=r.choice(["store", "load", "in"]))
    else:
        xs[i] = replace(
            xs[i],
            staging_slot=replace(xs[i].staging_slot, at=xs[i].staging_slot.at + r.choice([-16, -1, 1, 16]) * BLOCK),
        )
    return replace(s, instructions=tuple(xs))


def test_a_timeline_by_hand():
    """A disk that writes a map in 3 ms and reads it in 5 ms: stashes follow each other, and so do fetches."""
    map_ = 64 * KIB
    staging = Staging(2 * map_, disk=Disk(None, map_ / 3e-3, map_ / 5e-3))
    on = replace(costs(bandwidth=map_ / 1e-3), staging=staging)
    s = arrange([chain(6)], "vdnn_all:m", on).schedules["TRAIN"]
    spans = [(type(s.instructions[x.index]), x.stream, x.end - x.start) for x in simulate(s, on).spans]
    assert {(stream, round(t, 9)) for kind, stream, t in spans if kind is Stash} == {("store", 3e-3)}
    assert {(stream, round(t, 9)) for kind, stream, t in spans if kind is Fetch} == {("load", 5e-3)}
    assert on.sustained.bandwidth_out == pytest.approx(map_ / 3e-3)
    assert on.sustained.bandwidth_in == pytest.approx(map_ / 5e-3)
    memory = replace(on, staging=Staging(2 * map_))
    assert memory.sustained is memory


def test_where_the_host_has_room_for_all_that_leaves_a_slow_disk_costs_nothing():
    program, device = chain(), costs(bandwidth=2e9)
    slow = Staging(100 * KIB, disk=Disk(write_rate=1e6, read_rate=1e6))
    budget = arrange([program], "liveness", device).arena * 6 // 10

    def planned(staging, room):
        made = arrange([program], "best", replace(device, staging=staging), budget, room)
        return made, simulate(made.schedules["TRAIN"], replace(device, staging=staging)).seconds

    room = 4 * planned(replace(slow, disk=None), None)[0].off_device
    without, seconds = planned(replace(slow, disk=None), room)
    beside, same = planned(slow, room)
    assert without.off_device > sum(t.nbytes for t in program.inputs + program.outputs)  # it copies
    assert same == pytest.approx(seconds) and not beside.on_disk
