"""A plan that cuDNN lists and then refuses to run is a plan less: measuring and training go on with the next one, and
say so. Only a GPU that does nothing more ends the run. On a CUDA of the host's memory with planted faults."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minidnn import costs
from minidnn.backends.cuda.cudnn import NoPlan
from minidnn.backends.cuda.device import KernelFailed
from minidnn.backends.cuda.runtime import Lost
from minidnn.cli.main import main
from minidnn.measuring import bench
from minidnn.memory.execution.trial import Unfit
from minidnn.memory.schedule import Compute
from minidnn.programs.build import programs
from minidnn.training.saving import facts
from minidnn.training.session import Session
from minidnn.training.solver import Solver
from minidnn.zoo import load
from tests.support.cpu_step import feed, machine, persistent
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import fake_device, plant
from tests.support.paths import NET_FILES

pytestmark = pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")

LENET = NET_FILES / "lenet.yaml"
QUOTED = "CUDNN_STATUS_EXECUTION_FAILED"
LOST = "the GPU is lost to it: start a new process"


def first(plan) -> bool:
    """The first of the two plans of each geometry, which needs a workspace."""
    return plan.name == "eng1_k0=1"


def lean(plan) -> bool:
    return plan.name == "eng0"


def of_conv1(plan) -> bool:
    return plan.problem.which == "forward" and plan.problem.w[2] > 1 and plan.problem.x[1] == 3


def faulty(refused, how="at once", **options):
    device = fake_device(**options)
    plant(device, refused, how)
    return device


def algorithms(arrangement) -> dict[str, set[str]]:
    """Op -> the algorithms of its runs, of cuDNN's ops."""
    found: dict[str, set[str]] = {}
    for x in arrangement.schedules["TRAIN"].instructions:
        if isinstance(x, Compute) and "eng" in x.algorithm.name:
            found.setdefault(x.op.name, set()).add(x.algorithm.name.rpartition(".")[2])
    return found


# ---- loading


@pytest.mark.parametrize("how", ["at once", "captured"])
@pytest.mark.parametrize("policy", ["liveness:p", "sqrt_n:p"])
def test_a_machine_runs_the_next_plan_where_the_planned_one_was(how, policy):
    """With the bytes of a run whose plan names that algorithm from the start, and with every offset as planned."""
    device = faulty(first, how)
    with machine("lenet", device, policy) as m:
        planned = m.arrangement
        assert set().union(*algorithms(planned).values()) == {"eng0"}
        assert all(a == planned.schedules["TRAIN"].plan.algorithm[op] for op, a in pairs(planned))
        for k in range(4):
            feed(m, k)
            m.step("TRAIN")
        got = persistent(m)
    with machine("lenet", fake_device(), policy) as m:
        assert set().union(*algorithms(m.arrangement).values()) == {"eng1_k0=1"}
        assert m.arrangement.arena == planned.arena
    with machine("lenet", fake_device(), policy.replace(":p", ":m")) as m:
        for k in range(4):
            feed(m, k)
            m.step("TRAIN")
        assert {n: v.tobytes() for n, v in persistent(m).items()} == {n: v.tobytes() for n, v in got.items()}


def pairs(arrangement):
    return [(x.op, x.algorithm) for x in arrangement.schedules["TRAIN"].instructions if isinstance(x, Compute)]


def test_with_graphs_off_a_plan_that_fails_in_a_capture_alone_is_used():
    with machine("lenet", faulty(first, "captured", graphs=False), "liveness:p") as m:
        assert set().union(*algorithms(m.arrangement).values()) == {"eng1_k0=1"} and not m.device.refused


def test_each_plan_is_tried_once_for_its_geometry():
    device = fake_device()
    with machine("lenet", device, "liveness:p"):
        tried = runs(device)
        assert tried > 0
    with machine("lenet", device, "liveness:p"):
        assert runs(device) == tried


def runs(device) -> int:
    return sum(w.what.startswith("eng") for w in device.api.log)


def test_a_session_plans_anew_where_what_is_left_needs_more_workspace():
    device = faulty(lambda plan: lean(plan) and of_conv1(plan))
    with pytest.raises(Unfit, match=r"conv1\.forward \[eng0\].*what is left needs more than 0 bytes of workspace"):
        machine("lenet", device, "liveness:m")
    assert not device.api.allocated and not device.api.events, "what the machine took is given back"
    device = faulty(lambda plan: lean(plan) and of_conv1(plan))
    with Session(load(LENET), None, ("TRAIN",), device=device, policy="liveness:m") as session:
        found = algorithms(session.arrangement)
        assert found.pop("conv1.forward") == {"eng1_k0=1"} and set().union(*found.values()) == {"eng0"}
        (sentence,) = session.refusals
    assert sentence == f"conv1.forward [eng0] on cuda: {QUOTED}; instead, eng1_k0=1 runs conv1.forward"
    offered = session.costs.choices(next(op for op in session.programs["TRAIN"].ops if op.name == "conv1.forward"))
    assert [c.algorithm.name for c in offered] == ["eng1_k0=1"]


def test_where_none_is_left_the_layer_is_named_and_what_would_work():
    with pytest.raises(NoPlan, match=rf'layer conv1, conv1\.forward: cuDNN refused .*{QUOTED}.*device="cpu"'):
        Session(load(LENET), None, ("TRAIN",), device=faulty(of_conv1), policy="liveness:p")


def test_a_broken_gpu_ends_the_load():
    device = faulty(lambda plan: first(plan) and of_conv1(plan), "broken")
    with pytest.raises(Lost, match=rf"cudaErrorIllegalAddress; .*{LOST}") as raised:
        machine("lenet", device, "liveness:p")
    assert str(raised.value).count(LOST) == 1
    assert str(raised.value).startswith("conv1.forward [eng1_k0=1] on cuda: cudaErrorIllegalAddress; after")
    assert 'avoid="eng1_k0=1" does without this plan' in str(raised.value)
    assert list(device.refused.values()) == ["conv1.forward [eng1_k0=1] on cuda: cudaErrorIllegalAddress"]


def test_a_plan_that_breaks_the_gpu_on_an_image_of_nan_is_named():
    with pytest.raises(Lost, match=rf'ip1\+relu1.* eng1_k0=1 could not be tried on .*; avoid="eng1_k0=1" or .*{LOST}'):
        machine("lenet", faulty(first, "broken"), "liveness:p")


def test_a_kernel_of_our_own_is_not_dropped():
    device = fake_device()
    ops = programs(load(LENET), None, ("TRAIN",), fuses=device.fuses)["TRAIN"].ops
    op = next(op for op in ops if op.kind == "bias.backward" or op.family == "pooling")
    refusal = KernelFailed("pool1.forward [default] on cuda: cudaErrorInvalidConfiguration")
    with pytest.raises(KernelFailed, match="InvalidConfiguration") as raised:
        device.drop(op, device.algorithms(op)[0], refusal)
    assert raised.value is refusal and device.algorithms(op) and not device.refused


def test_the_snapshots_facts_name_what_ran_instead(tmp_path):
    """Also in a process that knows the refusal already, where the next plan has become the first one."""
    device = faulty(lambda plan: first(plan) and of_conv1(plan))
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
    given = {"policy": "liveness:p", "seed": 3, "data": data, "max_iter": 2, "snapshot_prefix": str(tmp_path / "run")}
    for _ in range(2):
        with Solver(load(LENET), device=device, **given) as solver:
            assert facts(solver.session)["algorithms"] == {"conv1.forward": "eng0"}
            solver.solve()
    with Solver(load(LENET), device=fake_device(), resume="latest", **given) as solver:
        (note,) = [n for n in solver.notes if n.startswith("algorithms")]
    assert "{}, but the snapshot's run had {'conv1.forward': 'eng0'}: last bits may differ" in note


# ---- commands


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A function that plants a fault in the GPU that `--device cuda` opens. Its link has been measured before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bench, "GROUP", 0)
    known = costs.measurements(fake_device())
    known.bandwidth_out = known.bandwidth_in = 1e9
    known.beside = [
        {
            "bound_by": kind, "op": "any", "bandwidth_out": 1e9, "bandwidth_in": 1e9, "slower": 1.0, "drag_out": 0.0,
            "drag_in": 0.0,
        }
        for kind in ("memory", "arithmetic")
    ]  # fmt: skip
    known.save()
    return lambda *fault: monkeypatch.setattr("minidnn.backends.cuda.open_gpu", lambda **_: faulty(*fault))


def profile(*arguments: str) -> int:
    return main(["profile", str(LENET), "--device", "cuda", *arguments])


def test_profile_goes_on_and_lists_what_was_refused(gpu, capsys):
    gpu(lambda plan: first(plan) and of_conv1(plan))
    line = f"conv1.forward [eng1_k0=1] on cuda: {QUOTED}"
    assert profile() == 0
    assert f"\nrefused, and not used: {line}\n" in capsys.readouterr().out
    assert profile("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured_now"] == 0 and list(found["refused_algorithms"].values()) == [line], "also at the next start"
    assert {r["algorithm"] for r in found["rows"] if r["op"] == "conv1.forward"} == {"eng0"}
    assert {r["algorithm"] for r in found["rows"] if r["op"] == "conv2.forward"} == {"eng0", "eng1_k0=1"}


def test_profile_ends_where_no_plan_is_left(gpu, capsys):
    gpu(of_conv1)
    assert profile() == 2
    said = capsys.readouterr().err
    assert said.startswith("minidnn: layer conv1, conv1.forward: cuDNN refused to run all of its plans (")
    assert said.endswith("or use --device cpu\n")


@pytest.mark.parametrize("command", ["profile", "time"])
def test_a_lost_gpu_ends_a_command_with_one_line(gpu, capsys, command):
    gpu(first, "broken")
    assert main([command, str(LENET), "--device", "cuda"]) == 1
    said = capsys.readouterr().err
    assert LOST in said and len(said.splitlines()) == 1 and "internal error" not in said


def test_train_says_it_on_stderr(tmp_path, capsys, monkeypatch):
    net, solver = tmp_path / "net.yaml", tmp_path / "solver.yaml"
    net.write_text(LENET.read_text())
    solver.write_text(f"net: {net}\nbase_lr: 0.01\nmax_iter: 2\nlr_policy: fixed\n")
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
    monkeypatch.setattr("minidnn.training.solver.Solver", lambda *a, **k: Solver(*a, **{**k, "data": data}))
    monkeypatch.setattr("minidnn.backends.cuda.open_gpu", lambda **_: faulty(lambda p: first(p) and of_conv1(p)))
    assert main(["train", str(solver), "--device", "cuda", "--json"]) == 0
    captured = capsys.readouterr()
    line = f"conv1.forward [eng1_k0=1] on cuda: {QUOTED}; instead, eng0 runs conv1.forward"
    assert f"minidnn: {line}\n" in captured.err and json.loads(captured.out)["refusals"] == [line]
