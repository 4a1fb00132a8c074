"""benchmarks/beside.py: fair shares by hand, loops that end, and a small net that waits in two ways."""

from __future__ import annotations

import json

import pytest

from benchmarks import beside


def test_fair_shares_by_hand():
    assert beside.share(0, 2, 2) == 1 and beside.share(2, 2, 2) == 1 / 2 and beside.share(1, 2, 2) == 2 / 3
    assert beside.share(2, 2, 4) == 1, "a core for each"
    assert beside.share(2, 4, 2) == 4 / 6, "alone, too, it shares its cores"


def test_busy_loops_run_until_the_end_and_no_longer(monkeypatch):
    started = []
    begin = beside.subprocess.Popen
    monkeypatch.setattr(beside.subprocess, "Popen", lambda *args: started.append(begin(*args)) or started[-1])
    with beside.loops(2):
        assert [one.poll() for one in started] == [None, None]
    assert all(one.returncode for one in started)


@pytest.mark.slow
def test_a_small_net_waits_in_two_ways(capsys):
    argv = ["--networks", "lenet:2", "--waits", "1000,0", "--loops", "0,1", "--rounds", "2", "--seconds", "0"]
    assert beside.main([*argv, "--threads", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(r["loops"], r["spins"]) for r in rows] == [(0, "1000"), (0, "0"), (1, "1000"), (1, "0")]
    assert all(len(r["rounds"]) == 2 and r["speed"] > 0 for r in rows)
    assert [r["fair"] for r in rows[:2]] == [1.0, 1.0]


def test_bad_arguments_say_what_there_is(capsys):
    assert beside.main(["--networks", "lenett:4"]) == 2
    assert "did you mean 'lenet'" in capsys.readouterr().err
    for loops in ("-1", "two"):
        with pytest.raises(SystemExit):
            beside.main(["--loops", loops])
