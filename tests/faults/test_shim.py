"""The shim does what the tests of faults rely on: it counts, logs, fails, shortens and kills, below one folder only."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from minidnn.compiled import NotCompiled
from tests.faults.shim import Action, Fault, compile_shim, read_log
from tests.support.paths import ROOT

SCRIPT = """
import os, sys
from pathlib import Path
from tests.faults import shim
inside, log, action, at, errno = sys.argv[1:]
shim.arm(Path(inside), Path(log), shim.Fault(shim.Action(int(action)), int(at), int(errno)))
os.mkdir(inside + "/new")  # 1
f = os.open(inside + "/new/a", os.O_WRONLY | os.O_CREAT)  # 2
done = os.write(f, b"0123456789")  # 3
os.write(f, b"tail")  # 4
os.ftruncate(f, 12)  # 5
os.fsync(f)  # 6
os.close(f)
open(os.path.dirname(inside) + "/outside", "w").write("x")
os.rename(inside + "/new/a", inside + "/b")  # 7
os.unlink("b")  # 8
os.rmdir(inside + "/new")  # 9
print(done, flush=True)
"""
KINDS = ["mkdir", "create", "write", "write", "truncate", "fsync", "rename", "unlink", "rmdir"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    try:
        return compile_shim(tmp_path_factory.mktemp("shim"))
    except NotCompiled as reason:
        pytest.skip(f"needs a C compiler: {reason}")


@pytest.fixture
def run(library, tmp_path):
    inside, log = tmp_path / "inside", tmp_path / "log"
    inside.mkdir()

    def run(fault: Fault):
        words = [str(inside), str(log), str(int(fault.action)), str(fault.at), str(fault.errno)]
        env = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", SCRIPT, *words]
        done = subprocess.run(command, env=env, cwd=inside, capture_output=True, text=True)
        calls = list(read_log(log))
        return done, [call for call in calls if call.number], calls

    return run


def test_it_logs_each_call_below_the_folder_in_order(run, tmp_path):
    done, calls, everything = run(Fault())
    assert (done.returncode, done.stdout) == (0, "10\n")
    assert [call.kind for call in calls] == KINDS and [call.number for call in calls] == list(range(1, 10))
    assert [call.data for call in calls if call.kind == "write"] == [b"0123456789", b"tail"]
    assert [call.detail for call in calls[2:5]] == [0, 10, 12]
    inside = str(tmp_path / "inside")
    assert (calls[6].path, calls[6].other) == (f"{inside}/new/a", f"{inside}/b") and calls[7].path == f"{inside}/b"
    assert b"".join(call.data for call in everything if call.kind == "say") == b"10\n"


@pytest.mark.parametrize("at", [1, 4, 7])
def test_it_fails_the_call_that_it_is_told(run, at):
    done, calls, _ = run(Fault(Action.FAIL, at, errno.EDQUOT))
    assert done.returncode == 1 and os.strerror(errno.EDQUOT) in done.stderr
    assert calls[-1].number == at and calls[-1].kind == KINDS[at - 1] and calls[-1].result == -errno.EDQUOT


def test_it_shortens_a_write(run):
    done, calls, _ = run(Fault(Action.SHORT, 3))
    assert done.stdout == "5\n" and calls[2].data == b"01234"


@pytest.mark.parametrize("action, there", [(Action.KILL_BEFORE, False), (Action.KILL_AFTER, True)])
def test_it_kills_before_and_after_a_call(run, tmp_path, action, there):
    done, calls, _ = run(Fault(action, 7))
    assert done.returncode == -9 and len(calls) == 7
    assert (tmp_path / "inside" / "b").exists() == there
