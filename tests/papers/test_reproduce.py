"""`minidnn reproduce`: vDNN's figures as far as they are known exactly, and how rows become tables and a page."""

from __future__ import annotations

import json

import pytest

from minidnn.cli.main import main
from minidnn.report import reproduce as figures
from minidnn.study.reproduce import rows
from minidnn.study.reproduce.row import Row


@pytest.fixture(scope="module")
def vdnn():
    return list(rows("vdnn"))


def off(found, figure, **wanted):
    """{case: deviation} of a figure's rows."""
    some = {(r.case, r.quantity): r.deviation for r in found if r.figure == figure}
    assert some
    return {
        key: value for key, value in some.items() if all(text in " ".join(key) for text in wanted.get("having", ()))
    }


@pytest.mark.slow
def test_vdnn_bytes_that_do_not_depend_on_a_model(vdnn):
    offloaded = off(vdnn, "Figure 12")
    google = [abs(offloaded.pop((f"GoogLeNet (128), vdnn_{p}", "offloaded, MiB"))) for p in ("conv", "all")]
    assert max(google) < 0.12, "Concat's inputs as slices"
    assert abs(offloaded.pop(("AlexNet (128), vdnn_conv", "offloaded, MiB"))) < 0.08  # a bar of four pixels
    assert max(map(abs, offloaded.values())) < 0.01
    parts = [abs(d) for (_, what), d in off(vdnn, "Figure 4").items() if "workspace" not in what]
    assert len(parts) == 13 and max(parts) < 0.025
    base = off(vdnn, "Figure 11", having=["baseline:m"])
    assert len(base) == 6 and max(map(abs, base.values())) < 0.06
    host = off(vdnn, "Figure 15", having=["vdnn_all"])
    assert len(host) == 3 and max(map(abs, host.values())) < 0.002
    average = off(vdnn, "Figure 11", having=["VGG-16", "vdnn_all:m", "average"])
    assert len(average) == 3 and max(map(abs, average.values())) < 0.005


@pytest.mark.slow
def test_vdnn_orders(vdnn):
    """The order of performance that the paper reports, and what trains in 12 GB."""
    speed = {r.case: r.ours for r in vdnn if r.figure == "Figure 14"}
    for net in {case.rpartition(",")[0] for case in speed}:
        conv, everything, slow = (speed[f"{net}, vdnn_{p}"] for p in ("conv:p", "all:p", "all:m"))
        assert conv >= everything >= slow and speed[f"{net}, vdnn_dyn"] >= 0.75
    assert all(r.ours == r.paper for r in vdnn if r.quantity == "trains in 12 GB")


@pytest.mark.slow
def test_what_differs_has_a_reason(vdnn):
    for r in vdnn:
        if r.ours is None or r.deviation is None or abs(r.deviation) > 0.0005:
            assert r.reason, (r.figure, r.case)


def test_deviation():
    def of(paper, ours):
        return Row("vdnn", "", "", "", paper, ours).deviation

    assert of(200, 210) == pytest.approx(0.05) and of(0.0, 0.0) == 0 and of(None, 3) is None and of(3, None) is None
    assert of(0.0, 3) is None, "no ratio to nothing"


def test_a_reason_that_was_tried(capsys):
    """`tried` is ours with the reason's fact changed; it explains a row if it is within a tenth of the paper's."""
    some = [
        Row("vdnn", "Table 1", "net", "MiB", 100.0, 130.0, "a fact", 101.0),
        Row("vdnn", "Table 1", "net two", "MiB", 100.0, 130.0, "another", 125.0),
        Row("vdnn", "Table 1", "net three", "MiB", 100.0, 109.0),
    ]
    found = [r.row() for r in some]
    assert [r.left for r in some] == [pytest.approx(0.01), 0.25, None]
    assert "(2 by more than 10%, 1 of them explained by a trial)" in figures.summary(found)
    figures.show(found)
    assert "tried" in (said := capsys.readouterr().out) and "+1.0 %" in said and "+25.0 %" in said


def test_tables_and_page(capsys):
    some = [
        Row("vdnn", "Table 1", "net <one>", "peak, MiB", 886.230, 886.2304, "read"),
        Row("vdnn", "Table 1", "net two", "peak, MiB", 100.0, 130.0, "the model"),
        Row("vdnn", "Table 1", "net two", "forwards", 14, 14),
        Row("layrub", "Figure 12", "all", "MB", None, None, "needs the card"),
    ]
    found = [r.row() for r in some]
    figures.show(found)
    said = capsys.readouterr().out
    assert (
        "886.23" in said
        and "equal" in said
        and "+30.0 %" in said
        and "(1) the model" in said
        and "needs the card" in said
    )
    assert "read" not in said, "no reason for what does not differ"
    assert figures.summary(found).startswith("3 figures: 2 equal, 0 more within 5%, 1 further off (1 by more than 10%")
    page = figures.page(found, "notes", "0")
    assert (
        "net &lt;one&gt;" in page and "http" not in page.replace("http://www.w3.org", "") and "needs the card" in page
    )


def test_the_verb(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        "minidnn.study.reproduce.rows",
        lambda system, tell: iter([Row(system, "Table 1", "net", "MiB", 1.0, 2.0, "why")]),
    )
    path = tmp_path / "all.html"
    assert main(["reproduce", "--json", "--report", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert [r["system"] for r in found] == ["vdnn", "vdnnpp", "superneurons", "layrub", "accudnn"]
    assert found[0] == {
        "system": "vdnn", "figure": "Table 1", "case": "net", "quantity": "MiB", "paper": 1.0, "ours": 2.0,
        "deviation": 1.0, "reason": "why", "tried": None, "left": None,
    }  # fmt: skip
    assert "Layrub" in path.read_text()
    assert main(["reproduce", "layrub"]) == 0
    assert "Layrub" in capsys.readouterr().out
    assert main(["reproduce", "vdmn"]) == 2
    assert main(["reproduce", "--report", str(tmp_path / "no" / "a.html")]) == 2


def test_interrupted_it_shows_what_was_found(monkeypatch, capsys):
    def some(system, tell):
        yield Row(system, "Table 1", "net", "MiB", 1.0, 2.0, "why")
        raise KeyboardInterrupt

    monkeypatch.setattr("minidnn.study.reproduce.rows", some)
    assert main(["reproduce", "--json"]) == 130
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1
