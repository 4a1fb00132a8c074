"""benchmarks/thread_bytes.py: the same bytes on any number of threads, and the script sees where they are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import thread_bytes
from tests.support.op_examples import compiled
from tests.support.paths import NET_FILES

RESIDUAL = ["--networks", str(NET_FILES / "residual.yaml"), "--threads", "1,2,5", "--policies", "vdnn_all,liveness@2"]


@pytest.mark.slow
def test_a_net_ends_with_the_same_bytes_on_any_number_of_threads(capsys):
    compiled()
    assert thread_bytes.main(RESIDUAL) == 0
    assert "6 trainings compared, 0 differ" in capsys.readouterr().out


@pytest.mark.slow
def test_another_end_is_seen(monkeypatch, capsys):
    compiled()
    real, ends = thread_bytes.trained, []

    def trained(session, steps):
        ends.append(real(session, steps))
        return replace(ends[-1], losses=(0.0,)) if len(ends) == 3 else ends[-1]

    monkeypatch.setattr(thread_bytes, "trained", trained)
    assert thread_bytes.main(RESIDUAL) == 1
    told = capsys.readouterr().out
    assert "not on 5" in told and "6 trainings compared, 1 differ" in told
