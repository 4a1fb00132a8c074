"""Signals: each run that ends by one leaves a snapshot from which it goes on to the same bytes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from minidnn.training import interrupt
from minidnn.training.events import Ended, Saved, Step
from minidnn.training.solver import Solver
from tests.support.paths import ROOT
from tests.support.texts import NET

SOLVER = """
net: small.yaml
base_lr: 0.01
lr_policy: fixed
momentum: 0.9
max_iter: 12
random_seed: 3
snapshot_prefix: out/small
display: 1
"""
pytestmark = pytest.mark.usefixtures("default_handlers")
ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def case(tmp_path, monkeypatch):
    (tmp_path / "small.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def events(number: int, at: int = 6) -> list:
    """All events of a run that gets the signal once the step of that number is done."""
    found = []
    with Solver("solver.yaml", device="reference") as solver:
        for event in solver.run():
            found.append(event)
            if isinstance(event, Step) and event.iteration == at:
                signal.raise_signal(number)
    return found


def terminal(monkeypatch, *there: bool) -> None:
    """Say, one call after the other, whether the terminal is there."""
    answers = list(there)
    monkeypatch.setattr(interrupt, "_has_terminal", lambda: answers.pop(0) if answers else False)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_the_run_after_the_step_with_a_snapshot(case, monkeypatch, number):
    terminal(monkeypatch, True, False)  # it was there at the beginning, and is gone when SIGHUP comes
    before = [signal.getsignal(n) for n in ENDING]
    found = events(number)
    assert [type(e) for e in found[-3:]] == [Step, Saved, Ended]
    assert found[-1].signal == number and found[-1].interrupted and found[-2].iteration == 7
    assert [signal.getsignal(n) for n in ENDING] == before
    with Solver("solver.yaml", device="reference", resume=found[-2].path) as solver:
        solver.solve()
        resumed = solver.values()
    with Solver("solver.yaml", device="reference") as solver:
        solver.step(12)
        assert {k: v.tobytes() for k, v in solver.values().items()} == {k: v.tobytes() for k, v in resumed.items()}


@pytest.mark.parametrize("there", [(True, True), (False, False)])
def test_sighup_takes_a_snapshot_and_the_run_goes_on(case, monkeypatch, there):
    """On a terminal that is still there, and where there was none: then it was a person or a program that asked."""
    terminal(monkeypatch, *there)
    found = events(signal.SIGHUP)
    assert [e.iteration for e in found if isinstance(e, Saved)] == [7, 12]
    assert found[-1] == Ended(12)


def test_a_signal_that_is_ignored_stays_ignored(case, monkeypatch):
    """As under nohup."""
    terminal(monkeypatch, True, False)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert events(signal.SIGHUP)[-1] == Ended(12)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_ends_it_at_once(case):
    with Solver("solver.yaml", device="reference") as solver, pytest.raises(KeyboardInterrupt):
        for event in solver.run():
            if isinstance(event, Step):
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)


COMMAND = [sys.executable, "-m", "minidnn", "train", "solver.yaml", "--device", "reference", "--max-iter", "100000"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_with_128_and_the_signal(case, number):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(COMMAND, env=env, stdout=subprocess.PIPE, text=True)
    next(line for line in run.stdout if "Iteration 0" in line)
    run.send_signal(number)
    out, _ = run.communicate()
    assert run.returncode == 128 + number and "Snapshotting to out/small_iter_" in out
    assert len(list((case / "out").glob("small_iter_*.safetensors"))) == 1


def test_a_terminal_that_goes_away_ends_the_command_with_a_snapshot(case):
    """What a lost connection does: the kernel closes the terminal and sends SIGHUP."""
    try:
        child, master = pty.fork()
    except OSError as error:
        pytest.skip(f"no pseudo-terminals here: {error}")
    if not child:
        try:
            os.execve(COMMAND[0], COMMAND, {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"})
        finally:
            os._exit(127)
    shown = b""
    while b"Iteration 1" not in shown:
        shown += os.read(master, 4096)
    os.close(master)
    _, status = os.waitpid(child, 0)
    assert len(list((case / "out").glob("small_iter_*.safetensors"))) == 1, status
