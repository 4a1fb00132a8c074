"""Logs of lines: each event as it comes, appended where a run goes on, and never in place of another file."""

from __future__ import annotations

import csv
import errno
import json
import os
import resource
from pathlib import Path

import pytest

from minidnn.errors import InvalidInput
from minidnn.training.events import Saved, Step
from minidnn.training.logs.appended import Appended, whole_lines
from minidnn.training.logs.logs import LogError
from minidnn.training.solver import Solver
from tests.support.tiny import SAMPLES, samples, tiny


def solver(folder: Path, **fields) -> Solver:
    given = {"device": "reference", "seed": 3, "epochs": 2, "test_epochs": 1, "log": str(folder / "run.jsonl")}
    arrays = {"data": samples(), "test_data": samples()}
    return Solver(tiny(), **arrays, snapshot_prefix=str(folder / "run"), **{**given, **fields})


def documents(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_event_is_a_line_at_once(tmp_path):
    with solver(tmp_path, keep_best="accuracy") as run:
        for count, event in enumerate(run.run(), start=1):
            found = documents(tmp_path / "run.jsonl")
            assert len(found) == count and found[-1]["iteration"] == event.iteration
    kinds = [document["event"] for document in found]
    assert kinds[:4] == ["begin", "test", "snapshot", "step"] and kinds[-1] == "end"
    assert kinds.count("step") == 8 and kinds.count("test") == 3
    steps = [document for document in found if document["event"] == "step"]
    assert [document["epoch"] for document in steps] == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]
    assert list(steps[0]) == [
        "event", "iteration", "epoch", "loss", "smoothed_loss", "rate", "step_seconds", "images_per_second",
        "train/loss",
    ]  # fmt: skip
    assert all(document["loss"] == document["train/loss"] and document["rate"] == 0.01 for document in steps)
    assert all(abs(d["images_per_second"] * d["step_seconds"] / 6 - 1) < 1e-9 for d in steps)
    (first, *_) = (document for document in found if document["event"] == "test")
    assert list(first) == ["event", "iteration", "epoch", "test/accuracy", "test/loss", "images", "seconds"]
    assert first["images"] == SAMPLES + 4 and found[-1]["best"] == run.best.data()


def test_csv_has_a_row_for_each_step_and_each_test(tmp_path):
    log = tmp_path / "run.csv"
    with solver(tmp_path, log=[str(log), str(tmp_path / "too.jsonl")], test_compute_loss=True) as run:
        events = list(run.run())
    rows = list(csv.DictReader(log.open()))
    assert list(rows[0])[:3] == ["event", "iteration", "epoch"]
    assert list(rows[0])[-4:] == ["train/loss", "test/accuracy", "test/loss", "test/objective"]
    assert [row["event"] for row in rows] == ["test", *["step"] * 4, "test", *["step"] * 4, "test"]
    assert rows[0]["loss"] == "" and float(rows[0]["test/objective"]) == pytest.approx(float(rows[0]["test/loss"]))
    assert rows[1]["test/loss"] == "" and float(rows[1]["loss"]) == next(e.loss for e in events if isinstance(e, Step))
    assert len(documents(tmp_path / "too.jsonl")) == len(events)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_run_that_goes_on_appends_and_one_that_begins_begins_anew(tmp_path, suffix):
    log = tmp_path / f"run{suffix}"
    with solver(tmp_path, log=str(log)) as run:
        run.solve(epochs=1)
        before = log.read_text()
        run.solve(epochs=2)
        assert log.read_text().startswith(before)
    log.write_text(before + '{"event": "st')  # as a machine leaves it that stopped in the middle
    with solver(tmp_path, log=str(log), resume="latest", epochs=3) as again:
        again.solve()
    whole = log.read_text()
    assert whole.startswith(before) and '{"event": "st{' not in whole and whole.endswith("\n")
    assert whole.count("event,iteration,epoch") == (1 if suffix == ".csv" else 0)
    with solver(tmp_path, log=str(log), epochs=1) as anew:
        anew.solve()
    lines = log.read_text().splitlines()
    assert len(lines) == len(before.splitlines())


def test_the_folder_of_the_snapshots_is_made(tmp_path):
    new = tmp_path / "out"
    with solver(new) as run:
        assert not new.exists()
        run.solve()
    assert len(documents(new / "run.jsonl")) == 1 + 8 + 3 + 1 + 1
    with solver(tmp_path / "none", snapshot_after_train=False) as run:
        run.solve()
    assert [path.name for path in (tmp_path / "none").iterdir()] == ["run.jsonl"]


def test_no_other_file_is_replaced(tmp_path):
    for name in ("mine.csv", "mine.jsonl"):
        (tmp_path / name).write_text("a,b\n1,2\n")
        with pytest.raises(InvalidInput, match=rf"log .*{name}: exists already, and is not the log of a run"):
            solver(tmp_path, log=str(tmp_path / name))
        assert (tmp_path / name).read_text() == "a,b\n1,2\n"
    other = tmp_path / "other.csv"
    other.write_text("event,iteration,epoch,loss\n")
    with solver(tmp_path, log=str(other)) as run:
        run.step(1)
        with pytest.raises(
            InvalidInput, match="has different columns from this run, which has loss, smoothed_loss, rate"
        ):
            run.solve()
    assert other.read_text() == "event,iteration,epoch,loss\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none/run.jsonl", "there is no folder .*none"),
        ("run.txt", r"expected a name that ends in \.jsonl or \.csv"),
        ("folder.csv", "is a folder"),
        ("pipe.jsonl", "is not a regular file"),
    ],
)
def test_what_cannot_be_a_log_is_told_before_the_run(tmp_path, name, said):
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InvalidInput, match=f"log .*{name}: {said}"):
        solver(tmp_path, log=str(tmp_path / name))


def test_a_log_that_cannot_be_written_ends_the_run_with_a_snapshot(tmp_path, monkeypatch):
    written = Appended.write

    def write(self, record):
        if b'"iteration": 5' in record:
            raise OSError(errno.ENOSPC, "No space left on device")
        written(self, record)

    monkeypatch.setattr(Appended, "write", write)
    seen = []
    with solver(tmp_path) as run, pytest.raises(LogError, match=r"log .*run\.jsonl: could not be written: No space"):
        run.solve(seen.append)
    assert isinstance(seen[-2], Step) and seen[-2].iteration == 5  # the event itself is shown
    assert seen[-1] == Saved(6, tmp_path / "run_iter_6.safetensors")
    monkeypatch.undo()
    with solver(tmp_path, resume="latest") as again:
        assert again.solve().iteration == 8
    steps = [d["iteration"] for d in documents(tmp_path / "run.jsonl") if d["event"] == "step"]
    assert steps == [0, 1, 2, 3, 4, 6, 7]


def test_a_run_that_cannot_log_its_begin_leaves_nothing(tmp_path, monkeypatch):
    def write(self, record):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Appended, "write", write)
    with solver(tmp_path) as run, pytest.raises(LogError, match="Input/output error"):
        run.solve()
    assert not list(tmp_path.glob("run_*"))


def test_a_full_disk_leaves_whole_records(tmp_path):
    file = Appended(tmp_path / "log")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        file.write(b"a" * 59 + b"\n")
        with pytest.raises(OSError, match="File too large"):
            file.write(b"b" * 59 + b"\n")  # of which 40 bytes fit
        file.write(b"c" * 39 + b"\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    file.close()
    assert (tmp_path / "log").read_bytes() == b"a" * 59 + b"\n" + b"c" * 39 + b"\n"


@pytest.mark.parametrize("tail", [0, 1, 2**16 - 1, 2**16, 2**17 + 5])
def test_whole_lines(tmp_path, tail):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n" + b"x" * tail)
    assert whole_lines(path) == 8
    path.write_bytes(b"x" * tail)
    assert whole_lines(path) == 0


def test_outputs_that_are_no_numbers_are_null(tmp_path, monkeypatch):
    monkeypatch.setattr("minidnn.training.session.Session.scalars", lambda *_: {"loss": float("inf")})
    with solver(tmp_path, max_iter=1, epochs=None, test_epochs=None) as run:
        events = run.run()
        next(events), next(events)
    (step,) = (d for d in documents(tmp_path / "run.jsonl") if d["event"] == "step")
    assert step["train/loss"] is None
