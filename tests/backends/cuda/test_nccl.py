"""Several ranks on GPUs end with the bytes of one, in any order that CUDA and NCCL allow; and a lost rank is told.

The GPUs and NCCL are those of tests/support/cuda: what only GPUs can show is in benchmarks/gpu_check."""

from __future__ import annotations

import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from minidnn.backends.cuda import api, packages
from minidnn.costs import estimate
from minidnn.costs.net import LINK, among
from minidnn.memory.planning import arrange
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import Role
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.ranks.engine import RankLost
from minidnn.ranks.launched import Launch
from minidnn.ranks.nccl import Nccl, OneGpu
from minidnn.ranks.threads import Group
from minidnn.training.solver import Solver
from tests.ranks.test_machines import NET as SMALL
from tests.ranks.test_machines import Rank, whole
from tests.ranks.test_solvers import NET, SOLVER, files
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import Illegal, Machine, fake_device
from tests.support.cuda.nccl import FakeNccl
from tests.support.cuda.races import check_life, hunt, subject
from tests.support.cuda.ranks import on_gpus
from tests.support.cuda.recorder import lived, recording_device

pytestmark = [
    pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++"),
    pytest.mark.extended,
]

STEPS = 5


def trained(ranks, each, policy="liveness", seed=0, graphs=True, **options):
    """Each rank's bytes after some iterations, and how many replays of graphs it has made."""

    def body(rank, device, engine):
        one = Rank(ranks, rank, each, policy, device, engine, **options).train(STEPS)
        values = one.values()
        one.machine.close()
        engine.close()
        return values, device.api.replays

    return on_gpus(ranks, body, seed, graphs=graphs)


def agree(alone, parts):
    """That all ranks together have the bytes of the one alone."""
    roles = {t.name: t.role for t in alone.machine.persistent}
    compared = 0
    for name, values in alone.values().items():
        learned, momentum, _ = name.partition(".momentum")
        shard = f"{learned}.shard{momentum}"
        if shard in parts[0]:
            assert whole(parts, shard)[: values.size].tobytes() == values.tobytes(), name
        elif roles[name] is not Role.PARAM_GRADIENT:
            assert {part[name].tobytes() for part in parts} == {values.tobytes()}, name
        else:
            continue
        compared += 1
    assert compared > 10


@pytest.mark.parametrize(("ranks", "each", "graphs"), [(2, 2, True), (4, 1, True), (2, 2, False)])
def test_the_bytes_are_those_of_one_rank(ranks, each, graphs):
    alone = Rank(1, 0, ranks * each, "liveness", fake_device()).train(STEPS)
    found = trained(ranks, each, seed=ranks, graphs=graphs)
    agree(alone, [values for values, _ in found])
    assert all((replays >= STEPS - 2) == graphs for _, replays in found)


@pytest.mark.parametrize("policy", ["vdnn_all:m", "superneurons"])
def test_under_every_policy(policy):
    alone = Rank(1, 0, 2, "liveness", fake_device()).train(STEPS)
    agree(alone, [values for values, _ in trained(2, 1, policy, seed=3)])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_step_that_does_not_wait_for_its_communications_is_found():
    """The fake runs what may run in any order. So a wait that is lost changes bytes, on some seed."""
    alone = Rank(1, 0, 2, "liveness", fake_device()).train(STEPS)
    wrong = 0
    for seed in range(3):

        def body(rank, device, engine):
            wait = device.api.wait
            device.api.wait = lambda stream, event: None if stream == device.net else wait(stream, event)
            return Rank(2, rank, 1, "liveness", device, engine).train(STEPS).values()

        try:
            agree(alone, on_gpus(2, body, seed, graphs=False))
        except (AssertionError, Illegal):
            wrong += 1
    assert wrong


# ---- the calls, one by one


def lives(policy):
    """What each of two ranks calls of CUDA, compared with its schedule and checked for races; and a subject of mutants
    for each captured step."""

    def body(rank, device, engine):
        spec = TrainSpec(SGD(momentum=0.9), ranks=2, rank=rank, bucket=20000)
        made = programs(Net.from_text(SMALL), spec, ("TRAIN",), fuses=device.fuses)
        arrangement = arrange(list(made.values()), policy, among(estimate(device), LINK))
        with lived(arrangement, device, debug=True, engine=engine) as life:
            check_life(life)
            subjects = [subject(f"rank {rank}, {policy} {key}", life, key) for key in life.graphs]
        engine.close()
        return life, subjects

    return on_gpus(2, body, make=recording_device)


@pytest.mark.parametrize("policy", ["liveness:p", "vdnn_all:m", "superneurons"])
def test_calls_follow_the_schedules_and_nothing_races(policy):
    for life, _ in lives(policy):
        groups = [e for e in life.graphs["TRAIN", 0] if e.what[:1] == ("group",)]
        assert len(groups) >= 7 and {e.stream for e in groups} == {life.life.machine.runtime.streams["net"]}
        assert life.counts["replays"] == 4


def test_every_lost_or_misplaced_wait_of_a_step_with_communications_is_found():
    tally = hunt([one for policy in ("liveness:p", "vdnn_all:m") for _, some in lives(policy) for one in some], 600)
    assert not (tally.missed or tally.cried or tally.other), (tally.missed + tally.cried + tally.other)[:5]
    assert tally.of("race") >= 150 and tally.of("illegal") >= 30 and sum(tally.sound.values()) >= 30, str(tally)


# ---- solvers


@pytest.fixture
def case(tmp_path, monkeypatch):
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def solved(name, ranks, each, **options):
    """Train, on so many GPUs; the losses that each rank tells."""
    options = dict(iter_size=each, snapshot_prefix=name) | options

    def body(rank, device, engine):
        with Solver("solver.yaml", device=device, engine=engine, **options) as solver:
            return [event.loss for event in solver.run() if type(event).__name__ == "Step"]

    if ranks > 1:
        return on_gpus(ranks, body, seed=5)
    return [body(0, fake_device(), None)]


@pytest.mark.parametrize("options", [{}, {"format": "bfloat16", "policy": "vdnn_all"}], ids=str)
def test_the_files_are_those_of_one_rank(case, options):
    """Fused ops, double-buffered batches, tests and snapshots among them."""
    alone, together = solved("alone", 1, 2, **options), solved("together", 2, 1, **options)
    assert files(case, "together") == files(case, "alone") and len(files(case, "alone")) == 2
    assert alone * 2 == together


def test_a_run_goes_on_with_other_ranks_and_its_state_on_the_host(case):
    solved("whole", 1, 4)
    solved("begun", 2, 2, max_iter=3, state="host")
    solved("begun", 4, 1, resume="begun_iter_3.safetensors", state="host")
    assert files(case, "begun") == files(case, "whole")


def test_a_launcher_s_ranks_take_their_gpus_and_find_each_other(case, monkeypatch):
    """All of it: `device: cuda`, what torchrun says, the address, the id, NCCL, and one plan for the least memory."""
    machine, drawn = Machine(), {}
    cards = tuple(packages.Card(k, "a GPU", (9, 0)) for k in range(2))
    monkeypatch.setattr(packages, "find_driver", lambda: packages.Driver((13, 0), cards))
    monkeypatch.setattr(
        "minidnn.training.together.open_device",
        lambda name: drawn.setdefault(name, fake_device(machine=machine, memory=int(name[-1] + "9") << 26)),
    )
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    found = [None, None]

    def run(rank):
        launch = Launch("torchrun", rank, 2, rank, 2)
        with Solver("solver.yaml", device="cuda", launch=launch, snapshot_prefix="together") as solver:
            found[rank] = [event.loss for event in solver.run() if type(event).__name__ == "Step"]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == solved("alone", 1, 2) * 2 and files(case, "together") == files(case, "alone")
    assert drawn.keys() == {"cuda:0", "cuda:1"}
    assert drawn["cuda:0"].memory == drawn["cuda:1"].memory < drawn["cuda:1"].free()
    assert all(device.api.watch is None and not device.api.graphs for device in drawn.values())


# ---- what goes wrong


def test_a_rank_that_does_not_come_is_told_and_nothing_more_is_read_of_this_one():
    def body(rank, device, engine):
        one = Rank(2, rank, 1, "liveness", device, engine)
        one.train(3)  # also as a graph
        if rank:
            return
        engine._limit = 0.3
        try:
            with pytest.raises(RankLost, match=r"^rank 0: nothing from another rank within 0.3 s$"):
                one.train(1)
            assert one.machine.runtime.broken
            with pytest.raises(RankLost):
                one.machine.step("TRAIN", again=True)
        finally:
            one.machine.close()  # and does not wait
            engine.close()
        assert one.machine.persistent == {}

    on_gpus(2, body)


def test_an_error_of_nccl_ends_the_wait():
    def body(rank, device, engine):
        one = Rank(2, rank, 1, "liveness", device, engine).train(2)
        if not rank:
            engine._communicator.failed = RuntimeError("NCCL_ERROR_REMOTE_ERROR")
            with pytest.raises(RankLost, match=r"rank 0: NCCL has failed \(RuntimeError: NCCL_ERROR_REMOTE"):
                one.train(1)

    on_gpus(2, body)


def test_a_call_that_nccl_refuses_ends_the_run():
    def body(rank, device, engine):
        one = Rank(2, rank, 1, "liveness", device, engine)
        if not rank:
            engine._nccl.groupEnd = lambda: 1 / 0
            with pytest.raises(RankLost, match="ZeroDivisionError"):
                one.train(1)

    on_gpus(2, body)


def test_a_rank_that_does_not_join_is_told():
    """The channel has all ranks, and NCCL does not."""
    channel = Group(1).engine(0)
    channel.ranks = 2
    channel.share = lambda value: [value, ("elsewhere", "")]
    with pytest.raises(RankLost, match=r"rank 0: not all ranks have joined NCCL within 0.2 s"):
        Nccl(channel, (device := fake_device()).api, device.net, limit=0.2)


def test_two_ranks_on_one_gpu_are_refused():
    channels = [Group(1).engine(0) for _ in range(2)]
    for channel in channels:
        channel.share = lambda value: [value, value]
        with pytest.raises(OneGpu, match=r"ranks 0 and 1 are both on GPU 0x[0-9a-f]+ of .*: start fewer ranks"):
            Nccl(channel, (device := fake_device()).api, device.net)


def test_ranks_whose_groups_differ_are_found():
    """That this judge of ours is awake: what one sends and the other expects must be of one size."""

    def body(rank, device, engine):
        own = device.runtime(1 << 16, 0)
        part = own.arena[: 8 << rank]
        if rank:
            engine.transfer([[], []], [[part], []])()
        else:
            engine.transfer([[], [part]], [[], []])()
        own.api.synchronize(device.net)

    with pytest.raises(Illegal, match="rank 0 sends 8 bytes to rank 1 in its group 2, where that one expects 16"):
        on_gpus(2, body)


def test_a_missing_nccl_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", SimpleNamespace(available=False))
    with pytest.raises(packages.CudaUnavailable, match=r"NCCL for CUDA 12 is not .*'minidnn\[cuda12,nccl12\]'"):
        packages.nccl(12)


def test_cupy_has_the_calls_that_the_engine_makes():
    """Of the installed CuPy: its module of NCCL, which it can load without a GPU, but not without NCCL."""
    pytest.importorskip("cupy")
    try:
        nccl = packages.nccl(13)
    except packages.CudaUnavailable as missing:
        pytest.skip(str(missing))
    assert nccl.NCCL_UINT8 == FakeNccl.NCCL_UINT8
    assert all(callable(getattr(nccl, name)) for name in ("groupStart", "groupEnd", "get_unique_id"))
    calls = ("send", "recv", "check_async_error", "abort", "destroy")
    assert all(callable(getattr(nccl.NcclCommunicator, name)) for name in calls)


def test_while_the_host_waits_cuda_is_asked_and_the_watch_is_called(monkeypatch):
    """The real api, over a CUDA of a few functions: 600 says that work still runs."""
    said, answers = [], [600, 600, 0]
    runtime = SimpleNamespace(
        setDevice=lambda number: None, free=lambda address: None, eventQuery=lambda event: answers.pop(0),
        eventSynchronize=lambda event: said.append(event), streamQuery=lambda stream: 600,
    )  # fmt: skip
    cuda = SimpleNamespace(
        runtime=runtime, driver=None, set_allocator=lambda f: None, set_pinned_memory_allocator=lambda f: None
    )
    driver = SimpleNamespace(
        cuEventRecord=lambda *_: 0, cuEventRecordWithFlags=lambda *_: 0, cuLaunchHostFunc=lambda *_: 0
    )
    monkeypatch.setattr(api.ctypes, "CDLL", lambda name: {"libcuda.so.1": driver}[name])
    found = api.CupyApi(SimpleNamespace(cuda=cuda), lambda source, storage: b"")
    found.watch = lambda waited: said.append("watch")
    found.reach(7)
    assert said == ["watch", "watch", 7] and not answers

    def lost(waited):
        raise RankLost("rank 1 has ended")

    found.watch = lost
    with pytest.raises(RankLost):
        found.synchronize(3)
