"""Steps that are launched while the one before runs, on a CUDA of the host's memory (fake.py): the device has its
next step before it is done with this one, and nothing else is different: bytes, losses, files, and what goes wrong."""

from __future__ import annotations

import ctypes
import gc
import signal
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import minidnn
from minidnn.backends.cuda import api
from minidnn.backends.cuda.device import KernelFailed
from minidnn.backends.cuda.runtime import CudaRuntime
from minidnn.training.divergence import Diverged
from minidnn.training.events import Ended, Saved, Step
from tests.support.cpu_step import feed, machine, persistent
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import FakeApi, Illegal, fake_device
from tests.support.paths import NET_FILES
from tests.support.slow import quick_are

pytestmark = [
    pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with"),
    pytest.mark.extended,
]

STEPS = 7
LENET = NET_FILES / "lenet.yaml"


def outputs(m) -> dict[str, bytes]:
    return {t.name: m.read(t, "TRAIN").tobytes() for t in m.loaded["TRAIN"].schedule.program.outputs}


def one_by_one(m, steps: int = STEPS) -> tuple[list[dict[str, bytes]], dict[str, bytes]]:
    found = []
    for k in range(steps):
        feed(m, k)
        m.step("TRAIN")
        found.append(outputs(m))
    return found, {name: value.tobytes() for name, value in persistent(m).items()}


def ahead(m, steps: int = STEPS) -> tuple[list[dict[str, bytes]], dict[str, bytes]]:
    """As a training loop: the next batch is written once the step before has ended."""
    found = []
    for k in range(steps):
        m.launch("TRAIN", meanwhile=lambda k=k: feed(m, k + 1))
        found.append(outputs(m))
    return found, {name: value.tobytes() for name, value in persistent(m).items()}


@cache
def expected(net: str, policy: str) -> tuple[list[dict[str, bytes]], dict[str, bytes]]:
    with machine(net, fake_device(graphs=False), policy) as m:
        return one_by_one(m)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("policy", ["liveness:m", "vdnn_all:m"])
@pytest.mark.parametrize("net", quick_are(["lenet"], ["lenet", "residual", "inception"]))
def test_the_device_has_its_next_step_while_it_runs_and_the_bytes_are_the_same(net, policy, graphs):
    for seed in range(3 if graphs else 1):
        device = fake_device(seed, graphs)
        with machine(net, device, policy, debug=True) as m:
            assert ahead(m) == expected(net, policy)
        if graphs:
            assert len(device.api.busy) == device.api.replays == STEPS - 2
            assert all(device.api.busy), "each replay was enqueued before all that is before it had run"


def test_a_step_that_is_waited_for_leaves_nothing_to_do():
    device = fake_device()
    with machine("lenet", device, "vdnn_all:m") as m:
        one_by_one(m)
    assert len(device.api.busy) == STEPS - 2 and not any(device.api.busy), "else the test above would prove nothing"


def test_all_that_looks_at_the_machine_sees_the_step_done():
    want = expected("lenet", "vdnn_all:m")
    device = fake_device(5)
    with machine("lenet", device, "vdnn_all:m") as m:
        w = next(t for t in m.persistent if t.name == "conv1.w")
        for k in range(STEPS):
            m.launch("TRAIN", meanwhile=lambda k=k: feed(m, k + 1))
            assert device.api.pending
            if k % 3 == 1:
                m.set(w, m.get(w))
            elif k % 3 == 2:
                m.settle()
                assert not device.api.pending
        m.launch("TRAIN")
        feed(m, STEPS + 1)
        m.step("TRAIN")
        assert not device.api.pending
    with machine("lenet", fake_device(), "vdnn_all:m") as m:
        _, values = one_by_one(m, STEPS + 2)
        assert {n: v.tobytes() for n, v in persistent(m).items()} == values != want[1]
    with machine("lenet", fake_device(1), "vdnn_all:m") as m:
        ahead(m, 3)
        again = persistent(m)
    with machine("lenet", fake_device(2), "vdnn_all:m") as m:
        one_by_one(m, 3)
        assert {n: v.tobytes() for n, v in persistent(m).items()} == {n: v.tobytes() for n, v in again.items()}


def test_inputs_that_are_not_written_again_keep_their_values():
    def run(step) -> dict[str, bytes]:
        with machine("lenet", fake_device(3), "vdnn_all:m") as m:
            for k in range(4):
                step(m)
                data = next(t for t in m.loaded["TRAIN"].schedule.program.inputs if t.name == "data")
                if k % 2:
                    m.write(data, np.full(data.shape, k, np.float32), "TRAIN")
            return {name: value.tobytes() for name, value in persistent(m).items()}

    assert run(lambda m: m.launch("TRAIN")) == run(lambda m: m.step("TRAIN"))


def test_it_can_be_closed_with_a_step_in_flight():
    want = expected("lenet", "vdnn_all:m")
    device = fake_device(4)
    with machine("lenet", device, "vdnn_all:m") as m:
        for k in range(STEPS):
            m.launch("TRAIN", meanwhile=lambda k=k: feed(m, k + 1))
        assert device.api.pending
    assert not device.api.pending and not device.api.allocated and not device.api.events and not device.api.graphs
    assert {name: value.tobytes() for name, value in persistent(m).items()} == want[1]


# ---- what must not be left out


def test_a_batch_that_is_written_while_its_place_is_read_is_found(monkeypatch):
    launch = CudaRuntime.launch

    def early(self, prepared, meanwhile=None):
        if meanwhile is not None:
            meanwhile()
        launch(self, prepared)

    def rated(m, k):
        rate = next(t for t in m.loaded["TRAIN"].schedule.program.inputs if t.name == "rate")  # comes late in a step
        m.write(rate, np.full(rate.shape, 0.01 / (k + 1), np.float32), "TRAIN")

    def run():
        for seed in range(3):
            with machine("lenet", fake_device(seed), "vdnn_all:m") as m:
                for k in range(STEPS):
                    m.launch("TRAIN", meanwhile=lambda m=m, k=k: (feed(m, k + 1), rated(m, k)))
                    outputs(m)

    run()
    monkeypatch.setattr(CudaRuntime, "launch", early)
    with pytest.raises(KernelFailed, match="changed what a copy"):
        run()


def test_losses_that_are_read_before_they_are_there_are_others(monkeypatch):
    monkeypatch.setattr(CudaRuntime, "wait_for_outputs", lambda self: None)
    with machine("lenet", fake_device(), "vdnn_all:m") as m:
        assert ahead(m)[0] != expected("lenet", "vdnn_all:m")[0]


# ---- what goes wrong in flight


def illegal():
    raise RuntimeError("cudaErrorIllegalAddress")


@pytest.mark.parametrize("look", ["launch", "read", "get", "settle", "step", "close"])
def test_an_error_in_flight_is_raised_by_what_looks_next(look):
    device = fake_device()
    m = machine("lenet", device, "vdnn_all:m")
    ahead(m, 3)
    m.launch("TRAIN")
    device.api.enqueue(m.runtime.streams["compute"], illegal, "illegal")
    output = m.loaded["TRAIN"].schedule.program.outputs[0]
    looks = {
        "launch": lambda: m.launch("TRAIN"), "read": lambda: m.read(output, "TRAIN"), "settle": m.settle,
        "get": lambda: m.get(next(iter(m.persistent))), "step": lambda: m.step("TRAIN"), "close": m.close,
    }  # fmt: skip
    if look in ("launch", "read"):  # which wait for less than all: the error is known when it has happened
        monkey = device.api.reach
        device.api.reach = lambda event: (device.api.synchronize(m.runtime.streams["compute"]), monkey(event))
    with pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):
        looks[look]()
    assert m.runtime.broken
    m.close()
    assert device.api.allocated, "the device is left to the end of the process"


def test_a_launch_that_is_refused_names_its_op_and_leaves_a_device_that_can_be_used():
    device, refusing = fake_device(graphs=False), False
    execute = device.cudnn.execute

    def refuse(*arguments):
        if refusing:
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
        execute(*arguments)

    device.cudnn.execute = refuse
    with machine("lenet", device, "vdnn_all:m") as m:
        ahead(m, 2)
        m.launch("TRAIN")
        refusing = True
        with pytest.raises(KernelFailed, match=r"conv1\.forward \[eng0\] on cuda: CUDNN_STATUS_EXECUTION_FAILED"):
            m.launch("TRAIN")
        assert not device.api.pending and not m.runtime.broken
        refusing = False
        ahead(m, 2)
    assert all(np.isfinite(v).all() for v in persistent(m).values())
    assert not device.api.allocated and not device.api.events


def test_an_interrupt_while_it_waits_leaves_idle_streams(monkeypatch):
    device = fake_device()
    with machine("lenet", device, "vdnn_all:m") as m:
        ahead(m, 3)
        m.launch("TRAIN")

        def interrupted(event):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(device.api, "reach", interrupted)
            with pytest.raises(KeyboardInterrupt):
                m.launch("TRAIN")
        assert not device.api.pending and not m.runtime.broken
        ahead(m, 1)


# ---- training


def solver(tmp_path: Path, device, **options) -> minidnn.Solver:
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
    options = {"max_iter": 9, "snapshot": 4, "test_interval": 3, "iter_size": 1, "policy": "vdnn_all:m"} | options
    return minidnn.Solver(
        minidnn.load(LENET), device=device, seed=3, data=data, test_data=data, test_iter=2, base_lr=0.02,
        momentum=0.9, snapshot_prefix=str(tmp_path / "net"), **options,
    )  # fmt: skip


def told(events) -> list[tuple]:
    """What events say but seconds."""
    found = []
    for e in events:
        numbers = (e.loss, e.smoothed, e.rate, e.images) if isinstance(e, Step) else ()
        found.append((type(e).__name__, e.iteration, *numbers, dict(getattr(e, "outputs", {}))))
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def patiently(monkeypatch) -> None:
    """Each step is waited for."""
    monkeypatch.setattr(CudaRuntime, "launch", _patient(CudaRuntime.launch))


def _patient(launch):
    def both(self, prepared, meanwhile=None):
        launch(self, prepared, meanwhile)
        self.settle()

    return both


@pytest.mark.slow
@pytest.mark.parametrize("iter_size", [1, 2])
def test_a_run_is_the_same_ahead_or_not_and_so_is_one_that_goes_on(tmp_path, monkeypatch, iter_size):
    runs = {}
    for name in ("ahead", "patient"):
        device = fake_device(3)
        (tmp_path / name).mkdir()
        with monkeypatch.context() as patch:
            if name == "patient":
                patiently(patch)
            # Copies of double-buffered inputs, too, are work that a replay finds not done (test_early.py).
            with solver(tmp_path / name, device, iter_size=iter_size, early=False) as s:
                runs[name] = told(s.run()), {n: v.tobytes() for n, v in s.values().items()}
        assert any(device.api.busy) == (name == "ahead")
    assert runs["ahead"] == runs["patient"]
    assert files(tmp_path / "ahead") == files(tmp_path / "patient") and len(files(tmp_path / "ahead")) == 3
    (tmp_path / "on").mkdir()
    half = tmp_path / "ahead" / "net_iter_4.safetensors"
    with solver(tmp_path / "on", fake_device(9), iter_size=iter_size, resume=half) as s:
        rest = told(s.run())
        assert {n: v.tobytes() for n, v in s.values().items()} == runs["ahead"][1]
    assert rest[-1] == runs["ahead"][0][-1]
    assert [e for e in rest if e[0] == "Step"][-1][2] == [e for e in runs["ahead"][0] if e[0] == "Step"][-1][2]
    last = "net_iter_9.safetensors"
    assert files(tmp_path / "on")[last] == files(tmp_path / "ahead")[last]


def test_a_loss_that_is_not_finite_stops_at_its_iteration_with_the_state_before_it(tmp_path, monkeypatch):
    """The next step is launched when the loss is known, so it has not begun."""
    ends = []
    for patient in (False, True):
        device = fake_device(3)
        with monkeypatch.context() as patch:
            if patient:
                patiently(patch)
            with solver(tmp_path, device, snapshot=0, test_interval=0) as s:
                with pytest.raises(Diverged) as error:
                    for event in s.run():
                        if isinstance(event, Step) and event.iteration == 4:
                            before = s.values()
                            s.params["ip1"]["b"] = np.full_like(before["ip1/b"], 3e38)
                            s.params["ip1"]["w"] = np.full_like(before["ip1/w"], 3e38)
                            spoiled = s.values()
                ends.append((str(error.value), error.value.iteration, error.value.layer, s.iteration, s.position))
                after = s.values()
                assert {n: v.tobytes() for n, v in after.items()} == {n: v.tobytes() for n, v in spoiled.items()}
    assert ends[0] == ends[1]
    assert ends[0][1:] == (5, "ip1", 5, 5 * 6)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("default_handlers")
def test_ctrl_c_ends_with_a_snapshot_of_the_iteration_that_was_told(tmp_path):
    (tmp_path / "whole").mkdir(), (tmp_path / "broken").mkdir()
    with solver(tmp_path / "whole", fake_device(1)) as s:
        s.solve()
    events = []
    with solver(tmp_path / "broken", fake_device(2), snapshot=0) as s:
        for event in s.run():
            events.append(event)
            if isinstance(event, Step) and event.iteration == 5:
                signal.raise_signal(signal.SIGINT)
    assert [type(e) for e in events[-3:]] == [Step, Saved, Ended]
    assert events[-1].interrupted and events[-2].iteration == 6
    with solver(tmp_path / "broken", fake_device(3), snapshot=0, resume=events[-2].path) as s:
        s.solve()
    last = "net_iter_9.safetensors"
    assert files(tmp_path / "broken")[last] == files(tmp_path / "whole")[last]


def test_a_step_that_a_user_asks_for_has_ended(tmp_path):
    device = fake_device()
    with solver(tmp_path, device) as s:
        s.step(4)
        assert not device.api.pending and any(device.api.busy)
        assert s.step(trace=True).trace.spans and not device.api.pending


class TestTheFake:
    def test_an_event_for_the_host_is_recorded_by_each_replay(self):
        cuda, order = FakeApi(), []
        stream, event = cuda.stream(), cuda.event()
        cuda.begin_capture(stream)
        cuda.enqueue(stream, lambda: order.append("first"), "first")
        cuda.tell(event, stream)
        cuda.enqueue(stream, lambda: order.append("second"), "second")
        graph = cuda.end_capture(stream)
        with pytest.raises(Illegal, match="never recorded"):
            cuda.reach(event)
        for k in range(2):
            cuda.replay(graph, stream)
            cuda.reach(event)
            assert order == ["first", "second"] * k + ["first"]
            cuda.synchronize(stream)

    def test_an_event_of_a_capture_is_none_for_the_host(self):
        cuda = FakeApi()
        stream, event = cuda.stream(), cuda.event()
        cuda.begin_capture(stream)
        cuda.record(event, stream)
        cuda.end_capture(stream)
        with pytest.raises(Illegal, match="not for the host"):
            cuda.reach(event)


def test_an_event_for_the_host_is_a_node_of_the_graph_and_else_an_event(monkeypatch):
    """CUDA refuses the flag outside of a capture. A call of the host is a function that stays to be called again. None
    of these calls is CuPy's."""
    said, answer, called = [], 0, []

    def record(event, stream):
        said.append(("record", event, stream))
        return answer

    def with_flags(event, stream, flags):
        said.append(("external", event, stream, flags))
        return answer

    def launch(stream, function, data):
        said.append(("host", stream))
        called.append(ctypes.cast(function, ctypes.c_void_p).value)
        return answer

    def end(stream):
        raise RuntimeError("cudaErrorStreamCaptureInvalidated")

    runtime = SimpleNamespace(
        setDevice=lambda number: None, free=lambda address: None, streamCaptureModeRelaxed=2,
        eventSynchronize=lambda *a: said.append(("reach", *a)),
        streamBeginCapture=lambda *a: None, streamEndCapture=end,
    )  # fmt: skip
    cuda = SimpleNamespace(
        runtime=runtime, driver=None, set_allocator=lambda f: None, set_pinned_memory_allocator=lambda f: None
    )
    with_flags.argtypes = launch.argtypes = record.argtypes = ()
    driver = SimpleNamespace(cuEventRecord=record, cuEventRecordWithFlags=with_flags, cuLaunchHostFunc=launch)
    monkeypatch.setattr(api.ctypes, "CDLL", lambda name: {"libcuda.so.1": driver}[name])
    found = api.CupyApi(SimpleNamespace(cuda=cuda), lambda source, storage: b"")
    found.tell(7, 3)
    found.begin_capture(3)
    found.tell(7, 3)
    answer = 900
    with pytest.raises(RuntimeError, match="cuEventRecordWithFlags: CUDA error 900"):
        found.tell(8, 3)
    with pytest.raises(RuntimeError, match="Invalidated"):
        found.end_capture(3)
    with pytest.raises(RuntimeError, match="cuEventRecord: CUDA error 900"):
        found.record(8, 3)
    answer = 0
    found.tell(9, 3)
    found.reach(9)
    recorded = [("record", 7, 3), ("external", 7, 3, 1), ("external", 8, 3, 1), ("record", 8, 3), ("record", 9, 3)]
    assert said == [*recorded, ("reach", 9)]
    answer = 900
    enqueue = found.host(lambda: said.append("called"), 5)
    with pytest.raises(RuntimeError, match="cuLaunchHostFunc: CUDA error 900"):
        enqueue()
    answer = 0
    enqueue()
    gc.collect()
    for _ in range(2):
        api.HostFunction(called[-1])(None)
    assert said[-4:] == [("host", 5), ("host", 5), "called", "called"]


def test_a_run_whose_weights_live_on_the_host_ends_with_the_same_files(tmp_path):
    """TEST and sums of gradients find them there; and it goes on where they live on the device."""
    runs = {}
    for state in ("device", "all"):
        (tmp_path / state).mkdir()
        with solver(tmp_path / state, fake_device(3), iter_size=2, state=state) as s:
            runs[state] = told(s.run()), {n: v.tobytes() for n, v in s.values().items()}
            assert all(bool(p.host_resident) == (state == "all") for p in s.session.programs.values())
    assert runs["all"] == runs["device"]
    assert files(tmp_path / "all") == files(tmp_path / "device") and len(files(tmp_path / "all")) == 3
    (tmp_path / "on").mkdir()
    with solver(tmp_path / "on", fake_device(9), iter_size=2, resume=tmp_path / "all" / "net_iter_4.safetensors") as s:
        s.solve()
    assert files(tmp_path / "on")["net_iter_9.safetensors"] == files(tmp_path / "all")["net_iter_9.safetensors"]
