"""The frontier: best never slows down as the budget grows, no point is below the bound, the picture shows them all."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET

import pytest

from minidnn.cli.main import main
from minidnn.study.frontier import frontier
from tests.support.programs import PROGRAMS, costs, forward_only


@pytest.fixture(scope="module", params=["residual", "inception"])
def found(request):
    program = PROGRAMS[request.param]()
    return frontier([program, forward_only(program)], ["vdnn_all:m", "sqrt_n"], costs(bandwidth=5e8), 5)


def test_best_never_gets_slower_as_the_budget_grows_and_nothing_is_below_the_bound(found):
    best = [p for p in found.points if p.policy == "best"]
    assert len(best) >= 3 and [p.seconds for p in best] == sorted((p.seconds for p in best), reverse=True)
    assert all(p.peak <= p.budget and p.gap >= -1e-9 for p in found.points)
    bounds = [seconds for _, seconds in found.bounds]
    assert bounds == sorted(bounds, reverse=True) and found.least <= found.bounds[0][0]
    others = {p.policy for p in found.points} - {"best"}
    assert others and all(
        mine.seconds <= p.seconds * (1 + 1e-9) for p in found.points for mine in best if mine.budget == p.budget
    )


def test_a_table_json_and_a_picture(tmp_path, capsys, monkeypatch):
    arguments = ["frontier", "lenet", "--batch", "8", "--gpu", "k40", "--policies", "accudnn", "--points", "3"]
    assert main([*arguments, "--report", str(tmp_path / "f.svg")]) == 0
    table = capsys.readouterr().out
    assert "over bound" in table and "accudnn" in table and "report: " in table
    svg = (tmp_path / "f.svg").read_text()
    ET.fromstring(svg)
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = document["rows"]
    assert {r["policy"] for r in rows} == {"best", "accudnn"} and document["least_bytes"] > 0
    assert len(re.findall("<circle", svg)) <= len(rows) and "no plan lies here" in svg
    assert all(r["gap"] == pytest.approx(r["seconds"] / r["bound_seconds"] - 1) for r in rows)
    monkeypatch.setitem(sys.modules, "highspy", None)
    assert main(arguments) == 2
    assert "a frontier needs the package highspy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--points", "1"], "two or more"),
        (["--report", "x.html"], ".svg"),
        (["--policies", "livenes"], "did you mean 'liveness'"),
    ],
)
def test_mistakes(more, said, capsys):
    assert main(["frontier", "lenet", *more]) == 2
    assert said in capsys.readouterr().err
