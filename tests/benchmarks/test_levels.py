"""benchmarks/levels.py, in small."""

from __future__ import annotations

import json

import pytest

from benchmarks import levels
from minidnn import cpuinfo
from minidnn.backends.cpu.native.sources import KERNELS
from tests.support.op_examples import compiled


@pytest.mark.slow
def test_a_net_trains_by_both_libraries(capsys):
    compiled()
    if not any(map(cpuinfo.runs, KERNELS.levels())):
        pytest.skip("a wheel brings no kernels for this CPU")
    assert levels.main(["--networks", "lenet:2", "--rounds", "1", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert list(row["seconds"]) == ["this CPU", row["level"]] and row["level"] in KERNELS.levels()


def test_a_cpu_without_kernels_in_a_wheel_is_told(monkeypatch, capsys):
    monkeypatch.setattr(cpuinfo, "_cpuinfo", lambda: ("flags : fpu lm",))
    assert levels.main(["--networks", "lenet:2"]) == 2
    assert "a wheel brings no kernels that this CPU runs" in capsys.readouterr().err
