"""What other programs take while something is measured."""

from __future__ import annotations

import pytest

from minidnn.measuring import load
from minidnn.measuring.load import Load

STAT = """cpu  900 0 0 900 0 0 0 0 0 0
cpu0 100 10 20 5000 70 3 4 50 0 0
cpu1 200 0 0 0 0 0 0 0 0 0
cpu7 999 999 999 0 0 0 0 0 0 0
intr 1 2 3
"""


def test_only_the_processors_that_we_may_use_count_and_idle_time_does_not(monkeypatch, tmp_path):
    monkeypatch.setattr(load, "STAT", tmp_path / "stat")
    monkeypatch.setattr(load, "processors", lambda: {0, 1})
    monkeypatch.setattr(load.os, "sysconf", {"SC_CLK_TCK": 100}.__getitem__)
    assert load.processor_seconds() is None, "there is no such file"
    (tmp_path / "stat").write_text(STAT)
    assert load.processor_seconds() == pytest.approx((100 + 10 + 20 + 3 + 4 + 50 + 200) / 100)
    (tmp_path / "stat").write_text("cpu0 a b")
    assert load.processor_seconds() is None


def test_others_take_what_is_not_ours():
    before, after = Load(10.0, 100.0, 5.0), Load(20.0, 118.0, 13.0)
    assert before.others_until(after) == pytest.approx(1.0, abs=0.1)
    assert before.others_until(Load(20.0, 108.0, 13.0)) == 0, "only we were at work"
    assert before.others_until(before) is None and before.others_until(Load(20.0, None, 13.0)) is None
