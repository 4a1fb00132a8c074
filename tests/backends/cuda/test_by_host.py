"""Streams that the host runs, on cuda: a step waits for the host within a captured graph and without, no byte changes,
nothing races, and an error of the host ends the run."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import numpy as np
import pytest

import minidnn
from minidnn.backends.cuda import runtime
from minidnn.costs import Disk, Staging
from minidnn.memory.execution import binding
from minidnn.memory.execution.disk import DiskFailed
from minidnn.memory.schedule import BLOCK, Fetch, Stash, aligned
from tests.backends.cuda.test_device import STEPS, baseline, trained
from tests.support.cpu_step import feed, machine, persistent
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import fake_device
from tests.support.cuda.races import arranged, check_life, hunt, subject
from tests.support.cuda.recorder import lived, recording_device
from tests.support.paths import NET_FILES, SMALL_NETS
from tests.support.slow import quick_are

pytestmark = pytest.mark.extended
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


@compiled
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("net", quick_are(["residual"], RING))
def test_the_same_bytes_through_a_disk_in_any_legal_order(net, graphs, tmp_path):
    behind = Staging(aligned(RING[net], BLOCK), disk=Disk())
    for seed in range(2):
        device = fake_device(seed, graphs)
        got = trained(net, device, "vdnn_all:m", debug=True, staging=behind, disk=tmp_path)
        assert [n for n, want in baseline(net, "m").items() if got[n].tobytes() != want] == []
        assert sum(work.what == "host" for work in device.api.log) > 4


@compiled
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_read_that_fails_ends_a_run_with_the_state_before_its_step(number, tmp_path, monkeypatch):
    """Steps are replayed then, and end after their losses are known."""
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
    given = dict(base_lr=0.02, momentum=0.9, seed=3, data=data, policy="vdnn_all:m", host_ring=28672, disk=tmp_path)

    def ends(made: minidnn.Solver) -> dict[str, bytes]:
        return {name: value.tobytes() for name, value in made.values().items()}

    with minidnn.Solver(minidnn.load(NET_FILES / "residual.yaml"), device=fake_device(5), **given) as solver:
        solver.step(3)
        before, real, left = ends(solver), os.preadv, [number]

        def fails(*given):
            left[0] -= 1
            if not left[0]:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*given)

        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", fails)
            with pytest.raises(DiskFailed, match=r"a read of .* failed: Input/output error"):
                solver.step()
        assert ends(solver) == before and solver.iteration == 3
        solver.step()
        after = ends(solver)
    with minidnn.Solver(minidnn.load(NET_FILES / "residual.yaml"), device=fake_device(6), **given) as solver:
        solver.step(4)
        assert ends(solver) == after


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


@compiled
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("net", quick_are(["residual"], SMALL_NETS))
def test_the_same_bytes_where_the_host_updates_in_any_legal_order(net, graphs):
    for seed in range(2):
        device = fake_device(seed, graphs)
        got = trained(net, device, "zero_offload:m", debug=True)
        assert [n for n, want in baseline(net, "m").items() if got[n].tobytes() != want] == []
        assert device.api.replays == (STEPS - 2) * graphs
        assert sum(work.what == "host" for work in device.api.log)


@pytest.mark.parametrize("ahead", [False, True])
def test_updates_of_the_host_are_waited_for_and_nothing_races(ahead):
    device = recording_device()
    arrangement = arranged("residual", "zero_offload:m", device, ("TRAIN", "TEST"))
    assert arrangement.schedules["TRAIN"].plan.host_ops and not arrangement.schedules["TEST"].plan.host_ops
    with lived(arrangement, device, debug=True, ahead=ahead) as life:
        check_life(life)
    assert len(life.graphs) == 4


def test_every_lost_or_misplaced_wait_for_the_host_is_found():
    made = []
    for net, policy, ring in (
        ("inception", "vdnn_all:m", staging("inception", False)),
        ("lenet", "zero_offload:m", None),
    ):
        device = recording_device()
        with lived(arranged(net, policy, device, staging=ring), device) as life:
            made.append(subject(f"{net} {policy}", life, next(iter(life.graphs))))
    tally = hunt(made, 300)
    assert not tally.missed + tally.cried + tally.other
    assert tally.of("race") > 30


@compiled
@pytest.mark.parametrize(
    ("options", "bindings"),
    [
        (dict(type="Adam", momentum2=0.99), 4),
        (dict(type="AdamW", momentum2=0.99, iter_size=2, clip_gradients=0.5), 4),
        (dict(type="LARS"), 4),
        (dict(type="LAMB", momentum2=0.99), 2),  # which the host does not compute with the same bits
    ],
)
def test_a_solver_trains_with_early_inputs_and_goes_on_elsewhere(options, bindings, tmp_path):
    """The host reads the rate and the iteration where they are for this step, and the device elsewhere."""
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
    given = dict(base_lr=0.02, momentum=0.9, weight_decay=5e-4, lr_policy="step", gamma=0.5, stepsize=2, seed=3)
    given |= dict(data=data, snapshot_prefix=str(tmp_path / "run"), **options)

    def solver(policy: str, **more) -> minidnn.Solver:
        net = minidnn.load(NET_FILES / "lenet.yaml")
        return minidnn.Solver(net, policy=policy, device=fake_device(len(options)), **given, **more)

    def ends(made: minidnn.Solver) -> dict[str, bytes]:
        return {name: value.tobytes() for name, value in made.values().items()}

    with solver("liveness:m") as plain:
        losses = [step.loss for step in (plain.step() for _ in range(6))]
        want = ends(plain)
    with solver("zero_offload:m") as host_resident:
        assert len(host_resident.session.machine.loaded["TRAIN"].bound) == bindings
        assert [host_resident.step().loss for _ in range(3)] == losses[:3]
        path = host_resident.save().path
        assert [host_resident.step().loss for _ in range(3)] == losses[3:]
        assert ends(host_resident) == want
    with solver("vdnn_all:m", resume=path) as again:
        assert [again.step().loss for _ in range(3)] == losses[3:]
        assert ends(again) == want


class Full(OSError):
    pass


@compiled
@pytest.mark.parametrize("run", ["step", "trace", "check", "launch"])
def test_an_error_of_the_host_ends_the_run_and_the_next_run_is_well(run, monkeypatch):
    """It has failed at the first tensor of the third step, which is a replay unless it is timed or checked."""
    real, fails, calls = binding.np.copyto, False, []

    def copyto(to, source):
        calls.append(to)
        if fails:
            raise Full("no room")
        real(to, source)

    device = fake_device(1)
    steps: dict[str, Callable] = {
        "step": lambda m: m.step("TRAIN"), "trace": lambda m: m.step("TRAIN", trace=True),
        "check": lambda m: m.step("TRAIN", check=True),
        "launch": lambda m: (m.launch("TRAIN"), m.launch("TRAIN")),
    }  # fmt: skip
    kept = binding.Binder._stored
    monkeypatch.setattr(binding.Binder, "_stored", lambda self, s, x: binding.partial(copyto, *kept(self, s, x).args))
    with machine("residual", device, "vdnn_all:m", staging=staging("residual", False)) as m:
        for k in range(2):
            feed(m, k)
            m.step("TRAIN")
        before, fails, done = persistent(m), True, len(calls)
        with pytest.raises(Full, match="no room"):
            steps[run](m)
            m.settle()
        assert len(calls) == done + 1, "the host does nothing more in a run that has failed"
        assert not m.runtime.broken and not device.api.pending
        fails = False
        for name, value in before.items():
            t = next(t for t in m.persistent if t.name == name)
            m.set(t, value)
        for k in range(2, STEPS):
            feed(m, k)
            m.step("TRAIN")
        assert {n: v.tobytes() for n, v in persistent(m).items()} == baseline("residual", "m")


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
