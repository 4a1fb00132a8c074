"""The frontier: best never slows down as the budget grows, no point is below the bound, the picture shows them all."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from minidnn.api.frontier import sweep
from minidnn.cli.main import main
from minidnn.memory.joint.bound import LowerBound
from minidnn.memory.joint.index import Index
from tests.support.programs import KB, PROGRAMS, costs, forward_only
from tests.support.slow import usual_are


@pytest.fixture(
    scope="module", params=usual_are([("residual", 2)], [("residual", 2), ("inception", 1)]), ids=lambda p: p[0]
)
def found(request):
    name, blocks = request.param
    program = PROGRAMS[name](blocks)
    return sweep([program, forward_only(program)], ["vdnn_all:m", "sqrt_n"], costs(bandwidth=5e8), 5)


def test_best_never_gets_slower_as_the_budget_grows_and_nothing_is_below_the_bound(found):
    rows = found["rows"]
    best = [r for r in rows if r.policy == "best"]
    assert len(best) >= 3
    assert [r.step_seconds for r in best] == sorted((r.step_seconds for r in best), reverse=True)
    assert all(r.peak_bytes <= r.budget_bytes and r.gap >= -1e-9 for r in rows)
    bounds = [row.bound_seconds for row in found["bounds"]]
    assert bounds == sorted(bounds, reverse=True) and found["least_bytes"] <= found["bounds"][0].budget_bytes
    others = {r.policy for r in rows} - {"best"}
    assert others and all(
        mine.step_seconds <= r.step_seconds * (1 + 1e-9)
        for r in rows
        for mine in best
        if mine.budget_bytes == r.budget_bytes
    )


def test_the_least_budget_and_what_the_next_one_saves(found):
    best = [r for r in found["rows"] if r.policy == "best"]
    assert found["least_bytes"] <= found["reached_bytes"] <= best[0].budget_bytes
    assert all(str(r.price)[0] != "-" for r in best)


@pytest.mark.parametrize("name", ["residual", "diamond"])
def test_the_price_of_a_byte_is_a_slope_of_the_bound(name):
    bound = LowerBound(Index(PROGRAMS[name](), costs(bandwidth=2e7)))
    budgets = [bound.least() + 48 * KB + k * 16 * KB for k in range(5)]  # every op's fastest algorithm fits
    assert bound.at(budgets[0]).price > 0
    for (b, at), (c, beyond) in pairwise((b, bound.at(b)) for b in budgets):
        saved = at.seconds - beyond.seconds  # the bound is convex where no further algorithm comes to fit
        assert at.price * (c - b) >= saved - 1e-9 and saved >= beyond.price * (c - b) - 1e-9


def test_a_budget_and_one_step_beside_it(capsys):
    arguments = ["frontier", "lenet", "--batch", "8", "--gpu", "k40", "--budget", "6MiB", "--step", "1MiB"]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [r["budget_bytes"] >> 20 for r in document["rows"]] == [5, 6, 7] and document["reached_bytes"] is None
    assert main(arguments) == 0
    assert "next saves" in capsys.readouterr().out
    assert main([*arguments[:-1], "6MiB"]) == 2 and "larger --budget" in capsys.readouterr().err
    assert main(arguments[:-2]) == 2 and "add --step SIZE" in capsys.readouterr().err


@pytest.mark.extended
def test_a_table_json_and_a_picture(tmp_path, capsys, monkeypatch):
    arguments = ["frontier", "lenet", "--batch", "8", "--gpu", "k40", "--policies", "accudnn", "--points", "3"]
    assert main([*arguments, "--report", str(tmp_path / "f.svg")]) == 0
    table = capsys.readouterr().out
    assert "over bound" in table and "accudnn" in table and "report: " in table
    assert "The bound excludes budgets below" in table and "; best needs" in table
    svg = (tmp_path / "f.svg").read_text()
    ET.fromstring(svg)
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = document["rows"]
    assert {r["policy"] for r in rows} == {"best", "accudnn"} and document["least_bytes"] > 0
    assert len(re.findall("<circle", svg)) <= len(rows) and "no plan lies here unless it updates" in svg
    assert all(r["gap"] == pytest.approx(r["step_seconds"] / r["bound_seconds"] - 1) for r in rows)
    monkeypatch.setitem(sys.modules, "highspy", None)
    assert main(arguments) == 2
    assert "a frontier needs the package highspy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--points", "1"], "at least 2 budgets"),
        (["--report", "x.txt"], ".svg"),
        (["--policies", "livenes"], "did you mean 'liveness'"),
    ],
)
def test_mistakes(more, said, capsys):
    assert main(["frontier", "lenet", *more]) == 2
    assert said in capsys.readouterr().err
