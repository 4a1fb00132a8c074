"""benchmarks/fit_titan_x.py: the committed profile gives the tables of docs/costs.md, and is where its fit is."""

from __future__ import annotations

import itertools
import json

import pytest

from benchmarks import fit_titan_x as fit
from minidnn.costs import gpu
from tests.support.paths import ROOT

CARD = gpu("titan_x")
TITLES = {"alexnet": "AlexNet", "overfeat_fast": "OverFeat fast", "overfeat": "OverFeat", "vgg_a": "VGG-A"}
FARTHEST = {"seconds": 0.25, "speed": 0.26, "workspace": 0.53}  # of a bar: what docs/costs.md admits


@pytest.fixture(scope="module")
def bars():
    return fit.bars()


@pytest.fixture(scope="module")
def predicted(bars):
    costs = CARD.costs("titan_x")
    return {(bar.kind, bar.net, bar.batch, bar.algorithms): bar.predicted(costs) for bar in bars}


def test_the_profile_is_as_near_to_every_bar_as_is_said(bars, predicted):
    assert [bar.kind for bar in bars] == ["seconds"] * 7 + ["speed"] * 5 + ["workspace"] * 5
    for bar, ours in zip(bars, predicted.values(), strict=True):
        assert abs(ours / bar.published - 1) < FARTHEST[bar.kind], bar
        assert bar.source and bar.published > 0


def test_the_tables_of_the_document(bars, predicted):
    text = (ROOT / "docs" / "costs.md").read_text()
    bar = {(b.kind, b.net, b.batch, b.algorithms): b.published for b in bars}

    def cells(key, digits, scale=1):
        ours, published = predicted[key] * scale, bar[key] * scale
        unit = " ms" if scale > 1 else ""
        return f"{ours:.{digits}f}{unit} | {published:.{digits}f}{unit}", f"{ours / published - 1:+.0%}"[:-1] + " %"

    for kind, net, batch, algorithms in predicted:
        case = f"| {TITLES.get(net, 'VGG-19' if kind == 'seconds' else 'VGG-16')} ({batch}) | "
        figures, off = cells((kind, net, batch, algorithms), *{"seconds": (0, 1e3), "speed": (3,)}.get(kind, (0,)))
        newer = " (cuDNN 5)" if (kind, net) == ("seconds", "vgg19") else ""
        if algorithms == "m" and kind == "seconds":
            (line,) = [x for x in text.splitlines() if x.startswith(case) and " ms" in x]
            assert line.endswith(f"| {figures} | {off} |")
        else:
            assert f"{case}{figures}{newer} | {off} |" in text


def test_the_profile_is_the_best_of_its_neighbours_by_logarithm(bars):
    """One coarse step to each side, for either pair of numbers."""
    here = fit.committed(CARD)
    time = [bar for bar in bars if bar.kind != "workspace"]
    space = [bar for bar in bars if bar.kind == "workspace"]
    for grid, of, error in ((fit.EFFICIENCIES, time, fit.logarithm), (fit.WORKSPACES, space, fit.difference)):
        near = {}
        for name, values in grid.items():
            at = values.index(here[name])
            near[name] = values[at - 1 : at + 2]
            assert len(near[name]) == 3, "within the grid, not at its edge"
        assert fit.best(CARD, near, of, error) == {name: here[name] for name in grid}


def test_a_grid_s_best_point_is_found(bars):
    """Seconds that the model itself makes of other numbers lead back to them."""
    one = {"implicit_gemm": 0.42, "fast": 0.85}
    costs = fit.changed(CARD, one).costs("titan_x")
    made = [fit.replace(bar, published=bar.predicted(costs)) for bar in bars if bar.kind == "seconds"]
    grid = {"implicit_gemm": [0.40, 0.42, 0.44], "fast": [0.80, 0.85, 0.90]}
    assert fit.best(CARD, grid, made, fit.relative) == one
    assert fit.squared(fit.changed(CARD, one), made, fit.relative) == 0
    finer = fit.around(grid, one)
    assert finer["fast"] == pytest.approx([0.80 + 0.01 * i for i in range(11)])


def test_what_is_printed(bars, monkeypatch, capsys):
    few = [bar for bar in bars if bar.net == "alexnet"]
    monkeypatch.setattr(fit, "bars", lambda: few)
    small = {name: [0.9 * value, value, 1.1 * value] for name, value in fit.committed(CARD).items()}
    monkeypatch.setattr(fit, "EFFICIENCIES", dict(itertools.islice(small.items(), 2)))
    monkeypatch.setattr(fit, "WORKSPACES", dict(itertools.islice(small.items(), 2, None)))
    fit.main(["--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["numbers"]["committed"] == fit.committed(CARD)
    assert [row["committed_ratio"] for row in found["rows"]] == [
        row["committed"] / row["published"] for row in found["rows"]
    ]
    assert found["errors"]["fine"]["workspace_mib"] <= found["errors"]["coarse"]["workspace_mib"]
    fit.main([])
    text = capsys.readouterr().out
    assert "The profile is left as it is." in text and "CuDNN[R2]" in text
