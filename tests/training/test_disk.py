"""Training through a disk: the bytes of training in memory, also where the disk fails in the middle of a step."""

from __future__ import annotations

import errno
import os
import re
import resource
from pathlib import Path

import pytest

import minidnn
from minidnn.cli.main import main
from minidnn.errors import InvalidInput
from minidnn.jobs.setting import Setting
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.disk import DiskFailed, DiskFile, StateLost
from minidnn.training.events import Saved
from minidnn.training.snapshot import SaveError
from tests.support.slow import quick_are, usual_pairs
from tests.support.trains import baseline, train

NETS, POLICIES = ("residual", "inception", "nested"), ("vdnn_all:m", "vdnn_all:p", "layrub:m")


@pytest.mark.parametrize(
    ("net", "policy", "device"),
    usual_pairs(quick_are(["residual"], NETS), quick_are(["vdnn_all:m"], POLICIES), ["cpu", "reference"]),
)
def test_nets_end_with_the_bytes_of_baseline(net, policy, device, tmp_path, monkeypatch):
    written, real = [], DiskFile.write
    monkeypatch.setattr(DiskFile, "write", lambda *given: (written.append(given[-1]), real(*given)))
    with pytest.raises(BudgetError) as refused:
        train(net, device, policy, disk=tmp_path, host_ring=1)
    found = train(net, device, policy, disk=tmp_path, host_ring=refused.value.smallest, debug=True, delays=5e-4)
    assert found == baseline(net, device, policy[-1]) and written


def lenet(folder: Path, **options):
    given = dict(
        base_lr=0.01, momentum=0.9, max_iter=5, seed=3, batch=16, policy="vdnn_all:m", device="cpu", host_ring="64KiB",
        disk=folder, snapshot_prefix=str(folder / "snapshots" / "net"),
    )  # fmt: skip
    return minidnn.Solver(minidnn.load("digits_lenet"), **given | options)


def run(solver) -> bytes:
    """The last snapshot of a run."""
    with solver:
        saved = [event for event in solver.run() if isinstance(event, Saved)]
    return saved[-1].path.read_bytes()


class Failing:
    """A call of the operating system that fails once, at number `at` and in the machine's disk; or from then on."""

    def __init__(self, monkeypatch, name: str, at: int, for_good: bool = False) -> None:
        self.left, self.real, self.for_good = at, getattr(os, name), for_good
        monkeypatch.setattr(os, name, self)

    def __call__(self, *given):
        self.left -= 1
        if not self.left or (self.left < 0 and self.for_good):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self.real(*given)


@pytest.mark.parametrize(
    ("options", "name"),
    usual_pairs([{}, {"iter_size": 2, "state": "host", "type": "Adam", "momentum2": 0.99}], ["preadv", "pwritev"]),
)
def test_a_failure_ends_the_run_with_the_last_whole_iteration_and_resuming_ends_with_its_bytes(
    name, options, tmp_path, monkeypatch
):
    (whole := tmp_path / "whole").mkdir()
    want = run(lenet(whole, **options))
    solver = lenet(tmp_path, **options)
    arrangement = solver.arrangement
    each = sum(len(s.disk_offset) for s in arrangement.schedules.values() if s.program.name != "TEST")
    assert each
    marks = 3 * -(-arrangement.undo // arrangement.ring) if name == "pwritev" else 0  # writes of what to go back to
    began = solver.values()
    with monkeypatch.context() as patch, solver:
        Failing(patch, name, 3 * each + marks)  # the last write, or read, of the third iteration
        with pytest.raises(DiskFailed, match=rf'disk="{tmp_path}": a \w+ of .* of \S+ at offset \d+ failed: Input/out'):
            for event in solver.run():
                last = event
        assert isinstance(last, Saved) and last.iteration == 2
        assert any(began[k].tobytes() != v.tobytes() for k, v in solver.values().items())
    assert run(lenet(tmp_path, resume="latest", **options)) == want


def test_where_no_snapshot_can_be_written_either_both_are_told(tmp_path, monkeypatch):
    def unwritable():
        raise SaveError("no place")

    with lenet(tmp_path) as solver:
        solver.step()
        Failing(monkeypatch, "preadv", 1)
        monkeypatch.setattr(solver, "save", unwritable)
        with pytest.raises(DiskFailed, match=r"failed: Input/output error; no place"):
            solver.solve()


def test_where_the_weights_cannot_be_read_back_no_snapshot_is_written(tmp_path, monkeypatch):
    with lenet(tmp_path) as solver:
        solver.step(2)
        Failing(monkeypatch, "preadv", 1, for_good=True)
        with pytest.raises(StateLost, match="weights from before the iteration, so no snapshot is written"):
            solver.solve()
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_step_that_failed_can_be_taken_again(tmp_path, monkeypatch):
    def values(solver):
        return {name: value.tobytes() for name, value in solver.values().items()}

    with lenet(tmp_path) as plain, lenet(tmp_path) as solver:
        plain.step(3)
        solver.step(2)
        before = values(solver)
        with monkeypatch.context() as patch:
            Failing(patch, "preadv", 2)
            with pytest.raises(DiskFailed):
                solver.step()
        assert values(solver) == before and solver.iteration == 2
        solver.step()
        assert values(solver) == values(plain)


def test_no_stream_goes_on_behind_what_has_failed(tmp_path, monkeypatch):
    """Bytes that a failed read has not brought may be places of a pooling, and no kernel may follow them."""
    with lenet(tmp_path) as solver:
        ran, runtime = [], solver.machine.runtime
        bound = solver.machine.loaded["TRAIN"].bound.values()
        for prepared in bound:
            calls = prepared.calls["compute"]
            calls[:] = [(i, lambda i=i, call=call: (ran.append(i), call())) for i, call in calls]
        solver.step()
        whole = len(ran)
        ran.clear()
        Failing(monkeypatch, "preadv", 1)
        with pytest.raises(DiskFailed):
            solver.step()
        assert runtime.broken is False and len(ran) < whole


def test_places_and_sizes():
    assert Setting.of({"disk": "/tmp"}).disk == Path("/tmp")
    found = Setting.of({"disk": "/tmp:2GiB", "host_ring": "1MiB"})
    assert (found.disk, found.staging.disk.most, found.staging.ring) == (Path("/tmp"), 2 << 30, 1 << 20)
    for wrong, why in (("/nowhere:2GiB", "/nowhere is not a folder"), ("/tmp:much", "'much' is not a size")):
        with pytest.raises(InvalidInput, match=re.escape(why)):
            Setting.of({"disk": wrong})


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["train", "digits_solver", "--batch", "16", "--max-iter", "2", "--policy", "vdnn_all:m"]
    argv += ["--host-ring", "64KiB"]
    argv += ["--snapshot-prefix", "out/net"]
    assert main([*argv, "--disk", "."]) == 0
    assert re.search(r"Memory: .* on the host, .* on the disk \(.* of it for undo\)", capsys.readouterr().out)
    plain = Path("out/net_iter_2.safetensors").read_bytes()
    assert main([*argv, "--policy", "baseline:m"]) == 0
    assert Path("out/net_iter_2.safetensors").read_bytes() == plain
    assert main([*argv, "--disk", ".:64KiB"]) == 2
    assert "puts 344 KiB on the disk, where 64.0 KiB may be used" in capsys.readouterr().err
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 * 1024, hard))
    try:
        assert main([*argv, "--disk", "."]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "the plan needs 344 KiB there" in capsys.readouterr().err
