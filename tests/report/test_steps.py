"""Steps for other programs: Chrome's trace events, the snapshot of PyTorch's memory viewer, the map of the arena."""

from __future__ import annotations

import json
import pickle
import pickletools
import re
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import pytest

import minidnn
from minidnn.cli.main import main
from minidnn.errors import InvalidInput
from minidnn.memory.execution.lives import host_curves, lives
from minidnn.memory.schedule import Alloc, Compute, Free
from minidnn.report import arena, history
from minidnn.report.draw import ROLES

POLICIES = ["baseline:m", "vdnn_all:m", "layrub:m", "best"]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plans():
    return minidnn.plan("digits_lenet", POLICIES, gpu="titan_x", budget="2.5MiB")


def read(text: str) -> dict[int, dict[int, dict[str, list]]]:
    """{process: {thread: {phase: events}}} of a trace, read strictly by the format."""
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"} and document["displayTimeUnit"] == "ns"
    found: dict[int, dict[int, dict[str, list]]] = {}
    needed = {
        "X": {"name": str, "cat": str, "ts": float, "dur": float, "pid": int, "tid": int, "args": dict},
        "C": {"name": str, "ts": float, "pid": int, "args": dict},
        "M": {"name": str, "pid": int, "tid": int, "args": dict},
    }
    for event in document["traceEvents"]:
        fields = needed[event["ph"]]
        assert set(event) == {"ph", *fields}
        for field, kind in fields.items():
            assert type(event[field]) is kind, (field, event)
        assert event.get("ts", 0.0) >= 0 and event.get("dur", 0.0) >= 0
        phases = found.setdefault(event["pid"], {}).setdefault(event.get("tid", 0), {})
        phases.setdefault(event["ph"], []).append(event)
    return found


def test_slices_are_the_instructions_and_counters_the_points_of_memory(plans, tmp_path):
    plans.steps().save(tmp_path / "all.json")
    processes = read((tmp_path / "all.json").read_text())
    assert list(processes) == [1, 2, 3, 4]
    for step, threads in zip(plans.steps(), processes.values(), strict=True):
        named = {tid: phases["M"][0]["args"]["name"] for tid, phases in threads.items()}
        assert named[0] == f"{step.policy}, simulated on titan_x"
        slices = {named[tid]: phases.get("X", []) for tid, phases in threads.items() if tid}
        stalls = slices.pop("compute waits for")
        kinds = Counter(type(x).__name__ for x in step.schedule.instructions)
        streams = {"compute": kinds["Compute"], "copies out": kinds["Offload"], "copies in": kinds["Prefetch"]}
        assert {name: len(events) for name, events in slices.items()} == streams
        assert len(stalls) == sum(w.stream == "compute" for w in step.trace.waits) > 0
        assert sum(e["dur"] for e in stalls) == pytest.approx(step.trace.stall_seconds * 1e6, abs=1e-2)
        counters = Counter(e["name"] for e in threads[0]["C"])
        pinned = host_curves(step.schedule, step.trace)["pinned"]
        assert counters == {"device": len(step.trace.memory), "pinned host": len(pinned)}
        live = [e["args"]["bytes"] for e in threads[0]["C"] if e["name"] == "device"]
        assert live == [nbytes for _, nbytes in step.trace.memory] and max(live) == step.schedule.live_peak
        for events in (*slices.values(), stalls):  # the slices of a thread do not overlap, to the nanosecond
            times = sorted((round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)) for e in events)
            assert all(a[1] <= b[0] for a, b in pairwise(times))


def test_a_slice_tells_its_layer_and_algorithm_and_a_stall_its_copy(plans):
    step, document = plans.steps("vdnn_all:m")[0], plans.steps("vdnn_all:m").trace()
    told = {e["args"]["instruction"]: e for e in document["traceEvents"] if e["ph"] == "X"}
    for i, x in enumerate(step.schedule.instructions):
        if isinstance(x, Compute):
            args = told[i]["args"]
            assert (args["layer"], args["algorithm"], args["bytes"]) == (x.op.layer, x.algorithm.name, x.op.nbytes)
            assert args["reads"] == [t.name for t in x.op.reads]
    stalls = [e for e in document["traceEvents"] if e.get("cat") == "stall"]
    assert stalls[0]["name"] == "copy in: data" and stalls[0]["args"]["tensor"] == "data"
    for e in stalls:
        on = step.schedule.instructions[e["args"]["waits_for"]]
        assert on.residency.tensor.name == e["args"]["tensor"] and e["name"].endswith(f": {e['args']['tensor']}")
    other = document["otherData"]
    assert (other["net"], other["batch"], other["origin"]) == ("digits_lenet", 128, "profile")
    assert other["budget_bytes"] == 2621440 and other["steps"] == {"vdnn_all:m": "simulated on titan_x"}


def test_a_run_gives_measured_steps(tmp_path, own_cache, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["--device", "reference", "--batch", "8", "--trace", "t.json", "--arena", "a.svg"]
    assert main(["time", "digits_lenet", "--policy", "vdnn_all", "--iterations", "2", *argv]) == 0
    assert capsys.readouterr().out.endswith("trace: t.json\narena: a.svg\n")
    (threads,) = read((tmp_path / "t.json").read_text()).values()
    assert threads[0]["M"][0]["args"]["name"] == "vdnn_all, measured on reference"
    assert len(threads[1]["X"]) > 30 and ElementTree.parse(tmp_path / "a.svg").getroot().tag == f"{SVG}svg"
    assert main(["compare", "digits_lenet", "--policies", "vdnn_all", "--steps", "2", *argv, "--json"]) == 0
    assert json.loads((tmp_path / "t.json").read_text())["otherData"]["steps"] == {"vdnn_all": "measured on reference"}


def test_the_history_is_that_of_an_allocator(plans, tmp_path):
    plans.steps().save(tmp_path / "all.pickle")
    snapshot = pickle.loads((tmp_path / "all.pickle").read_bytes())
    assert snapshot == plans.steps().history()
    for step, entries, segment in zip(plans.steps(), snapshot["device_traces"], snapshot["segments"], strict=True):
        begin, end = history.BASE, history.BASE + step.schedule.arena
        assert (entries[0]["action"], entries[0]["addr"], entries[0]["size"]) == ("segment_alloc", begin, end - begin)
        live: dict[int, int] = {}
        most = 0
        for e in entries[1:]:
            if e["action"] == "alloc":
                assert begin <= e["addr"] and e["addr"] + e["size"] <= end
                assert all(a + n <= e["addr"] or e["addr"] + e["size"] <= a for a, n in live.items())
                live[e["addr"]] = e["size"]
                most = max(most, sum(live.values()))
            elif e["action"] == "free_completed":
                assert live.pop(e["addr"]) == e["size"]
            assert e["frames"][-1]["filename"] == f"{step.policy}, simulated on titan_x"
        assert step.schedule.live_peak <= most <= step.schedule.arena
        times = [e["time_us"] for e in entries]
        assert times == sorted(times) and times[-1] <= step.trace.seconds * 1e6 + 1
        active = {b["address"]: b["size"] for b in segment["blocks"] if b["state"] == "active_allocated"}
        assert active == live and sum(b["size"] for b in segment["blocks"]) == segment["total_size"] == end - begin
        for e in entries:
            if e["frames"][-1]["name"] == "before the step":
                continue
            x = step.schedule.instructions[e["frames"][-1]["line"]]
            assert isinstance(x, Alloc if e["action"] == "alloc" else Free)
            assert step.schedule.offset[x.buffer] == e["addr"] - begin
            first = x.buffer.residencies[0].tensor
            assert e["frames"][0]["name"].startswith(f"{first!r} ") and e["category"] == first.role.value


# The opcodes that the viewer's own reader of pickles knows (torch/utils/viz/MemoryViz.js).
OPCODES = [
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "NONE", "NEWTRUE",
    "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_LIST",
    "EMPTY_DICT", "EMPTY_TUPLE", "LIST", "DICT", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "SETITEM",
    "SETITEMS",
]  # fmt: skip


def test_the_file_has_no_opcode_that_the_viewer_in_a_browser_does_not_know(plans):
    found = {opcode.name for opcode, _, _ in pickletools.genops(history.pickled(plans.steps()))}
    assert found <= set(OPCODES) and {"SHORT_BINUNICODE", "LONG1", "FRAME"} <= found
    entries = plans.steps().history()["device_traces"][0]
    assert "unknown" in {e["category"] for e in entries if e["action"] in ("alloc", "segment_alloc")}


@pytest.mark.peer("torch")
def test_pytorchs_memory_viewer_loads_the_history(plans):
    import torch.cuda._memory_viz as viewer

    snapshot = plans.steps().history()
    total = sum(segment["total_size"] for segment in snapshot["segments"])
    said = viewer.segsum(snapshot)
    assert f"segments: {len(POLICIES)}\n" in said and f"total_reserved: {viewer.Bytes(total)}\n" in said
    for policy, segment in zip(POLICIES, snapshot["segments"], strict=True):
        persistent = [b for b in plans.schedule(policy).buffers if b.persistent]
        assert viewer.calc_active(segment) == segment["active_size"] >= sum(b.nbytes for b in persistent) > 0
    listed = viewer.trace(snapshot)
    for number, policy in enumerate(POLICIES):
        buffers = plans.schedule(policy).buffers
        part = listed.split(f"Device {number} ")[1].split("Device")[0]
        assert len(re.findall(r"^\w+ = \w+\[", part, re.M)) == len(buffers)  # all lie within the segment
        assert part.count("free completed for") == len([b for b in buffers if not b.persistent])
    for plot in (viewer.trace_plot, viewer.segment_plot):
        assert "MemoryViz.js" in plot(snapshot)
    left = viewer.trace_plot(plans.steps().history(), filter_freed=True)
    assert len(left) < len(viewer.trace_plot(snapshot))


def rectangles(svg: str) -> list[tuple[str, str]]:
    """(class, title) of each tensor of the maps."""
    root = ElementTree.fromstring(svg)
    groups = [g for g in root.iter(f"{SVG}g") if g.get("class") == "lives"]
    return [(r.get("class"), r.find(f"{SVG}title").text) for g in groups for r in g]


def test_the_map_has_a_rectangle_for_each_residency_at_its_offset(plans):
    step = plans.steps("best")[0]
    found = lives(step.schedule, step.trace)
    svg = plans.steps("best").arena()
    assert rectangles(svg) == [(arena.KINDS[v.tensor.role], arena.description(v)) for v in found]
    scale = arena.Scale([step], 2621440)
    root = ElementTree.fromstring(svg)
    (group,) = (g for g in root.iter(f"{SVG}g") if g.get("class") == "lives")
    for r, life in zip(group, found, strict=True):
        x, y, width, height = (float(r.get(name)) for name in ("x", "y", "width", "height"))
        assert x == pytest.approx(scale.x(life.start), abs=0.06)
        assert y + height == pytest.approx(scale.y(life.offset), abs=0.6)  # half a pixel is left between neighbours
        assert x + width == pytest.approx(scale.x(life.end), abs=0.6)
    words = [t.text for t in root.iter(f"{SVG}text")]
    assert "budget 2.50 MiB" in words and f"peak of live bytes: {sized(step)}" in words
    assert {ROLES[kind] for kind, _ in rectangles(svg)} <= set(words)


def sized(step) -> str:
    return minidnn.sizes.text(step.schedule.live_peak)


def test_the_page_loads_nothing_and_has_the_same_titles(plans):
    steps = plans.steps()
    page = arena.page(steps, steps.limit, steps.title, steps.notes, "0")
    assert page.count("<script>") == 1 and "src=" not in page and "href=" not in page
    assert not re.search(r"(https?:)?//(?!www\.w3\.org/2000/svg)\w+\.\w", page)
    for _, title in rectangles(steps.arena()):
        assert f"<title>{title}</title>" in page


def test_a_net_of_thousands_of_tensors_has_a_map_below_two_megabytes(tmp_path):
    steps = minidnn.plan("resnet152", "vdnn_all:p", batch=32, gpu="titan_x").steps()
    for name in ("a.svg", "a.html"):
        steps.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size < 2 << 20
    assert len(rectangles(steps.arena())) > 2500


def test_what_cannot_be_written_is_refused_before_the_work(plans, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    no_step = "--save makes a plan and simulates no step"
    refused = {
        ("plan", "--trace", "t.html"): "--trace t.html: expected a name that ends in .json or .pickle",
        ("compare", "--arena", "a.json"): "--arena a.json: expected a name that ends in .svg or .html or .png",
        ("time", "--trace", "no/t.json"): "--trace no/t.json: there is no folder no",
        ("time", "--algorithms", "--arena", "a.svg"): "--algorithms runs no step: leave out --arena",
        (
            "plan",
            "--save",
            "p.plan",
            "--trace",
            "t.json",
        ): f"{no_step}: leave out --trace",
    }
    for (verb, *options), said in refused.items():
        assert main([verb, "digits_lenet", "--gpu", "titan_x", *options]) == 2
        assert capsys.readouterr().err == f"minidnn: {said}\n"
    with pytest.raises(InvalidInput, match=r"save x\.txt: expected a name"):
        plans.steps().save("x.txt")
    with pytest.raises(KeyError):
        plans.steps("nosuch")
    assert list(tmp_path.iterdir()) == []
