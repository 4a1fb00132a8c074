"""Peers: memory of other GPUs and machines that tensors leave for. Its plans are proved and simulated, never run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.cli.main import main
from minidnn.costs import Peer, Staging
from minidnn.errors import InvalidInput
from minidnn.memory.execution.machine import Machine
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Offload, PeerPlace, Prefetch, aligned
from tests.support.mixer import Mixer
from tests.support.oracle import broken
from tests.support.paths import NET_FILES
from tests.support.programs import PROGRAMS, chain, costs

KIB = 1024


def peer(kib, bandwidth=1e9, latency=0.0, title="a peer"):
    return Peer(kib * KIB, bandwidth, latency, title)


def planned(program, *peers, policy="vdnn_all:m", budget=None, **more):
    return arrange([program], policy, replace(costs(**more), peers=peers), budget)


def judged(s):
    """The oracle's verdict. It knows no peers, so their bytes lie behind the host's for it."""
    where, end = dict(s.host_offset), s.host_bytes
    for each in dict.fromkeys(place.peer for place in s.on_peer.values()):
        here = {t: place.at for t, place in s.on_peer.items() if place.peer is each}
        where |= {t: end + at for t, at in here.items()}
        end += sum(aligned(t.nbytes) for t in here)
    return broken(replace(s, host_offset=where, host_bytes=end, on_peer={}))


@pytest.mark.parametrize("policy", ["vdnn_all:m", "vdnn_conv:p", "layrub:m", "superneurons_offload:m"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_proved_and_what_lies_on_a_peer_takes_no_bytes_of_the_host(name, policy):
    program = PROGRAMS[name]()
    plain = arrange([program], policy, costs())
    a = planned(program, peer(130), peer(1 << 20), policy=policy)
    s = a.schedules["TRAIN"]
    assert judged(s) is None and s.on_peer and a.arena == plain.arena
    assert a.host + a.on_peers == plain.host
    assert not s.on_peer.keys() & {*program.inputs, *program.outputs}


def test_peers_are_filled_in_their_order_and_what_none_has_room_for_goes_to_the_host():
    first, second = peer(128), peer(64)
    s = planned(chain(8), first, second).schedules["TRAIN"]  # eight maps of 64 KiB
    places = list(s.on_peer.values())
    assert [place.peer for place in places] == [first, first, second]
    assert [place.at for place in places] == [0, 64 * KIB, 0]
    assert [t.name for t in s.on_peer] == ["relu7.y", "relu6.y", "relu5.y"], "those first that come back first"
    assert {"relu0.y", "relu4.y"} <= {t.name for t in s.host_offset}


def test_a_copy_takes_the_time_of_its_own_link():
    s = planned(chain(4), peer(64, bandwidth=64 * KIB / 5e-3, latency=1e-3)).schedules["TRAIN"]
    (there,) = s.on_peer
    for span in simulate(s, costs()).spans:
        x = s.instructions[span.index]
        if isinstance(x, (Offload, Prefetch)) and x.residency.tensor == there:
            assert span.end - span.start == pytest.approx(6e-3)
        elif isinstance(x, (Offload, Prefetch)) and x.residency.tensor.nbytes == there.nbytes:
            assert span.end - span.start < 1e-3


def test_a_quicker_peer_makes_a_step_no_slower_and_a_slower_one_no_quicker():
    program, slow = chain(6), dict(bandwidth=1e8)
    seconds = {
        rate: simulate(planned(program, peer(1 << 20, rate), **slow).schedules["TRAIN"], costs(**slow)).seconds
        for rate in (1e10, 1e8, 1e7)
    }
    assert seconds[1e10] < seconds[1e8] < seconds[1e7]


def test_a_ring_is_for_what_goes_to_the_host():
    program, on = chain(8), replace(costs(), staging=Staging(64 * KIB), peers=(peer(256),))
    s = arrange([program], "vdnn_all:m", on).schedules["TRAIN"]
    assert judged(s) is None and len(s.on_peer) == 4
    for x in s.instructions:
        if isinstance(x, (Offload, Prefetch)) and x.residency.tensor in s.on_peer:
            assert x.staging_slot is None


def test_no_bound_is_told_since_it_counts_the_link_to_the_host():
    program = PROGRAMS["residual"]()
    budget = int(0.7 * arrange([program], "liveness:m", costs()).arena)
    assert planned(program, peer(1 << 20, 1e12), policy="best", budget=budget).schedules["TRAIN"].plan.bound is None


def test_two_tensors_at_one_place_or_beyond_its_end_are_refused():
    s = planned(chain(8), peer(256)).schedules["TRAIN"]
    verify(s)
    first, *others = s.on_peer
    where = s.on_peer[first].peer
    for at, says in ((64 * KIB, "overlap on a peer"), (256 * KIB, "beyond the 262144 bytes on a peer")):
        with pytest.raises(ScheduleError, match=says):
            verify(replace(s, on_peer={**s.on_peer, first: PeerPlace(where, at)}))
    with pytest.raises(ScheduleError, match="has no place on the host"):
        verify(replace(s, on_peer={t: s.on_peer[t] for t in others}))


def test_such_a_plan_is_not_run():
    with pytest.raises(InvalidInput, match="simulated alone"):
        Machine(Mixer(), planned(chain(4), peer(256)))


def test_the_command_line(capsys):
    net = str(NET_FILES / "lenet.yaml")
    argv = ["plan", net, "--policy", "vdnn_all:m", "--budget", "1GiB", "--peer", "10GB,10us:1GiB"]
    assert main([*argv, "--gpu", "k40"]) == 0
    told = capsys.readouterr().out
    assert "of peers" in told and "no plan within the budget takes less" not in told
    assert main([*argv, "--gpu", "k40", "--listing"]) == 0
    assert "10 GB/s and 10 µs @0" in capsys.readouterr().out
    assert main(argv) == 2
    assert "a peer is simulated: name a card's profile" in capsys.readouterr().err
