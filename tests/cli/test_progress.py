"""What `train` shows on a terminal."""

import io
import re

import pytest

from minidnn.cli.progress import Bar, Log, watching
from minidnn.training.solver import Solver
from tests.support.texts import NET


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_loss_rate_speed_memory_and_the_time_left(tmp_path, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    (tmp_path / "small.yaml").write_text(NET)
    text = "net: small.yaml\nbase_lr: 0.02\nlr_policy: fixed\nmax_iter: 3\ndisplay: 1\n"
    (tmp_path / "solver.yaml").write_text(text)
    out = Terminal()
    solver = Solver(tmp_path / "solver.yaml", device="reference", snapshot_after_train=False)
    with solver, Bar(solver, out) as bar:
        for event in solver.run():
            bar(event)
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", out.getvalue())
    last = re.split(r"[\r\n]+", shown.strip())[-1]
    assert re.search(r"3/3 loss [\d.]+ lr 0.02 \S+ images/s [\d.]+ KiB 0:00:00 left", last) and len(last) <= columns
    assert "Iteration 2 (" in shown and "Optimization Done." in shown
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert isinstance(watching(solver, quiet=False), Log)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert isinstance(watching(solver, quiet=False), Bar) and isinstance(watching(solver, quiet=True), Log)
