"""What the cuda backend enqueues is what the schedules say, and ordered wherever it must be; and the check that says so
finds every lost or misplaced wait that breaks a captured step (pytest -s prints the counts)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from random import Random
from time import perf_counter

import pytest

from minidnn.backends.cuda.runtime import CudaRuntime, Lost
from minidnn.costs import estimate
from minidnn.memory.execution import binding
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import Compute, Offload, Prefetch
from minidnn.optimizers import SGD
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.zoo import load
from tests.support import cpu_step
from tests.support.cuda import host as cuda_host
from tests.support.cuda import races as cuda_races
from tests.support.cuda.fake import Illegal, fake_device
from tests.support.cuda.orders import Judge
from tests.support.cuda.races import Check, IllegalCapture, Race, arranged, check_life, found
from tests.support.cuda.recorder import (
    Entry,
    Followed,
    Life,
    Unfaithful,
    captured,
    follow,
    followed,
    live,
    lived,
    recording_device,
)
from tests.support.paths import NET_FILES, ROOT, SMALL_NETS
from tests.support.policies import FEW
from tests.support.slow import quick_are

pytestmark = pytest.mark.extended


@pytest.mark.parametrize("policy", ["baseline:p", *FEW, "best"])
@pytest.mark.parametrize("net", quick_are(["residual"], SMALL_NETS))
def test_calls_follow_the_schedules_and_nothing_races(net, policy):
    """Both programs in one arena; eager, timed, checked and captured steps from both places of the inputs; freed bytes
    are poisoned."""
    device = recording_device()
    with lived(arranged(net, policy, device, ("TRAIN", "TEST")), device, debug=True) as life:
        checked = check_life(life)
    assert set(life.graphs) == {(name, place) for name in ("TRAIN", "TEST") for place in (0, 1)}
    assert min(life.counts[f"{mode} calls"] for mode in ("eager", "timed", "checked", "captured")) > 50
    assert life.counts["replays"] == 2 * (8 - 2 - 2) and checked.works > 400


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["liveness:p", "vdnn_all:m", "vdnn_dyn"])
@pytest.mark.parametrize("net", SMALL_NETS)
def test_nothing_races_either_where_steps_are_launched_ahead(net, policy):
    """The next step is enqueued, and outputs are read, while one runs; the loader writes once the one before ended."""
    device = recording_device()
    with lived(arranged(net, policy, device, ("TRAIN", "TEST")), device, debug=True, ahead=True) as life:
        checked = check_life(life)
    begins = [k for k, e in enumerate(life.trace) if e.kind == "step"] + [len(life.trace)]
    replayed = [
        kinds
        for a, b in pairwise(begins)
        if "replay" in (kinds := [e.kind for e in life.trace[a:b]]) and b < len(life.trace)
    ]
    assert len(replayed) == 2 * 4 - 1 and not any("synchronize" in kinds for kinds in replayed)
    assert all(kinds.count("reach") >= 2 for kinds in replayed[1:]), "for the step before, and for the outputs"
    assert set(life.graphs) == {(name, place) for name in ("TRAIN", "TEST") for place in (0, 1)}
    assert checked.works > 400


@pytest.mark.parametrize("ahead, state", [(False, "device"), (True, "device"), (False, "all"), (True, "all")])
def test_all_three_programs_of_a_solver_take_turns(ahead, state):
    """Gradients that live from step to step, weights too, and poison only where it is asked for."""
    device = recording_device()
    train = TrainSpec(SGD(momentum=0.9), clip_gradients=5.0, iter_size=2)
    made = programs(load(NET_FILES / "residual.yaml"), train, ("TRAIN", "TEST"), state=state)
    assert list(made) == ["ACCUMULATE", "TRAIN", "TEST"]
    with lived(arrange(list(made.values()), "vdnn_all:m", estimate(device)), device, ahead=ahead) as life:
        check_life(life)
    assert not any(e.what[:1] == ("fill",) for e in life.trace)


@pytest.mark.parametrize("ahead", [False, True])
def test_without_graphs_too(ahead):
    device = recording_device(graphs=False)
    with lived(arranged("residual", "vdnn_all:m", device), device, ahead=ahead) as life:
        check_life(life)
    assert not life.graphs and life.counts["eager calls"] > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "policy"),
    [
        *(("resnet50", p) for p in ("vdnn_conv:p", "layrub:m")),
        ("googlenet", "vdnn_dyn"),
    ],
)
def test_real_nets(net, policy, record_property):
    start, device = perf_counter(), recording_device()
    with lived(arranged(net, policy, device), device) as life:
        line = cuda_races.report(net, policy, life, perf_counter() - start)
    print(f"\n{line}")
    record_property("told", line)
    assert len(life.graphs) == 2 and life.counts["captured calls"] > 1000


@pytest.mark.skipif(find_spec("cudnn") is None, reason="nvidia-cudnn-frontend is not installed")
def test_plans_of_a_real_cudnn_too(record_property):
    """Engines and workspaces as on an H200. In a process of its own: cuDNN ends the process when it is unhappy."""
    words = ["--nets", "--of", "googlenet", "--policies", "vdnn_all:p", "vdnn_dyn", "--card", "h200"]
    command = [sys.executable, "-m", "tests.support.cuda.races", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        record_property("told", line)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("in order") == 2


@pytest.mark.slow
def test_every_lost_or_misplaced_wait_that_breaks_a_captured_step_is_found(record_property):
    start = perf_counter()
    tally = cuda_races.hunt(cuda_races.subjects_of(), 4000)
    for line in f"{tally}\n{perf_counter() - start:.1f} s".splitlines():
        print(line)
        record_property("told", line)
    assert not tally.missed, tally.missed[:5]
    assert not tally.cried, tally.cried[:5]
    assert not tally.other, tally.other[:5]
    assert tally.of("race") >= 500, "legal captures whose order is not enough"
    assert tally.broken["drop_wait", "race"] >= 500
    assert tally.of("illegal") >= 500, "what CUDA would refuse to capture"
    assert sum(tally.sound.values()) >= 200, "else it could say of all that they are broken"
    kinds = {name for name, _ in tally.broken}
    assert kinds == {m.__name__ for m in cuda_races.MUTATIONS}


@pytest.mark.slow
@pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to run CUDA sources with")
def test_steps_that_the_judge_calls_sound_compute_the_same_bytes(policy="vdnn_all:m"):
    """In any order that is tried; and for most that it calls broken, orders are found that compute others. (Freed bytes
    are poisoned: some waits are needed for the poison alone.)"""
    want = trained(fake_device(graphs=False), policy, None)
    device = recording_device()
    with lived(arranged("residual", policy, device), device, debug=True) as life:
        subject = cuda_races.subject("residual", life, ("TRAIN", 1))
    waits = [k for k, e in enumerate(subject.graph) if e.kind == "wait" and e.index is not None]
    verdicts = [subject.judge.broken([*subject.graph[:k], *subject.graph[k + 1 :]]) for k in waits]
    sound = [n for n, verdict in enumerate(verdicts) if verdict is None]
    racing = [n for n, verdict in enumerate(verdicts) if verdict == "race"][::4]
    assert len(sound) >= 4 and len(racing) >= 5
    assert [n for n in sound if trained(fake_device(n), policy, n) != want] == []
    noticed = [n for n in racing if any(trained(fake_device(seed), policy, n) != want for seed in range(2))]
    print(f"\n{policy}: {len(sound)} sound, the same bytes; {len(noticed)} of {len(racing)} racing, others")
    assert 2 * len(noticed) >= len(racing)


def trained(device, policy: str, dropped: int | None) -> dict[str, bytes]:
    """Four steps without the so-manieth wait; nothing where the fake finds that illegal."""
    with cpu_step.machine("residual", device, policy, debug=True) as m:
        for bound in m.loaded["TRAIN"].bound.values():
            waits = [k for k, (_, _, call) in enumerate(bound.calls) if getattr(call, "func", None) == device.api.wait]
            if dropped is not None:
                del bound.calls[waits[dropped]]
        for k in range(4):
            cpu_step.feed(m, k)
            try:
                m.step("TRAIN")
            except (Illegal, Lost):
                return {}
        return {name: value.tobytes() for name, value in cpu_step.persistent(m).items()}


# ---- the check itself ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_check_agrees_with_the_judge_on_any_captures():
    """Few bytes, touched in all ways; few or many events."""
    r, outcomes = Random(7), {}
    for case in range(3000):
        graph = any_capture(r)
        said = found([Entry("begin capture", 1), *graph, Entry("end capture", 1, 9), Entry("replay", 1, 9)], [1, 2, 3])
        is_ = Judge(graph, 1, []).broken(graph)
        assert said == is_, (case, graph)
        outcomes[is_] = outcomes.get(is_, 0) + 1
    assert min(outcomes[k] for k in (None, "race", "illegal")) > 200, outcomes


def any_capture(r: Random) -> list[Entry]:
    graph = [Entry("record", 1, 100), Entry("wait", 2, 100), Entry("wait", 3, 100)]
    many, wide, legal, recorded = r.choice([0.2, 0.5, 0.9]), r.choice([12, 40, 90]), r.random() < 0.8, [100]
    for k in range(r.randint(3, 24)):
        stream = r.randint(1, 3)
        if r.random() < many:
            graph.append(Entry("wait", stream, r.choice(recorded if legal else [*recorded, 999])))
        touched = [(lo, lo + r.randint(0, 8), r.random() < 0.4) for lo in r.choices(range(wide), k=r.randint(1, 3))]
        graph.append(Entry("work", stream, index=k, accesses=tuple(touched)))
        graph.append(Entry("record", stream, k))
        recorded.append(k)
    for side in (2, 3):
        graph += [Entry("record", side, 100 + side)]
        if legal or r.random() < 0.8:
            graph += [Entry("wait", 1, 100 + side)]
    return graph


@pytest.fixture(scope="module")
def lenet() -> Followed:
    device = recording_device()
    with lived(arranged("lenet", "vdnn_all:m", device), device) as life:
        return life


def test_each_instruction_is_enqueued_once(lenet):
    schedule = lenet.said["TRAIN", 0].s
    for graph in lenet.graphs.values():
        works: dict = {}
        for e in graph:
            if e.kind == "work":
                works.setdefault(e.index, []).append(e)
        does = [i for i, x in enumerate(schedule.instructions) if isinstance(x, Compute | Offload | Prefetch)]
        assert list(works) == does
        waits = [e for e in graph if e.kind == "wait" and e.index is not None]
        assert len(waits) == sum(type(x).__name__ == "Wait" for x in schedule.instructions)


def test_any_other_call_is_not_the_schedule_s(lenet):
    r, graph = Random(3), lenet.graphs["TRAIN", 1]
    streams = lenet.life.machine.runtime.streams
    said = captured(lenet.said["TRAIN", 1])
    follow(graph, said, streams)
    with pytest.raises(Unfaithful):
        follow(graph, captured(lenet.said["TRAIN", 0]), streams)  # another place of the inputs
    for _ in range(1500):
        with pytest.raises(Unfaithful):
            follow(another(graph, r), said, streams)


def another(graph: list[Entry], r: Random) -> list[Entry]:
    k = r.randrange(len(graph))
    e, out = graph[k], [replace(x) for x in graph]
    change = r.choice(["drop", "twice", "swap", "stream", "index", "told"])
    if change == "drop":
        del out[k]
    elif change == "twice":
        out.insert(k, out[k])
    elif change == "swap":
        j = k + 1 if k + 1 < len(out) else k - 1
        out[k], out[j] = out[j], out[k]
        if (e.kind, e.stream, e.event, e.index, e.what) == (out[k].kind, out[k].stream, *_rest(out[k])):
            return another(graph, r)
    elif change == "stream":
        out[k].stream = r.choice([s for s in {x.stream for x in graph} if s != e.stream])
    elif change == "index":
        out[k].index = (e.index or 0) + 1
    elif e.kind == "work":
        out[k].what = told_otherwise(e.what, r)
    else:
        out[k].event = r.choice([x.event for x in graph if x.kind != "work" and x.event != e.event])
    return out


def _rest(e: Entry) -> tuple:
    return e.event, e.index, e.what


def told_otherwise(what: tuple, r: Random) -> tuple:
    """One number, name or plan differs."""
    k = r.randrange(len(what))
    x = what[k]
    if isinstance(x, tuple) and x:
        new = told_otherwise(x, r)
    elif isinstance(x, int | float):
        new = x + r.choice([1, 256])
    elif isinstance(x, str):
        new = x + "_"
    elif isinstance(x, bytes):  # a table of pointers
        new = x + b"_"
    else:
        new = replace(x, index=x.index + 1) if x else "something"
    return (*what[:k], new, *what[k + 1 :])


# ---- faults of a runtime ---------------------------------------------------------------------------------------


def faulty(
    policy: str = "vdnn_all:m", net: str = "residual", graphs: bool = True, debug: bool = False, ahead: bool = False
) -> Life:
    device = recording_device(graphs=graphs)
    return live(device, arranged(net, policy, device), debug=debug, ahead=ahead)


def check(life: Life) -> Check:
    return Check(list(life.machine.runtime.streams.values())).run(life.api.trace)


@pytest.mark.parametrize("lost", ["synchronize", "step", "beside"])
def test_a_host_that_does_not_wait_races(lenet, lost):
    """The main thread for the streams, the main thread for the loader, the loader for the main thread."""
    check_life(lenet)
    with pytest.raises(Race):
        Check(list(lenet.life.machine.runtime.streams.values())).run(e for e in lenet.trace if e.kind != lost)


def test_a_step_whose_copies_do_not_wait_for_the_step_before_races():
    """Without the fork at a run's beginning nothing orders them with what is in flight. In this net the first copy in
    goes to bytes that the last kernels of a step use."""
    device = recording_device(graphs=False)
    with lived(arranged("inception", "vdnn_all:m", device), device, ahead=True) as life:
        check_life(life)
    streams = life.life.machine.runtime.streams
    sides = {streams["out"], streams["in"]}
    forks = [e for e in life.trace if e.kind == "wait" and e.index is None and e.stream in sides]
    assert len(forks) >= 2 * 7
    with pytest.raises(Race):
        Check(list(streams.values())).run(e for e in life.trace if e not in forks)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_step_that_is_not_waited_for_races(monkeypatch, ahead):
    monkeypatch.setattr(CudaRuntime, "settle", lambda self: setattr(self, "_flight", None))
    with pytest.raises(Race):
        check(faulty(graphs=False, ahead=ahead))


@pytest.mark.parametrize("lost", ["reach", "beside", "step"])
def test_a_host_that_does_not_wait_for_what_is_in_flight_races(lost):
    life = faulty(ahead=True)
    check(life)
    with pytest.raises(Race):
        Check(list(life.machine.runtime.streams.values())).run(e for e in life.api.trace if e.kind != lost)


def test_outputs_that_are_read_before_they_are_told_race(monkeypatch):
    monkeypatch.setattr(CudaRuntime, "wait_for_outputs", lambda self: None)
    with pytest.raises(Race):
        check(faulty(ahead=True))


def test_a_batch_that_is_written_before_the_step_that_reads_there_has_ended_races(monkeypatch):
    launch = CudaRuntime.launch

    def early(self, prepared, meanwhile=None):
        if meanwhile is not None:
            meanwhile()
        launch(self, prepared)

    monkeypatch.setattr(CudaRuntime, "launch", early)
    with pytest.raises(Race):
        check(faulty(ahead=True))


def test_inputs_with_one_place_race_with_the_loader(monkeypatch):
    real_copy = binding.Binder._copy
    monkeypatch.setattr(binding.Binder, "_copy", lambda self, loaded, x, place=0: real_copy(self, loaded, x))
    life = faulty()
    with pytest.raises(Unfaithful):
        followed(life)
    with pytest.raises(Race):
        check(life)


def test_poison_under_a_copy_back_races(monkeypatch):
    monkeypatch.setattr(binding, "fillable", lambda schedule: set(range(len(schedule.instructions))))
    life = faulty(debug=True)
    with pytest.raises(Unfaithful):
        followed(life)
    with pytest.raises(Race):
        check(life)


def test_a_graph_of_other_events_is_illegal(lenet):
    graph = lenet.graphs["TRAIN", 0]
    begin, end = Entry("begin capture", graph[0].stream), Entry("end capture", graph[0].stream, 1)
    outside = Entry("record", graph[0].stream, graph[0].event)
    streams = list(lenet.life.machine.runtime.streams.values())
    for wrong in (graph[1:], graph[:-1], graph[:-3] + graph[-2:]):
        with pytest.raises(IllegalCapture):
            Check(streams).run([outside, begin, *wrong, end])
    Check(streams).run([begin, *graph, end])
    with pytest.raises(IllegalCapture, match="replayed on another"):
        Check(streams).run([begin, *graph, end, Entry("replay", graph[1].stream, 1)])
