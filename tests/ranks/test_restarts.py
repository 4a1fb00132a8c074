"""Runs that are started again, and ranks that die."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from itertools import chain, repeat

import pytest

from minidnn.cli import guard, restarts
from minidnn.errors import InvalidInput
from minidnn.ranks import launched
from minidnn.training.interrupt import SIGNALS
from tests.ranks.test_mpiexec import MPIEXEC, train
from tests.ranks.test_solvers import NET, SOLVER, files

DIES = """
import os, sys
count = int(open("count").read()) + 1
open("count", "w").write(str(count))
open("log", "a").write(" ".join(sys.argv[1:]) + chr(10))
sys.exit(0 if count == 3 else CODE)
"""


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "count").write_text("0")
    return tmp_path


def supervise(case, code, most, *launchers):
    """The exit code under launchers of which two fail, and what they were asked for."""
    script = case / "launcher.py"
    script.write_text(DIES.replace("CODE", str(code)))
    by = [f"{sys.executable} {script} {name}" for name in launchers]
    words = ["train", "s.yaml", "--max-restarts", str(most), *(f"--launcher={name}" for name in by), "--weights", "w"]
    ended = restarts.supervised(argparse.Namespace(max_restarts=most, launcher=by), None, words)
    return ended, [line.partition("train ")[::2] for line in (case / "log").read_text().splitlines()]


def test_a_run_is_started_again_from_its_newest_snapshot_by_the_next_launcher(case, capfd):
    code, starts = supervise(case, 9, 5, "four", "two")
    assert code == 0 and [rest for _, rest in starts] == ["s.yaml --weights w", *["s.yaml --resume latest"] * 2]
    assert [by.split()[0] for by, _ in starts] == ["four", "two", "two"]
    assert "ended with code 9: restart 2 of 5 by" in capfd.readouterr().err


def test_so_many_restarts_and_none_where_the_input_is_wrong(case):
    assert supervise(case, 9, 1, "four")[0] == 9
    (case / "count").write_text("0")
    (case / "log").unlink()
    code, starts = supervise(case, 2, 5, "four")
    assert code == 2 and len(starts) == 1


def test_ranks_cannot_restart_themselves(case):
    args = argparse.Namespace(max_restarts=1, launcher=None)
    with pytest.raises(InvalidInput, match="cannot be used within MPICH, which ends all ranks together"):
        restarts.supervised(args, launched.Launch("MPICH", 0, 2, 0, 2), ["train"])
    with pytest.raises(InvalidInput, match="cannot be run: No such file"):
        restarts.supervised(argparse.Namespace(max_restarts=1, launcher=["not-there -n 2"]), None, ["train"])


def test_ranks_that_torchrun_has_restarted_say_so():
    assert launched.restarts({}) == 0 and launched.restarts({"TORCHELASTIC_RESTART_COUNT": "2"}) == 2


@pytest.mark.skipif(MPIEXEC is None, reason="there is no mpiexec")
def test_a_rank_that_is_killed_ends_all_and_the_run_goes_on_to_the_same_bytes(tmp_path):
    pytest.importorskip("mpi4py")
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER.replace("max_iter: 6", "max_iter: 100000"))
    command = [str(MPIEXEC), "-n", "2", sys.executable, "-m", "minidnn", "train", "solver.yaml"]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True)  # fmt: skip
    with run, (tmp_path / "out").open("w+") as out:
        for line in run.stdout:
            out.write(line)
            if "Snapshotting to solver_iter_6" in line:
                break
        os.kill(_leaf_below(run.pid), signal.SIGKILL)
        out.write(run.stdout.read())
    told = (tmp_path / "out").read_text()
    assert run.returncode and "its process was killed (SIGKILL" in told, told
    assert "the newest snapshot is solver_iter_" in told
    last = max(int(path.stem.rpartition("_")[2]) for path in tmp_path.glob("solver_iter_*.safetensors")) + 3
    on = train(tmp_path, 2, "--resume", "latest", "--max-iter", str(last))
    assert not on.returncode, on.stdout + on.stderr
    assert not train(tmp_path, 2, "--max-iter", str(last), "--snapshot-prefix", "whole").returncode
    end = f"_iter_{last}.safetensors"
    assert files(tmp_path, "solver")[end] == files(tmp_path, "whole")[end]


def _leaf_below(root: int) -> int:
    """A process below this one that has none below itself: the child of a rank."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout.split()
    parents = dict(zip(map(int, listed[::2]), map(int, listed[1::2]), strict=True))
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return min(below - set(parents.values()))


LAUNCH = launched.Launch("MPICH", 1, 3, 1, 3)


def ends(here, limit, capfd, work):
    """The exit code of a rank that does this work, and what it says."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        code = guard.guarded(LAUNCH, work, lambda error: (str(error), 3), limit, here)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code, capfd.readouterr().err


def hangs(_):
    time.sleep(600)
    return 0


def test_a_rank_whose_mpi_never_starts_ends(capfd, monkeypatch):
    """MPICH's launcher waits for ever if a rank ends before its MPI has started, and so do the others."""
    monkeypatch.setattr(guard, "MOMENT", 0.01)
    counts = chain([2, 3, 3], repeat(2))
    code, said = ends(lambda: next(counts), 600, capfd, hangs)
    assert code == 1 and "rank 1: MPI cannot start: of 3 ranks on this machine, 2 are left" in said
    code, said = ends(lambda: 3, 0.1, capfd, hangs)
    assert code == 1 and "rank 1: MPI has not started within 0.1 s" in said


def test_once_mpi_has_started_nobody_looks_after_the_others(capfd, monkeypatch):
    monkeypatch.setattr(guard, "MOMENT", 0.01)

    def works(said):
        said.say(entered=True)
        time.sleep(0.3)
        os._exit(5)  # the child of a test goes no further

    counts = chain([3], repeat(2))
    assert ends(lambda: next(counts), 600, capfd, works) == (5, "")


@pytest.mark.parametrize(
    "by, code, ended",
    [
        ("MPICH", 1, -signal.SIGTERM),
        ("MPICH", 2, 2),
        ("MPICH", 0, 0),
        *(("MPICH", 128 + number, 128 + number) for number in SIGNALS),
        ("torchrun", 1, 1),
    ],
)
def test_a_rank_that_fails_ends_by_a_signal_which_mpich_never_misses(by, code, ended):
    script = f"""
import sys
from minidnn.cli import guard
from minidnn.ranks.launched import Launch

print("said", end="")
sys.exit(guard.leave(Launch({by!r}, 1, 3, 1, 3), {code}))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == ended and run.stdout == "said", run
