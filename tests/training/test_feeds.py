"""Labels: none reaches a kernel that names no class, and a batch that turns out bad costs no training."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest

import minidnn
from minidnn.cli.main import main
from minidnn.data import SOURCES, DataError, Source
from minidnn.memory.execution.machine import Machine
from minidnn.training import snapshot
from minidnn.training.events import Saved, Step
from minidnn.training.solver import Solver

MODEL = """
name: labelled
layer:
- {name: data, type: Data, top: [data, label], data_param: {source: "SOURCE", batch_size: 4}}
- {name: ip, type: InnerProduct, bottom: data, top: ip,
   inner_product_param: {num_output: 4, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss, loss_param: {ignore_label: 255}}
- {name: accuracy, type: Accuracy, bottom: [ip, label], top: accuracy, accuracy_param: {ignore_label: 255}}
"""
SOLVER = "net: model.yaml\nbase_lr: 0.01\nlr_policy: fixed\nmax_iter: 30\nrandom_seed: 4\nsnapshot_prefix: out/x\n"


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    return tmp_path


def model(case, labels) -> None:
    images = np.random.default_rng(1).standard_normal((len(labels), 6)).astype(np.float32)
    np.savez(case / "data.npz", x=images, y=np.array(labels))
    (case / "model.yaml").write_text(MODEL.replace("SOURCE", "npz:data.npz"))


@pytest.mark.parametrize("ignored", [True, False])
def test_a_label_that_names_no_class_is_refused_before_training(case, capsys, ignored):
    model(case, [0, 1, 255, 2, 7, 3, 0, 1])
    if not ignored:
        (case / "model.yaml").write_text((case / "model.yaml").read_text().replace("ignore_label: 255", ""))
    highest = 7 if ignored else 255
    assert main(["train", "solver.yaml", "--device", "reference"]) == 2
    assert f"data.npz: label {highest} occurs, but layer loss gets 4 scores" in capsys.readouterr().err


def test_ignored_labels_may_be_any_number(case):
    model(case, [0, 1, 255, 2, 255, 3, 0, 1])
    with Solver("solver.yaml", device="reference", max_iter=4) as solver:
        assert solver.solve().iteration == 4
    model(case, [255] * 8)
    with Solver("solver.yaml", device="reference", max_iter=2) as solver:
        assert solver.solve().iteration == 2


class Turning:
    """A dataset whose labels are not as it said, from some call on; or that cannot be read any more."""

    name, shape = "turning", (6,)

    def __init__(self, fault) -> None:
        self.calls, self.fault = 0, fault

    def highest(self, ignored=None) -> int:
        return 3

    def __len__(self) -> int:
        return 40

    def take(self, indices):
        self.calls += 1
        labels = (indices % 4).astype(np.int32)
        if self.calls > 5:
            if isinstance(self.fault, Exception):
                raise self.fault
            labels[2] = self.fault
        return np.ones((len(indices), 6), np.float32) * indices[:, None], labels


@dataclass(frozen=True)
class Fixed(Source):
    form, dataset = "turning:", None

    @classmethod
    def parse(cls, text, split):
        return cls(split)

    def sample_shape(self):
        return (6,)

    def open(self):
        return Fixed.dataset


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (9, r"turning: label 9 of sample \d+ names none of the 4 classes of layer loss"),
        (-1, r"turning: label -1 of sample \d+ names none"),
        (DataError("turning: page 5 is torn"), "page 5 is torn"),
        (OSError(5, "Input/output error"), "Input/output error"),
    ],
)
def test_a_batch_that_turns_out_bad_ends_the_run_with_a_snapshot(case, monkeypatch, fault, says):
    monkeypatch.setitem(SOURCES, "turning", Fixed)
    monkeypatch.setattr(Fixed, "dataset", Turning(fault))
    (case / "model.yaml").write_text(MODEL.replace("SOURCE", "turning:"))
    events = []
    with Solver("solver.yaml", device="reference") as solver, pytest.raises((DataError, OSError), match=says):
        for event in solver.run():
            events.append(event)
    assert [type(e) for e in events[-2:]] == [Step, Saved] and events[-1].iteration == 5
    assert snapshot.load(events[-1].path).iteration == 5
    monkeypatch.setattr(Fixed, "dataset", Turning(0))  # mended: the run goes on from there
    with Solver("solver.yaml", device="reference", resume="latest", max_iter=8) as solver:
        assert solver.solve().iteration == 8


NORMALIZED = MODEL.replace("bottom: data, top: ip,", "bottom: bn, top: ip,").replace(
    "- {name: ip,", "- {name: bn, type: BatchNorm, bottom: data, top: bn}\n- {name: ip,"
)


@pytest.mark.parametrize(("text", "saved"), [(MODEL, [2]), (NORMALIZED, [])], ids=["plain", "with statistics"])
def test_a_bad_batch_within_an_iteration_saves_what_was_before_it_or_nothing(case, monkeypatch, text, saved):
    """The sixth batch is bad: the second of the third iteration, of two batches each."""
    monkeypatch.setitem(SOURCES, "turning", Fixed)
    monkeypatch.setattr(Fixed, "dataset", Turning(9))
    (case / "model.yaml").write_text(text.replace("SOURCE", "turning:"))
    (case / "solver.yaml").write_text(SOLVER + "iter_size: 2\n")
    says = "label 9 of sample" if saved else "label 9 .* no snapshot is written, since the parts of this iteration"
    events = []
    with Solver("solver.yaml", device="reference") as solver:
        with pytest.raises(DataError, match=says):
            for event in solver.run():
                events.append(event)
        assert [e.iteration for e in events if isinstance(e, Saved)] == saved
        assert (solver.iteration, solver.position) == (2, 16)
        left = solver.values()
    if saved:
        monkeypatch.setattr(Fixed, "dataset", Turning(0))
        with Solver("solver.yaml", device="reference", max_iter=2) as solver:
            solver.solve()
            assert {k: v.tobytes() for k, v in solver.values().items()} == {k: v.tobytes() for k, v in left.items()}


def test_feeds_end_before_the_machine_whose_inputs_they_write(case, monkeypatch):
    """The next batch is on its way when a run ends: its bytes may not be given back under it."""
    model(case, [0, 1, 2, 3] * 4)
    begun, closed = threading.Event(), []

    def slow(machine, *args):
        begun.set()
        time.sleep(0.1)
        closed.append(machine._closed)
        write(machine, *args)

    with Solver("solver.yaml", device="cpu") as solver:
        write = Machine.write
        monkeypatch.setattr(Machine, "write", slow)
        solver.step()
        assert begun.wait(10)
    assert closed and not any(closed)


def test_a_comparison_needs_no_place_for_the_best_test(case):
    """It runs steps alone, and keeps no snapshot."""
    model(case, [0, 1, 2, 3] * 4)
    (case / "solver.yaml").write_text(
        SOLVER.replace("snapshot_prefix: out/x", "test_iter: 1\ntest_interval: 5\nminidnn: {keep_best: accuracy}")
    )
    rows = minidnn.compare("solver.yaml", ["baseline", "vdnn_all:m"], steps=2, device="cpu").rows
    assert [row.identical for row in rows] == [True, True]
