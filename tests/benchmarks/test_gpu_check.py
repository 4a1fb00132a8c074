"""`make gpu-check` without a GPU: what a crash, a hang or a torn line costs; that wrong results are noticed; and that
PyTorch's nets, with which ours are compared, compute the same. `make gpu-check-rehearse` runs the whole script."""

from __future__ import annotations

import configparser
import contextlib
import json
import re
import subprocess
import sys
import time
from argparse import Namespace

import numpy as np
import pytest

import benchmarks.gpu_check
from benchmarks import fed as feed
from benchmarks.gpu_check import __main__ as command
from benchmarks.gpu_check import (
    brief,
    by_host,
    digits,
    fed,
    measure,
    memchecked,
    operations,
    policies,
    ranks,
    start,
    tight,
    updates,
)
from benchmarks.gpu_check.goals import goals
from benchmarks.gpu_check.journal import Journal, code
from benchmarks.gpu_check.pinned import Pinned
from benchmarks.gpu_check.place import Place, Rehearsal
from benchmarks.gpu_check.rounding import Precision, examples_in
from benchmarks.gpu_check.run import Run, Wrong
from benchmarks.gpu_check.table import TITLES, made, verdict
from benchmarks.nets import TRAIN
from minidnn import zoo
from minidnn.backends.cuda import packages
from minidnn.backends.cuda.cudnn import NoPlan
from minidnn.backends.cuda.device import KINDS
from minidnn.backends.cuda.runtime import CudaRuntime
from minidnn.costs import estimate
from minidnn.formats import FORMATS
from minidnn.jobs import ram
from minidnn.measuring import bench
from minidnn.memory.budget import RamError
from minidnn.memory.policies import SOME_NETS, names
from minidnn.memory.schedule import BY_HOST
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.training.session import Session
from tests.support.cuda import fake as cuda_fake
from tests.support.cuda import host as cuda_host
from tests.support.cuda.fake import fake_device, plant
from tests.support.paths import NET_FILES, ROOT

HOUR = 3600.0  # longer than any test may take


def compiled(test):
    """It runs on an imitation of CUDA."""
    without = pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")
    return pytest.mark.extended(without(test))


def test_without_a_gpu_it_says_so():
    try:
        packages.find_driver()
    except packages.CudaUnavailable:
        done = subprocess.run([*command.PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and done.stderr.startswith("gpu-check: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_case_that_ends_its_process_or_never_ends_costs_no_other(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(command, "PROGRAM", [sys.executable, "-m", "tests.support.gpu_check_faulty"])
    journal = Journal(tmp_path / "results.jsonl")

    def clock() -> float:
        """However slow the machine: the item's time is over as soon as the case that never ends has begun."""
        return time.time() + (2 * HOUR if any(record["case"] == "fourth" for record in journal) else 0)

    monkeypatch.setattr(command, "time", Namespace(time=clock))
    o = Namespace(again=False, new=False, rehearse=True)
    ended = command.supervise(o, "a", tmp_path, "now", time.time() + HOUR, journal)
    states = {case: (r["state"], r.get("why")) for (_, case), r in journal.latest().items()}
    assert not ended and set(states) == {"first", "second", "third", "fourth"}
    assert states["first"][0] == states["third"][0] == "ok"
    assert states["second"] == ("failed", "its process ended with 9")
    assert states["fourth"] == ("failed", "no end within the item's time (a)")
    text = made(journal, "a card", False)
    assert "**failed** (a) second: its process ended with 9" in text and "2 cases well, 2 failed" in text


def test_every_item_is_told_of_and_has_a_section():
    told = re.findall(r"^    (\w)  (\w+)  ", benchmarks.gpu_check.__doc__ or "", re.MULTILINE)
    assert told == [(letter, module) for letter, (module, _) in command.ITEMS.items()]
    assert set(TITLES) == set(command.ITEMS)


def test_every_item_has_its_part_and_what_is_left_over_is_shared():
    assert sum(seconds for _, seconds in command.ITEMS.values()) <= 60 * command.MINUTES < 540
    letters, left, shares = list(command.ITEMS), 60.0 * command.MINUTES, {}
    for letter in letters:  # when all use up their parts
        shares[letter] = command._share(letter, letters, left)
        left -= shares[letter]
    assert abs(left) < 1e-6 and all(shares[x] >= s for x, (_, s) in command.ITEMS.items())
    later = letters[letters.index("d") :]  # when what comes before was shown by a former run
    left = 60.0 * command.MINUTES
    assert command._share("b", letters, left) == command.ITEMS["b"][1]
    assert (
        command.ITEMS["d"][1] + 40
        < command._share("d", letters, left)
        < left - sum(command.ITEMS[x][1] for x in later[1:])
    )
    assert command._share("d", ["d"], left) == left


def test_a_case_that_is_merely_cut_off_is_left_out_and_one_that_hangs_has_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_watched", lambda child, until, folder: command._kill(child))
    monkeypatch.setattr(command, "PROGRAM", [sys.executable, "-c", ""])
    journal = Journal(tmp_path / "results.jsonl")
    o = Namespace(again=False, new=False, rehearse=True)
    for needs, began, state in ((10.0, 5.0, "left out"), (10.0, 31.0, "failed"), (0.0, 0.1, "failed")):
        begun = {"item": "a", "case": "one", "state": "began", "invocation": "now", "needs": needs}
        journal.append({**begun, "time": time.time() - began})
        assert not command.supervise(o, "a", tmp_path, "now", time.time(), journal)
        assert journal.latest()["a", "one"]["state"] == state


def test_goals_are_met_or_missed_by_what_was_found(tmp_path):
    journal = Journal(tmp_path / "results.jsonl")
    fast = {"seconds": 0.8, "torch_seconds": 1.0, "launch_gap": 0.01, "speed": 1.0, "unit": "images/s",
            "arena_bytes": 5, "torch_reserved_bytes": 10, "torch_allocated_bytes": 9}  # fmt: skip
    lean = {"policy": "p", "seconds": 1.0, "over_torch": 1.0, "no_slower": True, "over_torch_reserved": 0.5,
            "tried": [], "arena_bytes": 5}  # fmt: skip
    copies = {"link_out": 10.0, "link_in": 10.0, "out_bytes_per_second": 9.5, "in_bytes_per_second": 8.0,
              "predicted_seconds": 1.0, "seconds": 1.0, "arena_bytes": 1, "taken_bytes": 1}  # fmt: skip
    for item, case, values in (
        ("d", "resnet50, 256, float32", fast),
        ("d", "vgg16, 64, float32", {**fast, "seconds": 0.95}),
        ("d", "resnet50, 256, float32, smallest peak", lean),
        ("d", "vgg16, 64, float32, smallest peak", {**lean, "no_slower": False}),
        ("f", "vgg16, 64, float32: vdnn_all", copies),
        ("f", "vgg16, 64, float32: vdnn_conv", {**copies, "in_bytes_per_second": 9.9}),
        ("e", "vgg19, 256, float32: liveness:p, no budget", {"seconds": 1.0, "over_unlimited": None}),
        ("e", "vgg19, 256, float32: sqrt_n", {"seconds": 1.2, "over_unlimited": 1.2}),
        ("e", "vgg19, 256, float32: liveness", {"seconds": 1.1, "over_unlimited": 1.1}),
        ("e", "vgg19, 256, float32: PyTorch, checkpoint", {"seconds": 1.0, "over_unlimited": 1.0}),
        ("s", "stages of a net", {"beyond_arena_bytes": 2 << 20, "granule_bytes": 2 << 20, "page_tables_bytes": 0}),
        (
            "s",
            "stages of another",
            {"beyond_arena_bytes": 9 << 20, "granule_bytes": 2 << 20, "page_tables_bytes": 8 << 20},
        ),
    ):
        journal.append({"item": item, "case": case, "state": "ok", "values": values})
    found = goals(journal.latest().values())
    assert [(g.subject.partition(",")[0], g.met) for g in found] == [
        ("resnet50", True), ("vgg16", False), ("resnet50", True), ("vgg16", False),  # times; peaks: not if slower
        ("resnet50", True), ("vgg19", True), ("vgg16", True), ("vgg16", False), ("stages of a net", False),
        ("stages of another", True),
    ]  # fmt: skip
    text = made(journal, "a card", False)
    journal.append({"item": "a", "case": "relu", "state": "failed", "why": "off by inf"})
    lines = verdict(tmp_path).splitlines()
    assert len(lines) == 11 and lines[-1] == "FAILED  (a) relu: off by inf"
    assert lines[1] == "MISSED  iteration over PyTorch eager's: 0.95 (<= 0.9), vgg16, 64, float32"
    assert "6 of 10 met" in text and "| copies in, of the link's rate | vgg16, 64, float32: vdnn_all (the slow" in text


def test_what_other_code_found_lately_is_shown_and_marked_and_done_again(tmp_path):
    journal = Journal(tmp_path / "results.jsonl")
    for age, case in ((4 * 3600, "old"), (600, "mended since")):
        journal.append({"item": "a", "case": case, "state": "ok", "code": "before", "time": time.time() - age})
    journal.append({"item": "a", "case": "new", "state": "ok"})
    text = made(journal, "a card", False)
    assert "2 cases well" in text and "- 1 cases were run with the code before (of (a))" in text
    assert set(Run("a", Rehearsal(), journal, "now", time.time() + HOUR, False).done) == {"new"}
    run = Run("a", Rehearsal(), journal, "now", time.time() + HOUR, False, new=True)
    assert set(run.done) == {"new", "mended since"}, "with --new it is not done again"


def test_what_other_code_had_no_time_for_is_no_longer_told_once_it_is_done(tmp_path):
    journal = Journal(tmp_path / "results.jsonl")
    journal.append({"item": "a", "case": "left out", "state": "left out", "code": "before", "values": {"cases": ["x"]}})
    assert "left out for want of time (a): x" in made(journal, "a card", False)
    run = Run("a", Rehearsal(), journal, "now", time.time() + HOUR, False, new=True)
    run.case("x", dict)
    run.end()
    assert "left out" not in made(journal, "a card", False)


def test_costs_of_a_former_run_are_taken_but_those_that_may_have_changed(tmp_path, monkeypatch):
    """Of another backend our own kernels'; after some hours the link's, since the card may be in another machine."""
    place, journal = Rehearsal(), Journal(tmp_path / "results.jsonl")
    run, device = Run("d", place, journal, "now", time.time() + HOUR, False), place.device()
    of_cudnn, own = "convolution.forward None x -> y [eng0 0]", "relu.forward None x -> y [default 0]"

    def known(folder: str):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.setattr(measure.tempfile, "gettempdir", lambda: str(tmp_path / folder))
        return measure.known_costs(run, device)

    found, kept = known("first")
    assert not found.seconds and not kept.exists()
    content = {"device": found.device, "format": 1, "latency": 0.0, "copies": {}, "beside": []}
    content |= {"bandwidth_out": 3, "bandwidth_in": 4, "seconds": {of_cudnn: 1.0, own: 2.0}, "refused": {"z": "no"}}
    for number, (backend, age, seconds, out) in enumerate([
        (measure.digest(measure.BACKEND), 0, {of_cudnn: 1.0, own: 2.0}, 3),
        ("other", 0, {of_cudnn: 1.0}, 3),
        ("other", 4 * HOUR, {of_cudnn: 1.0}, 0),
    ]):  # fmt: skip
        kept.write_text(json.dumps({"backend": backend, "time": time.time() - age, "measured": content}))
        found, _ = known(f"machine {number}")
        assert (found.seconds, found.refused, found.bandwidth_out) == (seconds, {"z": "no"}, out)


def test_again_and_new_are_not_both(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--again", "--new"])
    with pytest.raises(SystemExit):
        command.options()
    assert "choose one" in capsys.readouterr().err


def test_a_torn_line_is_cut_off_and_costs_one_record(tmp_path):
    journal = Journal(tmp_path / "results.jsonl")
    for case in ("one", "two"):
        journal.append({"item": "a", "case": case, "state": "ok", "values": {"x": np.float32(0.5), "y": float("nan")}})
    whole = journal.path.read_bytes()
    for end in range(whole.index(b"\n") + 1, len(whole)):
        journal.path.write_bytes(whole[:end])
        assert next(iter(journal))["case"] == "one"
        journal.append({"item": "a", "case": "three", "state": "ok"})
        assert [r["case"] for r in journal] == ["one", "three"]
    assert journal.latest()["a", "one"]["values"] == {"x": 0.5, "y": "nan"}


def test_results_of_other_code_do_not_count(tmp_path):
    journal = Journal(tmp_path / "results.jsonl")
    record = journal.append({"item": "a", "case": "one", "state": "ok"})
    assert record["code"] == code() and len(journal.latest()) == 1
    journal.path.write_text(json.dumps({**record, "code": "other"}) + "\n")
    assert not journal.latest() and len(journal.latest(any_code=True)) == 1


def test_what_there_is_no_time_for_is_said_and_done_the_next_time(tmp_path):
    journal, place = Journal(tmp_path / "results.jsonl"), Rehearsal()

    def late() -> dict:
        raise TimeoutError("half of it")

    run = Run("a", place, journal, "first", time.time() + HOUR, False)
    assert run.case("quick", lambda: {"x": 1}) == {"x": 1}
    assert run.case("long", lambda: {"x": 2}, needs=1.5 * HOUR) is None
    assert run.case("slow", late) is None
    run.end()
    text = made(journal, "a card", False)
    assert "left out for want of time (a): long" in text and "left out for want of time (a): slow" in text
    run = Run("a", place, journal, "second", time.time() + 2 * HOUR, False)
    assert run.case("quick", late) == {"x": 1}, "it was done before"
    assert run.case("long", lambda: {"x": 2}, needs=1.5 * HOUR) == {"x": 2} and run.case("slow", lambda: {"x": 3}) == {
        "x": 3
    }
    run.end()
    text = made(journal, "a card", False)
    assert "left out" not in text and "3 cases well, 0 failed" in text


def zoo_net(name: str, batch: int) -> Net:
    found = zoo.find(name, batch)
    return found if isinstance(found, Net) else Net.from_file(found, batch)


# ---- it notices what is wrong


@compiled
def test_a_wrong_kernel_is_noticed(monkeypatch):
    device = fake_device()
    of = operations.examples(small=True)["scale.forward"]
    assert operations.check(device, of)["runs"] == 3 * len(of)
    right = operations.wanted
    monkeypatch.setattr(operations, "wanted", lambda e: [1.0001 * y for y in right(e)])
    with pytest.raises(Wrong, match=r"w0 is off by 0\.0001 of the largest value"):
        operations.check(device, of)
    bfloat16 = Precision("bfloat16")
    stored = examples_in(bfloat16, of)
    assert operations.check(device, stored, bfloat16)["tolerance"] < 0.004
    monkeypatch.setattr(operations, "wanted", lambda e: [1.01 * y for y in right(e)])
    with pytest.raises(Wrong, match=r"w0 is off by 0\.01\d* of the largest value"):
        operations.check(device, stored, bfloat16)


@compiled
@pytest.mark.parametrize("kind", ["sgd.update", "adam.update_multi_tensor"])
def test_a_host_that_would_leave_other_bytes_is_noticed(kind, monkeypatch):
    device = fake_device()
    of = operations.examples(small=True)[kind]
    assert operations.check(device, of)["runs"] == 3 * len(of)
    prepare = device.prepare_by_host

    def other(op, algorithm, arrays):
        call, w = prepare(op, algorithm, arrays), arrays[op.writes[0]]
        return lambda: (call(), np.nextafter(w, np.float32(9), out=w))

    monkeypatch.setattr(device, "prepare_by_host", other)
    with pytest.raises(Wrong, match="has other bytes where the host computes it"):
        operations.check(device, of)


@compiled
def test_nothing_written_and_a_write_where_only_reading_is_allowed_are_noticed(monkeypatch):
    device = fake_device()
    of = operations.examples(small=True)["relu.forward"]
    prepare, event = device.prepare, device.api.event()
    monkeypatch.setattr(device, "prepare", lambda *a: lambda: device.api.record(event, device.compute))
    with pytest.raises(Wrong, match="off by inf"):
        operations.check(device, of)

    def spoils(op, algorithm, views, workspace):
        call, read = prepare(op, algorithm, views, workspace), views[op.reads[0]]
        return lambda: (call(), device.api.fill(read.address, 1, 1, device.compute))

    monkeypatch.setattr(device, "prepare", spoils)
    with pytest.raises(Wrong, match="writes what it should only read"):
        operations.check(device, operations.examples(small=True)["concat.forward"])


@compiled
def test_a_plan_that_fails_in_a_capture_alone_is_noticed(monkeypatch):
    device = fake_device()
    of = operations.examples(small=True)["convolution.forward"][:1]
    execute = device.cudnn.execute

    def waits(plan, pack, workspace):
        device.api.synchronize(device.compute)  # which a capture forbids
        execute(plan, pack, workspace)

    monkeypatch.setattr(device.cudnn, "execute", waits)
    with pytest.raises(Wrong, match="cuDNN refused to run all of its plans") as raised:
        operations.check(device, of)
    assert re.search(r"eng1_k0=1\], in a capture: .* during a capture", raised.value.values["refused"][0])
    monkeypatch.undo()
    device = fake_device()
    assert operations.check(device, of)["runs"] == 6, "the stream is none the worse"


@compiled
@pytest.mark.parametrize("how", ["at once", "captured"])
def test_a_refused_plan_is_listed_and_the_next_one_checked(how, tmp_path):
    device = fake_device()
    plant(device, lambda plan: plan.name == "eng1_k0=1", how)
    values = operations.check(device, operations.examples(small=True)["convolution.forward"][:1])
    assert len(values["refused"]) == 1 and "EXECUTION_FAILED" in values["refused"][0] and values["worst"] < 1e-5
    assert ("in a capture" in values["refused"][0]) == (how == "captured")
    journal = Journal(tmp_path / "results.jsonl")
    journal.append({"item": "a", "case": "convolution.forward, float32", "state": "ok", "values": values})
    assert "| yes |  | 1 |" in made(journal, "a card", False)


@compiled
def test_measuring_goes_on_where_a_plan_is_refused_and_the_table_names_it(tmp_path, monkeypatch, capsys):
    """Costs, a net loaded by them, and policies with estimated costs."""
    monkeypatch.setattr(measure.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(bench, "GROUP", 0)
    place, journal = Rehearsal(), Journal(tmp_path / "results.jsonl")
    plant(place.device(), lambda plan: plan.name == "eng1_k0=1")
    run, net = Run("d", place, journal, "now", time.time() + HOUR, False), place.net("tests/lenet")
    lowered = list(programs(net, TRAIN, ("TRAIN",), fuses=place.device().fuses).values())
    costs = measure.costs_of(run, place.device(), lowered)
    assert "measured" in capsys.readouterr().out
    with measure.Loaded(place.device(), net, "liveness:p", costs) as loaded:
        chosen = {a.name for a in loaded.schedule.plan.algorithm.values() if "eng" in a.name}
        waited, launched = loaded.both_ways()
    assert {name.rpartition(".")[2] for name in chosen} == {"eng0"} and waited == launched and len(set(waited)) == 3
    assert policies.Subject(run, "lenet", "float32", True).same_bytes("vdnn_all:p")["cases"] == 4
    run.end()
    text = made(journal, "a card", False)
    line = "- a plan that cuDNN refused to run, so that others ran (d): conv1.forward [eng1_k0=1] on cuda: CUDNN_STATUS"
    assert line in text and "0 cases well" in text
    for path in tmp_path.glob("gpu_check-*/*"):  # another machine: what the run left among the results is brought there
        path.unlink()
    again = Rehearsal()
    plant(again.device(), lambda plan: plan.problem.relu and plan.name == "eng1_k0=1")  # tried on an image of NaN
    measure.costs_of(Run("d", again, journal, "later", time.time() + HOUR, False), again.device(), lowered)
    assert "measured" not in capsys.readouterr().out and again.device().refused, "none is tried again"


@compiled
def test_outputs_that_the_host_is_told_of_too_early_are_noticed(monkeypatch, tmp_path):
    place = Rehearsal()
    run = Run("s", place, Journal(tmp_path / "results.jsonl"), "now", time.time() + HOUR, False)
    assert start.told(run)["stale"] == []
    api = place.device().api
    reach = api.reach
    before = api.replays
    monkeypatch.setattr(api, "reach", lambda event: None if api.replays > before else reach(event))
    with pytest.raises(Wrong, match=r"in the launches \[2, 3, 4, 5\] the host was told of outputs that were not there"):
        start.told(run)


@compiled
def test_a_host_that_is_not_waited_for_and_one_whose_errors_are_lost_are_noticed(monkeypatch, tmp_path):
    place = Rehearsal()
    run = Run("s", place, Journal(tmp_path / "results.jsonl"), "now", time.time() + HOUR, False)
    assert by_host.waited(run)["stale"] == [] and by_host.failing(run)["raised"] == [1, 4]
    with monkeypatch.context() as m:
        m.setattr(CudaRuntime, "_by_host", lambda self, call: None)
        with pytest.raises(Wrong, match=r"in the launches \[1, 2, 3, 4, 5\] a copy did not wait"):
            by_host.waited(run)

    def suppressed(self, call):
        with contextlib.suppress(by_host.Planted):
            call()

    monkeypatch.setattr(CudaRuntime, "_by_host", suppressed)
    with pytest.raises(Wrong, match="launch 1 is wrong"):
        by_host.failing(run)


def test_other_bytes_of_nccl_are_noticed(monkeypatch, tmp_path):
    place = Rehearsal()
    run = Run("n", place, Journal(tmp_path / "results.jsonl"), "now", time.time() + HOUR, False)
    assert ranks.itself(run)["bytes"] == place.link_bytes
    monkeypatch.setattr("minidnn.ranks.nccl.Nccl.transfer", lambda *_: lambda: None)
    with pytest.raises(Wrong, match=r"NCCL gave other bytes in the launches \[1, 2, 3, 4, 5\]"):
        ranks.itself(run)


def test_policies_that_recompute_come_first_where_the_link_is_slow():
    values = {"seconds": 0.11, "bytes": 18 << 30, "link_out": 50e9}
    assert tight.first(values, 12 << 30)[:2] == ("liveness", "sqrt_n"), "6 GiB take 129 ms"
    assert tight.first({**values, "seconds": 0.5}, 12 << 30)[:2] == ("liveness", "vdnn_dyn")
    assert tight.first({**values, "bytes": 11 << 30}, 12 << 30)[0] == tight.first({}, 12 << 30)[0] == "liveness"


@compiled
def test_geometries_without_a_plan_are_told_and_the_others_checked(monkeypatch, tmp_path):
    device = fake_device()
    of, plans = operations.examples(small=True)["convolution.forward"], device.cudnn.plans

    def refuses(problem):
        if everything or problem.bias:
            raise NoPlan("no plan for it")
        return plans(problem)

    everything = False
    monkeypatch.setattr(device.cudnn, "plans", refuses)
    values = operations.check(device, of)
    assert 0 < values["examples"] < len(of) and "no plan for it" in values["no_plan"][0]
    journal = Journal(tmp_path / "results.jsonl")
    journal.append({"item": "a", "case": "convolution.forward, float32", "state": "ok", "values": values})
    assert f"| yes | {len(values['no_plan'])} |" in made(journal, "a card", False)
    everything = True
    other = fake_device()
    monkeypatch.setattr(other.cudnn, "plans", refuses)
    with pytest.raises(Wrong, match=f"no plan for any of {len(of)} examples"):
        operations.check(other, of)


@compiled
def test_a_gradient_that_keeps_what_lay_there_is_noticed(monkeypatch):
    device = fake_device()
    of = operations.strided(small=True)
    convolve = cuda_fake._convolve

    def keeps(plan, pack, workspace):
        out = cuda_fake._bytes(pack[cuda_fake.X], 4 * int(np.prod(plan.problem.x)))
        before = out.copy()
        convolve(plan, pack, workspace)
        values = out.view(np.float32)
        values[:] = np.where(values == 0, before.view(np.float32), values)

    assert operations.check(device, of)["worst"] == 0
    monkeypatch.setattr(cuda_fake, "_convolve", keeps)
    with pytest.raises(Wrong, match="off by inf"):
        operations.check(device, of)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["bfloat16", "float16"])
def test_examples_of_16_bits_have_the_types_that_programs_have(format):
    """So that what is checked is what is trained: every (kind, types) of whole nets is among the examples'."""
    pytest.importorskip("ml_dtypes")

    def types(op):
        floats = [t.dtype for t in (*op.reads, *op.writes) if t.dtype in FORMATS]
        return (op.kind, *dict.fromkeys(floats[:1])), len(set(floats)) > 1

    checked = {types(e.op) for of in operations.examples(False).values() for e in examples_in(Precision(format), of)}
    for name in ("alexnet", "googlenet", "resnet18"):
        spec = TrainSpec(SGD(momentum=0.9), clip_gradients=1.0 if name == "alexnet" else -1.0)
        for op in programs(zoo_net(name, 2), spec, ("TRAIN", "TEST"), format=format)["TRAIN"].ops:
            if any(t.dtype == format for t in op.tensors):
                assert types(op) in checked, f"{op.name}: {op}"


@compiled
def test_other_bytes_under_a_policy_are_noticed(monkeypatch, tmp_path):
    right = policies.trained

    def trained(net, device, policy, costs, budget, graphs, form):
        digest, memory = right(net, device, policy, costs, budget, graphs, form)
        return {**digest, "conv1.w": policy} if policy == "vdnn_conv:m" and graphs else digest, memory

    monkeypatch.setattr(policies, "trained", trained)
    run = Run("b", Rehearsal(), Journal(tmp_path / "results.jsonl"), "now", time.time() + HOUR, False)
    subject = policies.Subject(run, "lenet", "float32", True)
    assert subject.same_bytes("vdnn_all:m")["cases"] == 4
    with pytest.raises(Wrong, match=r"2 of 4 leave other bytes: budget None, graph: conv1\.w"):
        subject.same_bytes("vdnn_conv:m")


@compiled
def test_what_is_taken_besides_the_arena_is_noticed(monkeypatch, tmp_path):
    place = Rehearsal()
    run = Run("s", place, Journal(tmp_path / "results.jsonl"), "now", time.time() + HOUR, False)
    assert start.stages(run, granule=1)["beyond_arena_bytes"] == 0
    api = place.device().api
    stream = api.stream
    with monkeypatch.context() as m:  # as much as page tables take
        m.setattr(start, "PAGE_TABLES", 1)
        m.setattr(api, "stream", lambda: (api.allocate(64), stream())[1])
        assert (
            0 < start.stages(run, granule=1)["beyond_arena_bytes"] < start.stages(run, granule=1)["page_tables_bytes"]
        )
    monkeypatch.setattr(api, "stream", lambda: (api.allocate(4096), stream())[1])
    with pytest.raises(Wrong, match=rf"loading takes {4096 * (3 + len(BY_HOST))} bytes besides the arena's"):
        start.stages(run, granule=1)


@compiled
def test_a_machine_whose_memory_grows_as_it_is_used_refuses_no_net(monkeypatch):
    """A lent one says that it has what it has used so far."""
    monkeypatch.setattr(ram, "physical_memory", lambda: 100 << 20)
    device, net = fake_device(), Net.from_file(NET_FILES / "residual.yaml")
    with measure.Loaded(device, net, "vdnn_all:m", estimate(device)) as loaded:
        assert len(loaded.losses) == measure.WARM
    with pytest.raises(
        RamError, match=r"this machine, or its container, has 100 MiB; .* give the real limit: ram=SIZE"
    ):
        Session(net, TRAIN, ("TRAIN",), device=device, policy="vdnn_all:m")


def test_page_locked_memory_is_taken_once_for_nets_that_follow_one_another():
    taken, given = [], []

    class Api:
        def allocate_host(self, nbytes):
            taken.append(nbytes)
            return np.zeros(nbytes, np.uint8)

        def release_host(self, array):
            given.append(array.nbytes)

    api = Api()
    kept, given_back = Pinned(api), False
    for nbytes in (10, 4, 10):
        block = api.allocate_host(nbytes)
        assert block.nbytes == nbytes and (block == (0xFF if given_back else 0)).all(), (
            "nothing of the last net is left"
        )
        block.fill(7)
        api.release_host(block)
        given_back = True
    assert (taken, given) == ([10], [])
    one, other = api.allocate_host(3), api.allocate_host(8)  # two at once
    api.release_host(other)
    api.release_host(one)
    assert (taken, given) == ([10, 8], [8]), "the larger one stays"
    api.release_host(api.allocate_host(20))
    assert (taken, given) == ([10, 8, 20], [8, 10])
    kept.forget()
    assert given == [8, 10, 20]


@compiled
def test_a_second_net_takes_no_page_locked_memory(monkeypatch):
    place = Rehearsal()
    device, net, taken = place.device(), place.net("tests/residual", 4), []
    take = place._pinned[0]._take
    monkeypatch.setattr(place._pinned[0], "_take", lambda nbytes: (taken.append(nbytes), take(nbytes))[1])
    counts = []
    for _ in range(2):
        with measure.Loaded(device, net, "vdnn_all:p", estimate(device)) as loaded:
            counts.append(len(taken))
    assert max(taken) >= loaded.arrangement.host > 0 and counts[0] == counts[1] == len(taken)


@compiled
@pytest.mark.filterwarnings("ignore:.*encountered in matmul")  # where ops are measured, on what others left there
def test_training_on_data_is_timed_beside_the_bare_step(tmp_path):
    run = Run("d", Rehearsal(), Journal(tmp_path / "results.jsonl"), "now", time.time() + HOUR, False)
    values = fed.fed(run, "tests/lenet", 4, "bfloat16", "liveness:p")
    assert values["early"] and values["batch_bytes"] > 4 * 3 * 44 * 44  # samples of bytes, with their margins
    assert values["fed_over_bare"] == values["fed_seconds"] / values["bare_seconds"] > 0


def test_the_feed_is_timed_before_and_after(monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["fed", "--batch", "2", "--rounds", "1", "--batches", "1", "--format", "float32", "bfloat16"]
    )
    feed.main()
    said = r"(float32|bfloat16): before \d+ images/s, after \d+, \d+\.\d\d times as many"
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(re.fullmatch(said, line) for line in lines)


@compiled
def test_a_host_that_updates_weights_otherwise_than_the_card_is_noticed(monkeypatch, tmp_path):
    place = Rehearsal()
    run = Run("u", place, Journal(tmp_path / "results.jsonl"), "now", time.time() + HOUR, False)
    values = updates.updated(run, "tests/residual", 4)
    assert values["updates_by_host"] > 0 and values["arena_bytes"] < values["arena_on_card_bytes"]
    with monkeypatch.context() as m:
        m.setattr(updates, "HOSTED", "liveness:m")
        with pytest.raises(Wrong, match="the host runs no update"):
            updates.updated(run, "tests/residual", 4)
    prepare = place.device().prepare_by_host

    def other(op, algorithm, arrays):
        call, w = prepare(op, algorithm, arrays), arrays[op.writes[0]]
        return lambda: (call(), np.multiply(w, np.float32(1.5), out=w))

    monkeypatch.setattr(place.device(), "prepare_by_host", other)
    with pytest.raises(Wrong, match="where the card runs all updates"):
        updates.updated(run, "tests/residual", 4)


@compiled
def test_small_batches_are_timed_as_a_graph_and_call_by_call(tmp_path, monkeypatch):
    monkeypatch.setattr(measure.tempfile, "gettempdir", lambda: str(tmp_path))
    place = Rehearsal()
    run = Run("l", place, Journal(tmp_path / "results.jsonl"), "now", time.time() + HOUR, False)
    monkeypatch.setattr(brief, "_theirs", lambda *_: None)
    replays = []
    seconds = brief._seconds
    monkeypatch.setattr(brief, "_seconds", lambda *a: (seconds(*a), replays.append(place.device().api.replays))[0])
    values = brief.brief(run, "tests/lenet", 1, "float32")
    assert values["seconds"] > 0 and values["call_seconds"] > 0 and 0 < replays[0] == replays[1]


def test_a_command_that_fails_or_goes_on_otherwise_is_noticed(monkeypatch, tmp_path):
    place = Rehearsal()
    place.named = "no such device"
    run = Run("c", place, Journal(tmp_path / "results.jsonl"), "now", time.time() + HOUR, False)
    with pytest.raises(Wrong, match=r"exit code 2: .*no such device"):
        digits.by_command(run)
    number, accuracy, begun = 0, 0.98, 5

    def trained(run, prefix, *more):
        nonlocal number
        number += 1
        prefix.with_name(f"{prefix.name}_iter_10.safetensors").write_text(f"{number > other}")
        document = {"iterations": 10, "tests": [{"outputs": {"accuracy": accuracy}}], "train_seconds": 1.0}
        return {**document, "description": "a card", "history": [{"iteration": begun}]}, 2.0

    monkeypatch.setattr(digits, "_command", trained)
    other = 9
    assert digits.by_command(run)["identical"]
    begun = 0
    with pytest.raises(Wrong, match="did not go on where it broke off"):
        digits.by_command(run)
    begun, other = 5, number + 1
    with pytest.raises(Wrong, match="leaves another snapshot"):
        digits.by_command(run)
    accuracy = 0.5
    with pytest.raises(Wrong, match=r"accuracy 50\.00%"):
        digits.by_command(run)


@compiled
def test_memcheck_sees_every_kernel_of_ours_with_tensors_of_their_own(monkeypatch, capsys):
    ran, once = set(), memchecked.once
    monkeypatch.setattr(sys, "argv", ["memchecked", "--rehearse"])
    monkeypatch.setattr(memchecked, "once", lambda device, e, algorithm: ran.add(e.op.kind))
    memchecked.main()
    assert ran == set(KINDS) and capsys.readouterr().out.splitlines()[-1].endswith("runs ended well")
    device, taken = fake_device(), []
    (e, *_) = operations.examples(small=True)["softmax.forward"]
    allocate = device.api.allocate
    monkeypatch.setattr(device.api, "allocate", lambda nbytes: taken.append(nbytes) or allocate(nbytes))
    once(device, e, device.algorithms(e.op)[0])
    assert sorted(taken) == sorted([0, 0, *(t.nbytes for t in e.op.tensors)]) and not device.api.allocated


@compiled
def test_weights_that_stay_are_noticed(monkeypatch):
    """Equal bytes of nets that learn nothing would show nothing."""
    device = fake_device()
    monkeypatch.setattr(policies, "feed", lambda machine, k: None)  # so the rate of learning is none
    net = Net.from_file(NET_FILES / "lenet.yaml")
    with pytest.raises(Wrong, match=r"learned nothing|not finite"):
        policies.trained(net, device, "liveness:m", estimate(device), None, False)


def test_policies_are_those_that_there_are_the_named_ones_first():
    found = Place().policies(("vdnn_dyn", "no_such_policy", "vdnn_conv:p"))
    assert found[:2] == ["vdnn_dyn", "vdnn_conv:p"] and set(found) == {*names(), "vdnn_conv:p"} - SOME_NETS


# ---- PyTorch's counterpart


@pytest.fixture
def torch():
    import torch

    torch.set_num_threads(1)  # many threads for small arrays only wait for one another
    return torch


def narrowed(net: Net) -> Net:
    """With fewer hidden units where there are thousands: alexnet's and vgg's many weights say nothing more."""
    layers = [
        layer.model_copy(
            update={"inner_product_param": layer.inner_product_param.model_copy(update={"num_output": 64})}
        )
        if layer.inner_product_param and layer.inner_product_param.num_output > 1000
        else layer
        for layer in net.parameter.layer
    ]
    return Net.from_parameter(net.parameter.model_copy(update={"layer": tuple(layers)}))


@pytest.mark.peer("torch")
@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", ["alexnet", "googlenet", "resnet20"])
def test_pytorch_computes_the_same(name):
    from benchmarks.gpu_check.speed import losses
    from benchmarks.nets import without_dropout
    from minidnn.backends import open_device

    device = open_device("cpu")
    device.api = Namespace(free_memory=lambda: 0)
    net = narrowed(without_dropout(zoo_net(name, 2)))
    mine, theirs = losses(net, device, "cpu")
    np.testing.assert_allclose(mine, theirs, rtol=2e-4)
    assert len(set(mine)) == 3, "each update changes the loss"


@pytest.mark.peer("torch")
@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("net", ["residual", "inception", "nested"])
def test_its_modes_compute_the_same(net):
    """checkpoint and save_on_cpu change memory and time, not numbers."""
    from benchmarks.nets import RATE, TRAIN, batch_of
    from benchmarks.peer import Peer, Trainer, first_weights

    loaded = Net.from_file(NET_FILES / f"{net}.yaml")
    graph, weights = loaded.graph("TRAIN"), first_weights(loaded)
    batch = {t.name: v for t, v in batch_of(programs(loaded, TRAIN, ("TRAIN",))["TRAIN"]).items()}
    found = {}
    for mode in ("eager", "checkpoint", "save_on_cpu"):
        peer = Peer(graph, weights, "cpu", drop=False)
        assert len(peer.segments) > 1
        peer.mode = mode
        found[mode] = Trainer(peer, batch, TRAIN, RATE).losses
    assert found["eager"] == found["checkpoint"] == found["save_on_cpu"]


# ---- what is brought


def test_the_wheels_are_those_that_the_machine_lacks():
    lines = (ROOT / "requirements" / "gpu-check.txt").read_text().splitlines()
    brought = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert all(re.fullmatch(r"[\d.]+", version) for version in brought.values()), "exact versions"
    assert f"{brought['nvidia-cudnn-frontend']}.".startswith(f"{packages.FRONTEND}.")
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = {re.split(r"[>=<]", line)[0] for line in setup["options"]["install_requires"].split()}
    there = {"numpy", "ml_dtypes", "rich", "safetensors", "threadpoolctl"}  # as the machine's list of packages says
    assert needed <= there | brought.keys()
