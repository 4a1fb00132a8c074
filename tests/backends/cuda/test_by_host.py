"""Streams that the host runs, on cuda: a step waits for the host within a captured graph and without, no byte changes,
nothing races, and an error of the host ends the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minidnn.backends.cuda import runtime
from minidnn.costs import Staging
from minidnn.memory.execution import machine as executor
from minidnn.memory.schedule import Fetch, Stash
from tests.backends.cuda.test_device import STEPS, baseline, trained
from tests.support.cpu_step import carried, feed, machine
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import fake_device
from tests.support.cuda.races import arranged, check_life, hunt, subject
from tests.support.cuda.recorder import lived, recording_device
from tests.support.slow import quick_are

compiled = pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")
RING = {"residual": 27648, "inception": 48384, "activations": 27648}


def staging(net: str, compress: bool) -> Staging:
    return Staging(RING[net], compress)


@compiled
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("net", quick_are(["residual"], RING))
def test_the_same_bytes_through_a_small_ring_in_any_legal_order(net, graphs, compress):
    for seed in range(2):
        device = fake_device(seed, graphs)
        got = trained(net, device, "vdnn_all:m", debug=True, staging=staging(net, compress))
        assert [n for n, want in baseline(net, "m").items() if got[n].tobytes() != want] == []
        assert device.api.replays == (STEPS - 2) * graphs
        assert sum(work.what == "host" for work in device.api.log) > 4


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("compress", [False, True])
def test_the_host_is_waited_for_and_nothing_races(compress, ahead):
    """Timed and checked steps, too."""
    device = recording_device()
    arrangement = arranged("residual", "vdnn_all:m", device, ("TRAIN", "TEST"), staging=staging("residual", compress))
    assert sum(isinstance(x, (Stash, Fetch)) for x in arrangement.schedules["TRAIN"].instructions) > 4
    with lived(arrangement, device, debug=True, ahead=ahead) as life:
        check_life(life)
    assert len(life.graphs) == 4


@pytest.mark.parametrize("count", quick_are([150], [150, 3000]))
def test_every_lost_or_misplaced_wait_for_the_host_is_found(count):
    made = []
    for net in list(RING)[: 1 if count < 1000 else None]:
        device = recording_device()
        with lived(arranged(net, "vdnn_all:m", device, staging=staging(net, False)), device) as life:
            made += [subject(f"{net} {key}", life, key) for key in life.graphs]
    tally = hunt(made, count)
    assert not tally.missed + tally.cried + tally.other
    assert tally.of("race") > count / 10


class Full(OSError):
    pass


@compiled
@pytest.mark.parametrize("run", ["step", "trace", "check", "launch"])
def test_an_error_of_the_host_ends_the_run_and_the_next_run_is_well(run, monkeypatch):
    """It has failed at the first tensor of the third step, which is a replay unless it is timed or checked."""
    real, fails, calls = executor.np.copyto, False, []

    def copyto(to, source):
        calls.append(to)
        if fails:
            raise Full("no room")
        real(to, source)

    device = fake_device(1)
    steps: dict[str, Callable] = {
        "step": lambda m: m.step(), "trace": lambda m: m.step(trace=True), "check": lambda m: m.step(check=True),
        "launch": lambda m: (m.launch(), m.launch()),
    }  # fmt: skip
    kept = executor.Machine._stored
    monkeypatch.setattr(
        executor.Machine, "_stored", lambda self, s, x: executor.partial(copyto, *kept(self, s, x).args)
    )
    with machine("residual", device, "vdnn_all:m", staging=staging("residual", False)) as m:
        for k in range(2):
            feed(m, k)
            m.step()
        before, fails, done = carried(m), True, len(calls)
        with pytest.raises(Full, match="no room"):
            steps[run](m)
            m.settle()
        assert len(calls) == done + 1, "the host does nothing more in a run that has failed"
        assert not m.runtime.broken and not device.api.pending
        fails = False
        for name, value in before.items():
            t = next(t for t in m.homes if t.name == name)
            m.set(t, value)
        for k in range(2, STEPS):
            feed(m, k)
            m.step()
        assert {n: v.tobytes() for n, v in carried(m).items()} == baseline("residual", "m")


@compiled
def test_few_calls_are_enqueued_behind_one_of_the_host(monkeypatch):
    """Where steps run call by call: CUDA may have no room for more, and wait with Python's lock."""
    monkeypatch.setattr(runtime, "BEHIND", 10)
    device = fake_device(0, graphs=False)
    with machine("residual", device, "vdnn_all:m", staging=staging("residual", False)) as m:
        m.runtime.launch(m.loaded["TRAIN"].bound[0, 0])
        first = next(k for k, work in enumerate(device.api.log) if work.what == "host")
        unfinished = [k for k, work in enumerate(device.api.log) if work.what == "host" and not work.done]
        assert device.api.log[first].done and all(len(device.api.log) - k < 40 for k in unfinished)
