"""A plan as a file: it comes back as it was, runs to the same bytes, and is refused where it does not belong."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import minidnn
from minidnn.cli.main import main
from minidnn.costs import Choice, estimate, profile
from minidnn.jobs.job import read
from minidnn.memory import policies
from minidnn.memory.budget import BudgetError
from minidnn.memory.plan import OffloadInterval, Plan, Slot
from minidnn.memory.planning import arrange
from minidnn.memory.policies import plan_file, plan_version_1
from minidnn.memory.policies.plan_file import PlanError
from minidnn.nets.net import Net
from minidnn.program import Algorithm
from minidnn.programs.build import programs
from tests.support.paths import NET_FILES
from tests.support.policies import SOLVED
from tests.support.slow import extended_are, usual_are

TITAN = profile("titan_x")
PLANS = Path(__file__).parents[2] / "support" / "plans"


def lowered(name, batch=None):
    return tuple(programs(Net.from_file(NET_FILES / f"{name}.yaml", batch), None, ("TRAIN", "TEST")).values())


@pytest.fixture
def saved(tmp_path):
    def save(net="inception", policy="vdnn_all:m", costs=TITAN):
        path = tmp_path / "it.plan"
        arrangement = arrange(lowered(net), policy, costs)
        plan_file.save(path, arrangement, costs)
        return path, arrangement

    return save


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", extended_are(SOLVED, [name for name in policies.names() if name not in policies.SOME_NETS])
)
@pytest.mark.parametrize("net", usual_are(["residual"], ["inception", "residual"]))
def test_a_plan_comes_back_as_it_was(saved, net, policy):
    path, before = saved(net, policy)
    after = arrange(lowered(net), str(path), TITAN)
    for name, schedule in before.schedules.items():
        assert str(after.schedules[name]) == str(schedule)
        assert after.schedules[name].plan.share == schedule.plan.share


def test_copies_on_demand_come_back_as_they_were(tmp_path):
    programs = lowered("residual")[:1]
    with pytest.raises(BudgetError) as refused:
        arrange(programs, "superneurons_on_demand", TITAN, 1)
    before = arrange(programs, "superneurons_on_demand", TITAN, refused.value.smallest)
    plan_file.save(tmp_path / "it.plan", before, TITAN)
    assert any(offload.on_demand for offload in before.schedules["TRAIN"].plan.offloads)
    after = arrange(programs, str(tmp_path / "it.plan"), TITAN)
    assert str(after.schedules["TRAIN"]) == str(before.schedules["TRAIN"])


def test_all_of_a_plan_is_saved():
    """Whoever adds a field to Plan, OffloadInterval or Slot must decide what a file says of it."""
    decisions = {f.name for f in dataclasses.fields(Plan)} - {"bound"}  # which holds for one budget alone
    assert decisions == {
        "order", "offloads", "algorithm", "share", "hold", "host_resident", "host_ops", "asap", "program",
    }  # fmt: skip
    assert {f.name for f in dataclasses.fields(OffloadInterval)} >= {"tensor", *plan_file.POINTS}
    assert {f.name for f in dataclasses.fields(Slot)} == {"name", "nbytes"}


def test_a_file_of_version_1_has_other_words_for_the_same_plan(saved):
    """Such a file is of before the words offload interval, host-resident, host op and asap."""
    path, before = saved("residual", "best")
    content = json.loads(path.read_text())
    words = {new: old for old, new in (plan_version_1.WORDS | plan_version_1.POINTS).items()}

    def old(value):
        if isinstance(value, dict):
            return {words.get(key, key): old(one) for key, one in value.items()}
        return [old(one) for one in value] if isinstance(value, list) else value

    text = json.dumps(old(content) | {"minidnn_plan": 1})
    assert all(f'"{word}"' in text for word in words.values()) and not any(f'"{word}"' in text for word in words)
    path.write_text(text)
    after = arrange(lowered("residual"), str(path), TITAN)
    assert {name: str(s) for name, s in after.schedules.items()} == {
        name: str(s) for name, s in before.schedules.items()
    }


@pytest.mark.parametrize(("file", "ranks"), [("ranks_1.plan", 2), ("parts_1.plan", None)])
def test_files_of_version_1_are_read(file, ranks):
    """Written by minidnn before its ops of ranks and of parts had other names."""
    job = read("lenet", {"ranks": ranks}, 16, "titan_x")
    arrangement = arrange(job.programs, str(PLANS / file), job.costs())
    (schedule,) = arrangement.schedules.values()
    assert {region.count for region in schedule.program.parts} == (set() if ranks else {4})
    assert any(op.on_net for op in schedule.program.ops) == bool(ranks)


def test_names_of_ops_of_version_1_also_behind_a_tensor():
    old = {"order": ["net.gather", "net.exchange1", "a.y.join"], "share": {"w at net.gather1#2": "x[0:4].take"}}
    new = {
        "order": ["net.all_gather", "net.all_to_all1", "a.y.concat"],
        "share": {"w at net.all_gather1#2": "x[0:4].slice"},
    }
    assert plan_version_1.of_today({"minidnn_plan": 1, "programs": {"TRAIN": old}})["programs"]["TRAIN"] == new
    same = {"order": ["net.gathering", "joint.forward", "take.forward"]}
    assert plan_version_1.of_today({"programs": {"TRAIN": same}})["programs"]["TRAIN"] == same


def test_one_fact_a_line(saved, tmp_path):
    path, _ = saved(policy="vdnn_conv:m")
    other = tmp_path / "other.plan"
    plan_file.save(other, arrange(lowered("inception"), "vdnn_all:m", TITAN), TITAN)
    a, b = (set(p.read_text().splitlines()) for p in (path, other))
    offloads = [line for line in b - a if '"tensor"' in line]
    assert offloads and all(json.loads(line.rstrip(",")) for line in offloads), (
        "what differs is whole offload intervals"
    )


def test_training_by_a_file_gives_the_same_bytes(tmp_path):
    random = np.random.default_rng(1)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
    net = NET_FILES / "residual.yaml"

    def trained(policy):
        fields = dict(base_lr=0.05, momentum=0.9, max_iter=2)
        with minidnn.Solver(minidnn.load(net), policy=policy, device="cpu", seed=3, data=data, **fields) as solver:
            solver.step(), solver.step()
            path = tmp_path / "run.plan"
            plan_file.save(path, solver.arrangement, estimate(solver.session.device))
            return str(path), {name: array.tobytes() for name, array in solver.values().items()}

    path, want = trained("vdnn_all:m")
    assert trained(path)[1] == want


def test_refused_under_a_budget(saved):
    path, arrangement = saved()
    with pytest.raises(BudgetError, match=f"smallest budget .*it.plan can keep is {arrangement.arena} bytes"):
        arrange(lowered("inception"), str(path), TITAN, arrangement.arena - 256)
    arrange(lowered("inception"), str(path), TITAN, arrangement.arena)


def test_refused_for_another_net_saying_what_differs(saved):
    path, _ = saved()
    with pytest.raises(
        PlanError, match=r"of another net: data is float32 \d+x3x12x12 in the plan and float32 2x3x12x12"
    ):
        arrange(lowered("inception", 2), str(path), TITAN)
    with pytest.raises(PlanError, match=r"another net: .*, and \d+ more"):
        arrange(lowered("chain"), str(path), TITAN)
    with pytest.raises(PlanError, match="plans TRAIN, TEST, not ACCUMULATE"):
        (first, *_) = lowered("inception")
        arrange([dataclasses.replace(first, name="ACCUMULATE")], str(path), TITAN)


def test_refused_for_other_fusion_saying_so(tmp_path, capsys):
    net, path = str(NET_FILES / "chain.yaml"), str(tmp_path / "a.plan")
    assert main(["plan", net, "--policy", "vdnn_all:m", "--gpu", "titan_x", "--save", path]) == 0
    assert main(["plan", net, "--policy", path, "--gpu", "titan_x", "--no-fusion"]) == 2
    assert "the plan's device makes one op conv1+relu1.forward of several, this one does not" in capsys.readouterr().err


def test_refused_for_other_costs_saying_what_differs(saved):
    path, _ = saved()

    def more(op):
        return [Choice(Algorithm(c.algorithm.name, c.algorithm.workspace + 8), c.seconds) for c in TITAN.choices(op)]

    other = dataclasses.replace(TITAN, device="mine", choices=more)
    with pytest.raises(
        PlanError, match=r"a plan for titan_x: .* takes implicit_gemm with 0 bytes.* mine offers .*\(8\)"
    ):
        arrange(lowered("inception"), str(path), other)


def edit(path, change):
    content = json.loads(path.read_text())
    change(content["programs"]["TRAIN"], content)
    path.write_text(json.dumps(content))


def _late(train, _):
    offload = next(t for t in train["offloads"] if t["offload_at"] and t["prefetch_at"])
    offload["prefetch_at"] = offload["needed_at"] = "end"


def _aliased(train, _):
    train["share"]["norm1.y"] = "relu1.y"  # which LRN's backward still reads


@pytest.mark.parametrize(
    "change, says",
    [
        (_late, r"does not hold: .* is not on the device"),
        (_aliased, "does not hold: "),
        (lambda t, _: t["order"].append("nobody.forward"), "there is no op 'nobody.forward'"),
        (lambda t, _: t["offloads"][0].update(prefetch_at="conv1.forwrd"), "did you mean 'conv1.forward'"),
        (lambda t, _: t["offloads"][0].pop("free_at"), "an offload interval"),
        (lambda t, _: t["hold"].append("nothing"), "there is no tensor 'nothing'"),
        (
            lambda t, _: t["share"].update({"relu1.y": {"slot": "a", "nbytes": 10**30}}),
            "relu1.y shares .*a slot with its",
        ),
        (
            lambda t, _: t["offloads"][0].update(into={"slot": "a", "nbytes": -8}),
            "an offload interval of .* shares .*a slot with its",
        ),
        (lambda t, _: t["offloads"][0].update(on_demand="yes"), "on_demand is true, or left out"),
        (lambda t, _: t["algorithm"].update({"conv1.forward": ["fast"]}), "not a plan: programs.TRAIN.algorithm"),
        (lambda t, _: t["ops"].update({"conv1.forward": "0"}), "conv1.forward has other constants or tensors"),
        (lambda _, file: file.update(minidnn_plan=3), "of version 3"),
        (lambda _, file: file.pop("policy"), "policy: "),
    ],
)
def test_what_was_changed_by_hand_is_refused(saved, change, says):
    path, _ = saved("chain")
    edit(path, change)
    with pytest.raises(PlanError, match=says):
        arrange(lowered("chain"), str(path), TITAN)


@pytest.mark.parametrize("text, says", [("", ":1:1: not a plan"), ("{\n 3}", ":2:2: not a plan"), ("[]", "not a plan")])
def test_what_is_no_plan(tmp_path, capsys, text, says):
    path = tmp_path / "no.plan"
    path.write_text(text)
    assert main(["plan", str(NET_FILES / "chain.yaml"), "--policy", str(path)]) == 2
    assert says in capsys.readouterr().err


def test_the_verb(tmp_path, capsys):
    net, path = str(NET_FILES / "chain.yaml"), str(tmp_path / "a.plan")
    assert main(["plan", net, "--policy", "vdnn_all:m", "--save", path]) == 0
    assert "proved" in capsys.readouterr().out
    assert main(["plan", net, "--policies", f"vdnn_all:m,{path}", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["rows"]
    assert {**first, "policy": ""} == {**second, "policy": ""}
    before = Path(path).read_text()
    assert main(["plan", net, "--policy", "baseline:m", "--budget", "1KiB", "--save", path]) == 2
    assert Path(path).read_text() == before, "a refused plan replaces nothing"
    assert main(["plan", net, "--policies", "baseline:m,liveness:m", "--save", path]) == 2
    assert main(["plan", net, "--policy", "baseline:m", "--save", str(tmp_path / "a.txt")]) == 2
    assert main(["plan", net, "--policy", str(tmp_path / "none.plan")]) == 2
