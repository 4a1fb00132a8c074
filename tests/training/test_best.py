"""The best snapshot and patience: kept under one name, the same in a run that was stopped and went on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minidnn.errors import InvalidInput
from minidnn.nets.net import Net
from minidnn.schema import InvalidFile
from minidnn.training import snapshot
from minidnn.training.best import Best
from minidnn.training.events import Ended, Saved, Step
from minidnn.training.events import Tested as Measured
from minidnn.training.keeping import Goal
from minidnn.training.snapshot import SnapshotError
from minidnn.training.solver import Solver
from tests.support.slow import usual_are
from tests.support.tiny import NET, samples, tiny


def solver(prefix: Path, **fields) -> Solver:
    given = {"device": "reference", "base_lr": 0.5, "seed": 3, "test_epochs": 1, "epochs": 6, **fields}
    return Solver(tiny(), data=samples(), test_data=samples(), snapshot_prefix=str(prefix), **given)


class Told:
    """Tests with these values, in turn, in place of those that are measured."""

    def __init__(self, monkeypatch, values):
        self.values = list(values)
        monkeypatch.setattr("minidnn.training.solver.evaluate", self)

    def __call__(self, session, feeds, batches, iteration, stopped, program, confusion):
        at = 0 if iteration == 0 else iteration // 4
        return Measured(iteration, {"accuracy": self.values[at], "loss": -self.values[at]}, 24, 0.1, program)


def test_the_best_test_has_its_snapshot(tmp_path, monkeypatch):
    Told(monkeypatch, [0.1, 0.5, 0.4, 0.9, 0.9, 0.2, 0.3])
    with solver(tmp_path / "run", keep_best="accuracy") as run:
        events = list(run.run())
        assert run.best == Best("accuracy", "highest", 0.9, 12, 24, 3)
    kept = [(e.iteration, e.best.value) for e in events if isinstance(e, Saved) and e.best]
    assert kept == [(0, 0.1), (4, 0.5), (12, 0.9)]
    found = snapshot.load(tmp_path / "run_best.safetensors")
    assert found.iteration == 12
    assert found.best == Best("accuracy", "highest", 0.9, 12, 12, 0).data()
    with solver(tmp_path / "alone", epochs=3) as alone:  # the weights are those that had been tested
        alone.solve()
        weights = alone.session.weights()
    assert all((values.whole() == weights[name]).all() for name, values in found.weights.items())
    assert [p.name for p in tmp_path.glob("run_*")].count("run_best.safetensors") == 1
    assert snapshot.latest(tmp_path / "run")[0] == tmp_path / "run_iter_24.safetensors"


@pytest.mark.parametrize("goal", usual_are(["accuracy", "loss"], ["accuracy", "loss", "highest:accuracy"]))
def test_patience_ends_the_run(tmp_path, monkeypatch, goal):
    Told(monkeypatch, [0.1, 0.5, 0.4, 0.5, 0.9, 0.9, 0.9])
    with solver(tmp_path / "run", keep_best=goal, patience=2) as run:
        *_, saved, ended = run.run()
    assert ended == Ended(12, None, Best(goal.rpartition(":")[2], run.best.way, run.best.value, 4, 12, 2), spent=True)
    assert isinstance(saved, Saved) and saved.iteration == 12  # what it ends with is saved
    with solver(tmp_path / "run", keep_best=goal, patience=2, resume="latest") as again:
        assert not [e for e in again.run() if isinstance(e, Step)]  # its patience is still spent
    with solver(tmp_path / "run", keep_best=goal, patience=3, resume="latest") as longer:
        assert longer.solve() == Ended(24, None, longer.best)
        assert (longer.best.iteration, longer.best.misses) == (16, 2)


def test_the_lowest_where_a_loss_is_kept(tmp_path):
    with solver(tmp_path / "run", keep_best="loss") as run:
        tests = {e.iteration: e.outputs["loss"] for e in run.run() if isinstance(e, Measured)}
    assert run.best.way == "lowest" and (run.best.iteration, run.best.value) == min(
        tests.items(), key=lambda item: (item[1], item[0])
    )  # fmt: skip


@pytest.mark.parametrize("form", ["SAFETENSORS", "BINARYPROTO"])
@pytest.mark.parametrize("stop", [3, 4, 7, 8, "best"])
def test_a_stopped_run_goes_on_with_the_same_best(tmp_path, stop, form):
    """Also where it stops between a test and the next iteration, so that the test is run twice and counted once."""
    fields = {"keep_best": "accuracy", "patience": 2, "snapshot_format": form}
    with solver(tmp_path / "whole", **fields) as whole:
        end = whole.solve()
    with solver(tmp_path / "run", **fields) as first:
        for event in first.run():
            if isinstance(event, Measured) and event.iteration == stop:
                break
            if isinstance(event, Step) and event.iteration + 1 == stop and stop % 4:
                break
            if stop == "best" and isinstance(event, Saved) and event.best and event.iteration:
                break
        first.save()
    with solver(tmp_path / "run", resume="latest", **fields) as second:
        assert second.solve() == end
    ends = [p for p in tmp_path.glob("whole_*") if p.suffix != ".solverstate"]  # which names its .caffemodel
    assert len(ends) >= 2
    for path in ends:
        assert path.read_bytes() == (tmp_path / path.name.replace("whole", "run")).read_bytes(), path.name


def test_a_test_that_was_counted_is_not_counted_again():
    goal = Goal("accuracy", "highest", "TEST")

    def test(iteration, value):
        return Measured(iteration, {"accuracy": value}, 1, 0.0)

    best = goal.after(goal.after(None, test(0, 0.5)), test(10, 0.5))
    assert (best.iteration, best.tested, best.misses) == (0, 10, 1)
    assert goal.after(best, test(10, 0.5)) == best
    assert goal.after(best, test(20, 0.5)).misses == 2


def test_another_run_may_keep_something_else(tmp_path):
    with solver(tmp_path / "run", keep_best="accuracy", epochs=1) as run:
        run.solve()
    with solver(tmp_path / "run", keep_best="loss", resume="latest") as run:
        assert run.best is None
        assert "the snapshot's run kept the highest accuracy" in run.notes[-1]
        assert run.notes[-1].endswith("; the lowest loss is kept from here on")
    with solver(tmp_path / "run", resume="latest") as run:
        assert run.best is None and run.notes[-1].endswith("; this run keeps none")


OUTPUT = "- {name: mean, type: Reduction, bottom: ip, top: mean, include: {phase: TEST}}"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"keep_best": "acuracy"}, r"output 'acuracy' \(did you mean 'accuracy'\?\); there are accuracy, loss, mean"),
        ({"keep_best": "mean"}, "mean is neither an Accuracy nor a loss: use highest:mean or lowest:mean"),
        ({"keep_best": "objective"}, "no test net has an output 'objective'"),
        ({"keep_best": "loss", "test_data": None, "test_epochs": None}, "keep_best needs tests"),
        ({"keep_best": "loss", "snapshot_prefix": ""}, "keep_best needs a snapshot_prefix"),
        ({"patience": 2}, "minidnn.patience: needs keep_best, which names the output"),
        ({"patience": 0, "keep_best": "loss"}, "minidnn.patience: expected at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept(tmp_path, fields, said):
    given = {"test_data": samples(), "snapshot_prefix": str(tmp_path / "run"), "epochs": 1, "test_epochs": 1, **fields}
    given = {name: value for name, value in given.items() if value is not None}
    with pytest.raises((InvalidInput, InvalidFile), match=said):
        Solver(Net.from_text(NET + OUTPUT), device="reference", data=samples(), **given)


def test_the_objective_and_a_word_for_the_way(tmp_path):
    for goal in ("objective", "lowest:mean"):
        given = {"keep_best": goal, "test_compute_loss": True, "epochs": 1, "test_epochs": 1}
        net = Net.from_text(NET + OUTPUT)
        with Solver(
            net, device="reference", data=samples(), test_data=samples(), snapshot_prefix=str(tmp_path / "o"), **given
        ) as run:  # fmt: skip
            assert run.solve().best.way == "lowest"


@pytest.mark.parametrize(
    "best", [[], {"output": 1}, {**Best("a", "highest", 1.0, 1, 1, 0).data(), "way": "up"}, {"value": 1e999}]
)
def test_a_snapshot_whose_best_is_none(tmp_path, best):
    with pytest.raises(ValueError, match="expected a usable"):
        Best.of(best)
    path = snapshot.save(tmp_path / "run", snapshot.Snapshot({}, {}, 1, 2, 3, best=None))
    assert "best" not in json.loads(snapshot._read(path)[1]["minidnn"])
    if isinstance(best, dict):
        path = snapshot.save(tmp_path / "run", snapshot.Snapshot({}, {}, 1, 2, 3, best=best))
        with pytest.raises(SnapshotError, match="corrupt: its best test is"):
            snapshot.load(path)


def test_a_folder_in_its_place_is_told_before_the_run(tmp_path):
    (tmp_path / "run_best.safetensors").mkdir()
    with (
        solver(tmp_path / "run", keep_best="accuracy") as run,
        pytest.raises(snapshot.SaveError, match=r"run_best\.safetensors: there is a folder"),
    ):  # fmt: skip
        run.solve()
