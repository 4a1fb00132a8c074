"""The benchmark of patience: its picture, and a run of it."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from benchmarks import effort

ROW = {"network": "a", "batch": 1, "gpu": "titan_x", "percent": 15.0, "bound_seconds": 1.0}


def test_the_picture_has_a_mark_for_each_second_and_a_point_for_each_search():
    rows = [
        ROW | {"effort_seconds": seconds, "best_seconds": best}
        for seconds, best in ((0.0, 1.4), (1.0, 1.3), (10.0, 1.3), (60.0, 1.1))
    ]
    svg = effort.picture(rows, "a note")
    ElementTree.fromstring(svg)
    said = re.findall(r"<title>(.*?)</title>", svg)
    assert said[0] == "a b1 titan_x at 15 %, the usual plan: 40.0% over the bound" and len(said) == 4
    assert [mark for mark in ("usual", "1", "10") if f">{mark}</text>" in svg] == ["usual", "1", "10"]
    across = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', svg)]
    up = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', svg)]
    assert across == sorted(across) and up == sorted(up)


@pytest.mark.extended
def test_a_longer_search_never_ends_farther_from_the_bound(capsys):
    assert effort.main(["--cells", "cifar10_quick:100:titan_x:50", "--seconds", "0.2", "--json"]) == 0
    usual, longer = json.loads(capsys.readouterr().out)["rows"]
    assert effort.gap(longer) <= effort.gap(usual) and effort.gap(longer) >= 0


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ("resnet50:64:15", "'resnet50:64' is not NET:BATCH:GPU"),
        ("resnet50:0:a100:15", "'resnet50:0:a100' is not NET:BATCH:GPU"),
        ("resnet50:1:a100x:15", "no GPU profile is called 'a100x'"),
        ("resnet50:1:h100:tf32:x", "'x' is not a number above 0"),
    ],
)
def test_a_malformed_cell_is_refused_in_a_line(cells, why, capsys):
    with pytest.raises(SystemExit) as end:
        effort.main(["--cells", cells])
    assert end.value.code == 2 and why in capsys.readouterr().err.splitlines()[-1]
