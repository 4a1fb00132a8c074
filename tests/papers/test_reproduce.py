"""`minidnn reproduce`: vDNN's figures as far as they are known exactly, and how rows become tables and a page."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import get_args

import pytest

from minidnn.cli.main import main
from minidnn_papers import SYSTEMS, gallery, parts, rows, verdicts
from minidnn_papers import figures as figures_of
from minidnn_papers import report as figures
from minidnn_papers.charts import charts
from minidnn_papers.part import Part, is_wanted
from minidnn_papers.records import Reproduction, Verdict
from minidnn_papers.row import EXACT, FITTED, TRAINS, UNFOUNDED, UNSTATED, Directed, Row, Trial, higher, lower


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
        if r.ours is None or r.deviation is None or abs(r.deviation) > EXACT:
            assert r.said, (r.figure, r.case)


def test_deviation():
    def of(paper, ours):
        return Row("vdnn", "", "", "", paper, ours).deviation

    assert of(200, 210) == pytest.approx(0.05) and of(0.0, 0.0) == 0 and of(None, 3) is None and of(3, None) is None
    assert of(0.0, 3) is None, "no ratio to nothing"


def test_verdicts():
    """What the numbers say, whatever the reason says."""

    def of(paper, ours, reason="", trial=None, constructed=False):
        return Row("vdnn", "Table 1", "net", "MiB", paper, ours, reason, trial, constructed)

    close, far, worse = Trial("a fact", 101.0), Trial("a fact", 125.0), Trial("a fact", 140.0)
    want = {
        of(100.0, 109.0): "within 10 %", of(100.0, 109.0, trial=worse): "within 10 %", of(0.0, 0.0): "within 10 %",
        of(100.0, 130.0): "not explained", of(0.0, 3.0): "not explained",
        of(100.0, 130.0, trial=close): "explained by a trial",
        of(100.0, 130.0, trial=far): "not explained", of(100.0, 130.0, trial=worse): "not explained",
        of(100.0, 130.0, trial=replace(close, barred=UNSTATED)): "not explained",
        of(100.0, 130.0, trial=replace(close, barred=UNFOUNDED)): "not explained",
        of(100.0, 130.0, trial=replace(close, barred=FITTED)): "by construction",
        of(100.0, 130.0, trial=replace(far, barred=FITTED)): "not explained",
        of(100.0, 100.0, constructed=True): "by construction", of(100.0, 130.0, constructed=True): "by construction",
        of(None, 3.0): "no figure of theirs", of(3.0, None): "no figure of ours",
        of(3.0, None, trial=Trial("a fact", None)): "no figure of ours",
    }  # fmt: skip
    assert {row: row.verdict for row in want} == want
    assert set(want.values()) == set(get_args(Verdict))


def test_what_is_said_is_what_the_numbers_bear_out():
    def said(ours, reason="", trial=None):
        return Row("vdnn", "Table 1", "net", "MiB", 100.0, ours, reason, trial).said

    assert said(80.0, lower("bytes are free here")) == "Not explained. Bytes are free here"
    assert said(120.0, lower("bytes are free here")) == "Not explained", "its own number refutes it"
    assert said(104.0, lower("bytes are free here")) == "Not explained", "within 10 %, and with no reason"
    assert said(96.0, lower("bytes are free here")) == "Bytes are free here"
    assert said(80.0, higher("a map more")) == "Not explained" and said(105.0, higher("a map more")) == "A map more"
    assert said(130.0, "a guess.", Trial("so", 101.0)) == "A guess. Tried: so"
    assert said(130.0, "a guess", Trial("so", 125.0)) == "Not explained. A guess. Tried: so, which does not suffice"
    assert said(130.0, "a guess", Trial("so", 140.0)) == "Not explained. A guess. Tried: so, which is no closer"
    assert said(130.0, "", Trial("a link", 101.0, UNSTATED)) == f"Not explained. Tried: a link, {UNSTATED}"


@pytest.mark.slow
def test_no_row_says_what_its_number_refutes(vdnn):
    directed = [r for r in vdnn if isinstance(r.reason, Directed)]
    assert len(directed) > 10
    for r in directed:
        against = r.deviation * r.reason.side < -EXACT
        assert (r.reason.text[1:] in r.said) != against, (r.figure, r.case, r.deviation, r.said)


@pytest.mark.slow
def test_every_row_has_a_figure_and_trials_explain_only_what_they_mend(vdnn):
    for r in vdnn:
        assert r.paper is not None or r.ours is not None, (r.figure, r.case)
        if r.verdict == "explained by a trial":
            assert abs(r.left) <= 0.1 < abs(r.deviation) and r.trial.barred == "" and r.figure != "Figure 14"
        assert r.said.startswith("Not explained") == (r.verdict == "not explained" or r.refuted), (r.case, r.said)


def test_a_reason_that_was_tried(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    some = [
        Row("vdnn", "Table 1", "net", "MiB", 100.0, 130.0, "a fact", Trial("another batch", 101.0)),
        Row("vdnn", "Table 1", "net two", "MiB", 100.0, 130.0, "another", Trial("another batch", 125.0)),
        Row("vdnn", "Table 1", "net three", "MiB", 100.0, 109.0),
        Row("layrub", "Table 1", "net", "MiB", 8.0, 8.0, "asked for", constructed=True),
    ]
    found = [r.row() for r in some]
    assert [r.left for r in some] == [pytest.approx(0.01), 0.25, None, None]
    assert "(1 explained by a trial, 1 not explained, 1 by construction)" in figures.summary(found)
    figures.show(found)
    said = capsys.readouterr().out
    assert "tried" in said and "+1.0 %" in said and "+25.0 %" in said and "By construction. Asked for" in said
    counted = {(v.system, v.verdict): v.figures for v in verdicts(found)}
    assert counted["vdnn", "not explained"] == counted["vdnn", "within 10 %"] == 1 and sum(counted.values()) == 4
    figures.show_verdicts(verdicts(found))
    table = capsys.readouterr().out
    assert "explained by a trial" in table and "vDNN (MICRO 2016)" in table and "all" in table


def test_tables_and_page(capsys):
    some = [
        Row("vdnn", "Table 1", "net <one>", "peak, MiB", 886.230, 886.2304, "read"),
        Row("vdnn", "Table 1", "net two", "peak, MiB", 100.0, 130.0, "the model"),
        Row("vdnn", "Table 1", "net two", "forwards", 14, 14),
        Row("layrub", "Figure 12", "all", "MB", 3.0, None, "needs the card"),
    ]
    found = [r.row() for r in some]
    figures.show(found)
    said = capsys.readouterr().out
    assert "886.23" in said and "equal" in said and "+30.0 %" in said
    assert "(1) Not explained. The model" in said and "Needs the card" in said
    assert "Read" not in said, "no reason for what does not differ"
    assert figures.summary(found).startswith("3 figures: 2 equal, 0 more within 5%, 1 further off (0 explained by")
    answer = figures.Reproduced(Reproduction(rows=found, verdicts=verdicts(found)), "The papers", "notes")
    page = answer.page()
    assert "net &lt;one&gt;" in page and "http" not in page.replace("http://www.w3.org", "")
    assert "Needs the card" in page and "Figures by verdict" in page and "<td>vDNN (MICRO 2016)</td>" in page
    drawn = ElementTree.fromstring(answer.picture())
    assert float(drawn.get("width")) == 480, "a phone shows all of it"
    bars = [e for e in drawn.iter() if e.tag.endswith("}rect") and e.get("class") in ("labels", "feature_maps")]
    assert len(bars) == 2 + 7, "the key; and of four rows one has no figure of ours"
    words = " ".join(e.text for e in drawn.iter() if e.tag.endswith("}text"))
    assert "886.23 → 886.23   equal" in words and "net <one>" in words and "100 → 130   +30.0 %" in words
    inside = [float(e.get("x")) + float(e.get("width")) for e in bars]
    assert max(inside) < 12 + 132 + 148 + 12, "bars end where the numbers begin"


def test_charts_have_the_rows_of_one_net_and_quantity():
    cases = [("VGG (64), all", "MiB"), ("VGG (64), conv", "MiB"), ("VGG (64), all", "speed"), ("LeNet", "MiB")]
    rows = [Row("vdnn", "Figure 1", case, what, 1.0, 1.0).row() for case, what in cases]
    found = [(c.title, c.quantity, [label for label, _ in c.rows]) for c in charts(rows)]
    assert found == [
        ("VGG (64)", "MiB", ["all", "conv"]), ("speed", "", ["VGG (64), all"]), ("MiB", "", ["LeNet"]),
    ]  # fmt: skip


def test_yes_and_no_are_words(capsys):
    figures.show([Row("layrub", "abstract", "a net", TRAINS, 0, 1.0).row()])
    assert " no " in (said := capsys.readouterr().out) and " yes " in said and "differs" in said


def test_only_the_parts_of_a_figure_are_computed():
    def part(*made: str) -> Part:
        def rows(tell):
            tell(f"computes {made}")
            return iter(Row("vdnn", name, "net", what, 1.0, 1.0) for name in made for what in ("most, MiB", "speed"))

        return Part(rows, made)

    parts, computed = [part("section 2, Figure 1", "abstract"), part("Figure 11"), part("abstract of ICCD")], []
    wanted = {
        (): 8, ("figure 1",): 2, ("Figure 11", "abstract"): 6, ("Figure 1, most",): 1, ("Figure",): 4, ("Fig",): 0,
    }  # fmt: skip
    for names, count in wanted.items():
        found = [r for p in parts if p.concerns(names) for r in p.rows(computed.append) if is_wanted(r, names)]
        assert len(found) == count, names
    assert (
        computed.count("computes ('Figure 11',)") == 3
        and computed.count("computes ('section 2, Figure 1', 'abstract')") == 5
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_part_names_its_figures(system, monkeypatch):
    assert all(part.figures for part in parts(system)) and len(figures_of(system)) > 1
    assert any(part.concerns(["abstract"]) for part in parts(system)), "each abstract has its headlines"


def test_a_figure_that_no_paper_has(capsys):
    assert main(["reproduce", "vdnn", "--figure", "Figure 110"]) == 2
    assert "vdnn has no 'Figure 110' (did you mean 'Figure 11'?)" in capsys.readouterr().err


def test_the_gallery_shows_what_its_files_say(tmp_path):
    row = Row("vdnn", "abstract", "net, all", "MiB", 4.0, 5.5, "why", Trial("another batch", 4.1)).row()
    for system in gallery.FIGURES:
        document = Reproduction(rows=[row.model_copy(update={"system": system})], verdicts=[])
        figures.Reproduced(document, "").save(tmp_path / f"{system}.csv")
    assert gallery.read(tmp_path / "vdnn.csv") == [row]
    made = gallery.files(tmp_path)
    assert set(made) == {"index.md", *(f"{system}_bars.svg" for system in SYSTEMS)}
    line = "| net, all: MiB | 4 | 5.500 | explained by a trial (+37.5 %, then +2.5 %) [1] |"
    assert line in made["index.md"] and "1. Why. Tried: another batch." in made["index.md"]
    assert "4 → 5.500" in made["vdnnpp_bars.svg"] and "4 → 5.500" not in made["vdnn_bars.svg"], (
        "which shows another figure"
    )


def test_the_verb(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        "minidnn_papers.verb.rows",
        lambda system, tell, wanted: iter([Row(system, "Table 1", "net", "MiB", 1.0, 2.0, "why")]),
    )
    path = tmp_path / "all.html"
    assert main(["reproduce", "--json", "--report", str(path)]) == 0
    document = json.loads(capsys.readouterr().out)
    found = document["rows"]
    assert [r["system"] for r in found] == ["vdnn", "vdnnpp", "superneurons", "layrub", "accudnn"]
    assert found[0] == {
        "system": "vdnn", "figure": "Table 1", "case": "net", "quantity": "MiB", "paper": 1.0, "ours": 2.0,
        "deviation": 1.0, "verdict": "not explained", "reason": "Not explained. Why", "tried": None, "left": None,
    }  # fmt: skip
    assert {"system": "vdnn", "verdict": "not explained", "figures": 1} in document["verdicts"]
    assert "Layrub" in path.read_text()
    assert main(["reproduce", "layrub"]) == 0
    said = capsys.readouterr().out
    assert "Layrub" in said and "Figures by verdict" in said
    assert main(["reproduce", "vdmn"]) == 2
    assert main(["reproduce", "--report", str(tmp_path / "no" / "a.html")]) == 2


def test_interrupted_it_shows_what_was_found(monkeypatch, capsys):
    def some(system, tell, wanted):
        yield Row(system, "Table 1", "net", "MiB", 1.0, 2.0, "why")
        raise KeyboardInterrupt

    monkeypatch.setattr("minidnn_papers.verb.rows", some)
    assert main(["reproduce", "--json"]) == 130
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1


def test_without_the_package_the_verb_names_it_and_others_go_on(monkeypatch, capsys):
    monkeypatch.setattr("minidnn.cli.reproduce.PACKAGE", "no_papers")
    for words in (["reproduce", "vdnn"], ["reproduce", "--help"]):
        assert main(words) == 2
        assert "reproduce needs the package no_papers" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "\n  reproduce" in capsys.readouterr().out
