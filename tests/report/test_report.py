"""Reports: what is printed can be read back, a page is one file, and pictures stay small on deep nets."""

import dataclasses
import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from minidnn import sizes
from minidnn.jobs.compare import simulated
from minidnn.report import compare, draw, policies, table
from minidnn.report.markup import placeless
from minidnn.report.panel import Bar, Panel, panel
from minidnn.report.tradeoff import tradeoff
from minidnn.results.policies import Plans
from tests.support.policies import KINDS as POLICIES
from tests.support.programs import chain, costs


def panels(program=None, budget=None, policies=POLICIES):
    results = simulated([program or chain()], policies, costs(), budget)
    return [panel(r.policy, r.row(), r.schedule, r.trace) for r in results]


@pytest.mark.parametrize(
    "policy, shown", [("superneurons_cost_aware:m",) * 2, ("far/away/" * 9 + "x.plan", "far/away/x.plan")]
)
def test_names_have_room_beside_the_bars(policy, shown):
    found = [dataclasses.replace(p, policy=policy) for p in panels()]
    drawn, _ = draw.draw_roles(found, None, 0)
    x, name = re.search(r'<text x="([\d.]+)" y="15" text-anchor="end">([^<]*)<', drawn).groups()
    assert shown in name and float(x) > 7 * len(name) and len(name) <= 40


def test_duration_and_size():
    for seconds, text in ((0, "0.00 µs"), (1.5e-6, "1.50 µs"), (0.0352, "35.2 ms"), (1.24, "1.24 s"), (312, "312 s")):
        assert table.duration(seconds) == text
    assert table.duration(None) == table.size(None) == "–"
    said = [table.rate(v) for v in (0.5, 46.1, 999.96, 1000, 521312.4)]
    assert said == ["0.5000", "46.10", "1000", "1000", "521312"]
    assert table.size(0) == "0" and table.size(1536 * 2**20) == "1.50 GiB"


def test_table_names_the_refused_and_why():
    lean = simulated([chain()], ["vdnn_all:m"], costs())[0].arrangement.arena
    rows = [p.row for p in panels(budget=lean, policies=["baseline:m", "vdnn_all:m"])]
    out = io.StringIO()
    policies.show(rows, "a title", out)
    text = out.getvalue()
    assert "a title" in text and "baseline:m" in text
    assert re.search(r"baseline:m +refused", text) and re.search(r"vdnn_all:m +yes", text)
    assert "refused: baseline:m needs" in text
    assert "weights equal" not in text and "recomputed" not in text  # columns that would say nothing


def test_table_shows_weights_that_differ():
    rows = [dict(p.row, identical=p.policy != "vdnn_all:m") for p in panels()]
    out = io.StringIO()
    policies.show(rows, file=out)
    assert "weights equal" in out.getvalue() and "NO" in out.getvalue()
    out = io.StringIO()
    policies.show([dict(row, identical=True) for row in rows], file=out)
    assert "weights equal" not in out.getvalue() and "Each ended with the same weights as baseline" in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def text(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue())


@pytest.mark.parametrize("columns", [80, 100, 120, 240])
def test_no_number_is_cut_on_a_narrow_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    algorithms = "nhwc.brgconv 38, nhwc.brgconv_1x1 78, nhwc.jit 21, nhwc.jit_1x1 39"
    rows = [dict(p.row, identical=i > 0, algorithms=algorithms, peak_bytes=123 << 20) for i, p in enumerate(panels())]
    out = Terminal()
    policies.show(rows, file=out)
    text = out.text()
    assert "…" not in text and max(map(len, text.splitlines())) <= columns
    assert all(re.search(rf"{p} +yes +123 MiB .*(yes|NO)", text) for p in POLICIES)
    assert ("columns left out to fit the width: prefetch, algorithms" in text) == (columns <= 120)
    assert ("brgconv_1x1 78" in text) == (columns > 120) == ("left out" not in text)


@pytest.mark.parametrize(("columns", "width"), [(None, 200), ("90", 90), ("", 200), ("0", 200), ("wide", 200)])
def test_without_a_terminal_lines_are_as_wide_as_columns_says(monkeypatch, columns, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    out = io.StringIO()
    table.plain(["tensor", "bytes", "what"], [["conv1", "98.0 MiB", "words " * 90]], file=out)
    lines = out.getvalue().splitlines()
    assert width - 8 < max(map(len, lines)) <= width and "\x1b" not in out.getvalue()
    assert sum(line.count("words") for line in lines) == 90


@pytest.mark.parametrize("asked", ["", "1"])
def test_no_color_on_a_terminal_that_shall_have_none(monkeypatch, asked):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", asked)
    out = Terminal()
    table.console_of(out).print("text", style="red")
    assert ("\x1b[31m" in out.getvalue()) == (not asked)


def test_sentences_are_folded_on_a_terminal_alone(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    out, pipe, sentence = Terminal(), io.StringIO(), "No plan of a batch up to 1048576 can be quicker than that."
    for file in (out, pipe):
        table.prose(sentence, file)
        table.plain(["a"], [["1"]], sentence, file)
    lines = out.text().splitlines()
    assert max(map(len, lines)) <= 40 and " ".join(out.text().split()).count(sentence) == 2
    assert pipe.getvalue().splitlines().count(sentence) == 2


def test_words_are_folded_before_numbers_are_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    table.plain(["tensor", "bytes", "what"], [["a_long_name/" * 4, "98.0 MiB", "some words about it"]], file=out)
    text = out.text()
    assert "98.0 MiB" in text and "…" not in text and max(map(len, text.splitlines())) <= 40


def test_json_is_one_document():
    out = io.StringIO()
    known = {"net": "chain", "format": "float32", "device": "made by hand", "origin": "estimated"}
    table.dump(Plans(rows=[p.row for p in panels()], **known), out)
    document = json.loads(out.getvalue())
    assert (document["version"], document["kind"], document["device"]) == (1, "plan", "made by hand")
    assert [r["policy"] for r in document["rows"]] == POLICIES


def test_panel_knows_stalls_kinds_and_the_turn():
    p = panels(policies=["vdnn_all:m"])[0]
    assert {b.kind for b in p.bars} == {"convolution", "inner", "other", "update", "out", "in"}
    assert sum(b - a for a, b in p.stalls) == pytest.approx(p.row["stall_seconds"])
    first = min(b.start for b in p.bars if ".backward" in b.name)
    assert p.turn == first and 0 < first < p.seconds


def test_page_is_self_contained_and_well_formed():
    lean = simulated([chain()], ["vdnn_all:m"], costs())[0].arrangement.arena
    html = compare.page(panels(budget=lean), lean, "chain & <co>", "made by hand", "1.0")
    assert "chain &amp; &lt;co&gt;" in html
    for word in ("http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "import("):
        assert word not in html.replace('xmlns="http://www.w3.org/2000/svg"', "")
    for svg in re.findall(r"<svg.*?</svg>", html, re.S):
        ElementTree.fromstring(svg)
    for policy in POLICIES:
        assert html.count(policy) >= 3  # table, bars, timeline
    assert "is refused at a budget" in html and "budget" in html and "prefers-color-scheme" in html


def data_of(html):
    return json.loads(re.search(r'<script type="application/json" id="steps">(.*?)</script>', html, re.S)[1])


def test_the_data_of_a_page_have_every_bar_with_what_it_waited_for():
    found = panels(policies=["baseline:m", "vdnn_all:m"])
    data = data_of(compare.page(found, None, "chain", "", "1.0"))
    names = data["names"]
    for p, told in zip(found, data["panels"], strict=True):
        assert len(told["bars"]) == len(p.bars) and told["seconds"] == round(p.seconds * 1e9)
        assert [names[b[2]] for b in told["bars"]] == [b.name for b in p.bars]
    moving = data["panels"][1]
    waiting = [b for b in moving["bars"] if b[0] == "compute" and b[8] >= 0]
    assert sum(b[9] for b in waiting) == pytest.approx(found[1].row["stall_seconds"] * 1e9, abs=len(waiting))
    assert {moving["bars"][b[8]][1] for b in waiting} <= {"in", "out"}
    op = next(b for b in moving["bars"] if names[b[2]] == "conv1.forward")
    assert names[op[6]] == "conv1" and {names[t] for t in op[7]} >= {"conv1.w"} and op[5] > 0


def test_names_cannot_end_the_script():
    (p,) = panels(policies=["liveness:m"])
    bad = dataclasses.replace(p.bars[0], name="</script><script>alert(1)")
    html = compare.page([dataclasses.replace(p, bars=[bad, *p.bars[1:]])], None, "chain", "", "1.0")
    assert "</script><script>alert" not in html and html.count("</script>") == 2
    assert data_of(html)["names"][0] == "</script><script>alert(1)"


def test_every_policy_is_a_point_with_its_interval():
    found = [measured("baseline:m", 1, 1, 1), measured("vdnn_all:m", 1.2, 1.3, 1.5)]
    intervals = {"step_seconds_low": 0.9, "step_seconds_high": 1.1, "timed_steps": 9}
    found = [with_row(p, **intervals) for p in found]
    drawn = tradeoff(found, found[0].row["peak_bytes"])
    assert drawn.count("<circle") == 2 and drawn.count('stroke-width="1.6"') == 2 and "budget" in drawn
    assert "vdnn_all:m: " in drawn and tradeoff([], None) == ""
    ElementTree.fromstring(drawn)


def test_names_of_files_stand_for_their_absolute_paths():
    for text, shown in (
        ("from the profile /home/u/gpus/mine.yaml. Assumed", "from the profile mine.yaml. Assumed"),
        ("/tmp/x.plan needs 2 MiB", "x.plan needs 2 MiB"),
        ("inception_3a/1x1 of models/net.yaml, 3 ms/step", "inception_3a/1x1 of models/net.yaml, 3 ms/step"),
    ):
        assert placeless(text) == shown


def test_picture_stands_alone():
    root = ElementTree.fromstring(draw.picture(panels(), None, "chain", ""))
    assert root.tag.endswith("svg") and root.find("{http://www.w3.org/2000/svg}style") is not None


def test_says_what_happened():
    lean = simulated([chain()], ["vdnn_all:m"], costs())[0].arrangement.arena
    words = compare.sentences(panels(budget=lean, policies=["baseline:m", "vdnn_all:m"]), lean)
    assert (
        words.startswith("baseline:m needs") and "is refused" in words and "vdnn_all:m trains the same network" in words
    )
    assert compare.sentences([], None) == ""
    least = sizes.text(lean)
    words = compare.sentences(panels(budget=1, policies=["baseline:m", "vdnn_all:m"]), 1)
    assert "None of these policies fits" in words and f"vdnn_all:m needs the least device memory: {least}" in words


def measured(policy, *slowdowns):
    (p,) = panels(policies=[policy])
    low, middle, high = slowdowns
    times = {"slowdown": middle, "slowdown_low": low, "slowdown_high": high, "step_seconds": middle}
    return dataclasses.replace(p, row={**p.row, **times})


def test_says_where_measurements_are_too_noisy_to_rank():
    base, lean = measured("baseline:m", 1, 1, 1), measured("vdnn_all:m", 1.2, 1.3, 1.5)
    near, apart = measured("liveness:m", 0.97, 1.01, 1.05), measured("vdnn_conv:m", 1.1, 1.25, 1.4)
    said = compare.sentences([base, lean, apart], None)
    assert "The fastest policies that save memory are too noisy to rank: vdnn_conv:m, vdnn_all:m." in said
    assert "at 1.30 (1.20–1.50) times baseline's time" in said and "is the fastest" not in said
    said = compare.sentences([base, near, lean], None)
    assert "liveness:m is the fastest that saves memory" in said and "as fast as baseline within the noise" in said
    assert policies.noise([p.row for p in (lean, near, base)]) == ["Too noisy to rank by time: baseline:m, liveness:m."]
    assert policies.noise([p.row for p in panels()]) == []  # what is simulated has no noise
    out = io.StringIO()
    policies.show([p.row for p in (base, near, lean)], file=out)
    assert "1.01× (0.97–1.05)" in out.getvalue() and "Too noisy to rank by time: baseline:m" in out.getvalue()
    assert "1.00×" in out.getvalue() and "1.00× (" not in out.getvalue()
    assert "Too noisy to rank" in compare.page([base, near], None, "", "", "0")


def test_what_overlaps_by_way_of_a_third_is_not_ranked_either():
    spreads = {"vdnn_conv:m": (1.4, 1.6, 2), "liveness:m": (1, 1.1, 1.2), "vdnn_all:m": (1.15, 1.3, 1.5)}
    (said,) = policies.noise([measured(policy, *spread).row for policy, spread in spreads.items()])
    assert said == "Too noisy to rank by time: liveness:m, vdnn_all:m, vdnn_conv:m."


def with_row(p, **more):
    return dataclasses.replace(p, row={**p.row, **more})


def test_too_few_steps_rank_nothing():
    spreads = {"baseline:m": (1, 1, 1), "vdnn_all:m": (1.9, 2, 2.1), "liveness:m": (1, 1, 1)}
    found = [with_row(measured(policy, *spread), timed_steps=2) for policy, spread in spreads.items()]
    assert policies.noise([p.row for p in found]) == ["Too few steps to rank by time: ranking takes 6 timed steps."]
    said = compare.sentences(found, None)
    assert "times baseline's time" not in said and "quickest" not in said


def test_measured_seconds_are_shown_with_their_interval_and_a_busy_machine_is_told():
    (p,) = panels(policies=["liveness:m"])
    times = {"step_seconds": 2.5e-3, "step_seconds_low": 2.41e-3, "step_seconds_high": 12.72e-3, "timed_steps": 99}
    assert policies.seconds({**p.row, **times}) == "2.50 ms (2.41–12.72)"
    said = [policies.noise([{**p.row, **times, "other_processors": n}]) for n in (None, 0.1, 1.26)]
    assert said[0] == said[1] == [] and "other programs kept 1.3 processors busy" in said[2][0]


def test_what_is_predicted_is_not_set_beside_what_was_measured():
    rows = [p.row for p in panels(budget=10**9, policies=["baseline:m", "best"])]
    (said,) = policies.bounded(rows)
    assert "no plan within the budget takes less than" in said, "NAME@N may take less"
    assert "over bound" in policies.cells(rows)[0]
    rows = [{**row, "timed_steps": 20} for row in rows]
    assert policies.bounded(rows) == [] and "over bound" not in policies.cells(rows)[0]


def test_says_nothing_of_the_device_where_the_host_refuses():
    results = simulated([chain()], ["baseline:m", "vdnn_all:m"], costs(), 10**9, 1)
    words = compare.sentences([panel(r.policy, r.row(), r.schedule, r.trace) for r in results], 10**9)
    assert words.startswith("baseline:m is refused.") and "at a budget" not in words


def test_no_line_crosses_a_word_and_nothing_is_measured_against_itself():
    found = panels(policies=["baseline:m", "vdnn_all:m"])
    found = [replace(p, row=dict(p.row, identical=True)) for p in found]
    budget = round(found[1].row["live_peak_bytes"] * 1.05)
    roles, _ = draw.draw_roles(found, budget, 0)
    (line,) = map(float, re.findall(r'class="budget" x1="([\d.]+)"', roles))
    words = [
        (float(x), word) for x, word in re.findall(r'class="soft(?: bad)?" x="([\d.]+)" y="\d+">(\d[^<]*)<', roles)
    ]
    assert len(words) == 2 and all(not x <= line <= x + 6.6 * len(word) for x, word in words)
    assert 'class="soft bad over"' in draw.draw_panel(found[1], draw.Scale(found, budget), budget, found[0], 0)
    html = compare.page(found, budget, "chain", "run", "1.0")
    assert html.count("× baseline") == html.count("weights byte-equal to baseline") == 1  # vdnn_all's
    timed = [with_row(p, timed_steps=9) for p in found]
    assert "shows the median step of the table." in compare.page(timed, budget, "chain", "run", "1.0")
    timed[1] = with_row(timed[1], step_seconds=timed[1].seconds / 2)
    assert "separately traced" in compare.page(timed, budget, "chain", "run", "1.0")
    assert "Of a policy that was run" not in html and "Of a policy that was run" not in compare.page(
        panels(), None, "chain", "", "1.0"
    )


def deep(n):
    """A step of n ops and n copies, as of a very deep net."""
    bars = [Bar("compute", "convolution", f"op{i}", i / n, (i + 0.9) / n) for i in range(n)]
    bars += [Bar("out", "out", f"t{i}", i / n, (i + 0.4) / n) for i in range(n)]
    row = dict(panels(policies=["liveness:m"])[0].row)
    return Panel("liveness:m", row, 1.0, [(i / n, 1000 + 50 * (i % 7)) for i in range(n)], bars)


def test_a_deep_net_makes_no_larger_picture():
    small, large = (len(draw.picture([deep(n)], None, "deep", "")) for n in (3000, 30000))
    assert large < 2 * small and large < 200_000


def test_step_curve_keeps_its_peak():
    p = deep(30000)
    memory = [*p.memory[:15000], (0.50001, 10**6), (0.50002, 1000), *p.memory[15001:]]
    scale = draw.Scale([Panel("a", p.row, 1.0, memory, p.bars)], None)
    path = draw.steps(memory, 1.0, scale)
    assert f"V{scale.y(10**6):.1f}" in path


@pytest.mark.parametrize("top", [1e-9, 0.02, 0.7, 1, 3.3, 10, 99, 12.2, 5000])
def test_ticks_are_few_round_and_inside(top):
    found = draw.ticks(top)
    assert found[0] == 0 and 4 <= len(found) <= 11 and found[-1] <= top * (1 + 1e-9)
    assert found == sorted(set(found))


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_no_name_and_no_number_is_cut_in_any_table(monkeypatch, width):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    headings = ["policy", "found batch", "needs", "plans", "searched"]
    lines = [["superneurons_cost_aware of two words", "1234567", "10.5 GiB", "7", "1.24 s"]]
    out = Terminal()
    table.plain(headings, lines, "title", out, spare=("tokens/s", "searched", "plans"))
    said = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    for part in ("superneurons_cost_aware", "words", "1234567", "10.5 GiB", "found batch"):
        assert part in said
    assert ("1.24 s" in said) == (width >= 80) and (
        "columns left out to fit the width: searched" in " ".join(said.split())
    ) == (width < 80)
    if width >= 60:
        assert max(map(len, said.splitlines()[1:-1])) <= width
