"""Colours: each can be seen on its paper, and none has two meanings."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from benchmarks.pages import contrasts
from minidnn.memory.moment import ROLES
from minidnn.report import draw, palette
from minidnn.report.panel import KINDS
from minidnn.report.plot import coloured


def test_contrast_is_wcag_s():
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert palette.contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)
    assert palette.contrast("#777777", "#777777") == 1


def test_every_colour_can_be_seen():
    found = list(contrasts())
    assert len(found) > 35 and [row for row in found if min(row[2:4]) < row[4]] == []


def test_every_kind_and_every_role_has_a_colour_of_its_own():
    assert set(KINDS) <= set(palette.TIME) and set(ROLES.values()) == set(palette.ROLES)
    for scheme in (0, 1):
        shown = {name: pair[scheme] for name, pair in palette.MARKS.items()}
        for (one, a), (other, b) in combinations(shown.items(), 2):
            apart = sum(abs(int(a[i : i + 2], 16) - int(b[i : i + 2], 16)) for i in (1, 3, 5))
            assert apart >= 40, (one, other)


def test_a_policy_has_the_same_colour_in_every_picture():
    assert coloured(["vdnn_all:p", "best"]) == {"vdnn_all:p": "p-vdnn_all", "best": "p-best"}
    assert coloured(["best", "liveness", "vdnn_all:m"])["vdnn_all:m"] == "p-vdnn_all"
    others = coloured(["best", "one.plan", "two.plan"])
    assert len(set(others.values())) == 3
    assert len(coloured(f"{n}.plan" for n in range(30))) == 30


def test_every_variable_that_is_used_is_in_the_palette():
    assert set(re.findall(r"var\(--([\w-]+)\)", draw.STYLE)) <= set(re.findall(r"--([\w-]+):", draw.STYLE))
