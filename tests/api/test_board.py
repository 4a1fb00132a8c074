"""The board: every policy in a cell for each net, GPU and budget; refusals and failures are cells, too."""

from __future__ import annotations

import json
import signal

import pytest

import minidnn
from minidnn.api.board import BUDGETS, at_batch, budget_of, main_policies
from minidnn.cli.main import main
from minidnn.errors import InvalidInput
from minidnn.jobs import board as jobs
from minidnn.memory.plan import Plan
from minidnn.memory.policies import POLICIES, names
from minidnn.memory.policies.bibliography import VARIANTS
from minidnn.results.board import Board

NET, FEW = "cifar10_quick:32", ["baseline:m", "vdnn_all:m", "best"]


@pytest.fixture(scope="module")
def found():
    """Two contests of three budgets and three policies."""
    return minidnn.board([NET], FEW, gpus="titan_x,k40", budgets="100%,0.75,1MiB", jobs=1)


def test_a_row_for_each_policy_on_each_gpu_within_each_budget(found):
    rows = found.rows
    assert len(rows) == found.document.cells == 2 * 3 * 3 and found.document.finished
    assert {(r.gpu, r.budget_part, r.policy) for r in rows} == {
        (gpu, part, policy) for gpu in ("titan_x", "k40") for part in (1.0, 0.75, None) for policy in FEW
    }
    for r in rows:
        contest = next(c for c in found.document.contests if c.gpu == r.gpu)
        assert r.budget_bytes == (2**20 if r.budget_part is None else int(contest.whole_bytes * r.budget_part))
        if r.fits:
            assert r.bound_seconds <= r.step_seconds * (1 + 1e-9) and r.peak_bytes <= r.budget_bytes
            assert r.gap == pytest.approx(r.step_seconds / r.bound_seconds - 1) and r.plan_seconds > 0
        else:
            assert r.smallest_budget_bytes > r.budget_bytes and "the budget is" in r.why and not r.failed
    best = {r.gpu: r.step_seconds for r in rows if r.policy == "best" and r.budget_part == 1.0}
    for contest in found.document.contests:
        assert contest.least_bytes < contest.whole_bytes and best[contest.gpu] <= contest.free_seconds * (1 + 1e-9)


def test_standings_count_cells(found):
    by = {s.policy: s for s in found.document.standings}
    assert next(iter(by)) == "best" and by["best"].quickest == by["best"].kept == 4
    assert by["baseline:m"].refused_cells == 6 and by["baseline:m"].median_gap is None
    for policy, s in by.items():
        assert s.cells == 6 and s.kept + s.refused_cells + s.failed_cells == 6 and s.quickest <= s.near <= s.kept
        assert s.kept == sum(r.fits for r in found.rows if r.policy == policy)


def test_each_policy_s_paper_is_told_and_the_table_has_its_refusals(found):
    papers = {p.policy: p for p in found.document.papers}
    assert papers["vdnn_all:m"].year == 2016 and papers["vdnn_all:m"].silent and papers["best"].authors == ""
    headings, lines = found.cells()
    assert headings[0] == "policy" and [line[0] for line in lines] == [s.policy for s in found.document.standings]
    page, picture = found.page(), found.picture()
    assert page.count("<figure>") == picture.count("cifar10_quick, batch 32, on") == 2
    for words in (
        "needs ",
        "vDNN (Rhu et al. 2016)",
        "vDNN: MICRO 2016, III",
        "A forked map is offloaded",
        "within 5 % of it",
    ):
        assert words in page
    assert "There is a plan within 4 of 6 budgets" in page and "2 budgets are too small for every policy." in page
    assert Board.model_validate_json(found.to_json()) == found.document


def test_processes_side_by_side_give_the_same_and_a_failure_is_a_cell(monkeypatch, capsys):
    """The policy's error names no bug of minidnn's: it is the user's own."""

    def fails(program, costs, budget, algorithms="m") -> Plan:
        raise ZeroDivisionError("of the test")

    monkeypatch.setitem(POLICIES, "fails", fails)
    words = ["board", "lenet:8", "--gpus", "titan_x", "--budgets", "100%", "--policies", "liveness:m,fails", "--json"]
    assert main([*words, "--jobs", "2"]) == 0
    two = json.loads(capsys.readouterr().out)
    assert main([*words, "--jobs", "1"]) == 0
    one = json.loads(capsys.readouterr().out)
    for document in (one, two):
        for row in (*document["rows"], *document["standings"]):
            row["plan_seconds"] = 0
    assert one == two
    kept, failed = one["rows"]
    assert (
        kept["fits"] and failed["failed"] and not failed["fits"] and "ZeroDivisionError: of the test" in failed["why"]
    )
    assert main(words[:-1]) == 0
    said = capsys.readouterr().out
    assert "error" in said and "fails (LeNet, batch 8, on titan_x) failed: policy fails: " in said


@pytest.mark.usefixtures("default_handlers")
def test_ctrl_c_gives_what_is_done(monkeypatch, tmp_path, capsys):
    cell = jobs.cell

    def interrupted(contests, number, asked):
        if asked.policy == "vdnn_all:m":
            signal.raise_signal(signal.SIGINT)
        return cell(contests, number, asked)

    monkeypatch.setattr(jobs, "cell", interrupted)
    file = tmp_path / "board.json"
    words = ["--gpus", "titan_x", "--budgets", "100%", "--policies", "liveness:m,vdnn_all:m", "--jobs", "1"]
    assert main(["board", "lenet:8", *words, "--report", str(file)]) == 130
    assert "Interrupted: 1 of 2 cells are done." in capsys.readouterr().out
    document = json.loads(file.read_text())
    assert [r["policy"] for r in document["rows"]] == ["liveness:m"] and document["finished"] is False


def ends(contests, number, budgets):
    """In place of the work of a process."""
    signal.raise_signal(signal.SIGKILL)


def test_a_process_that_ends_is_told_in_its_cells(monkeypatch):
    monkeypatch.setattr(jobs, "ground", ends)
    found = minidnn.board("lenet:8", ["liveness:m"], gpus="titan_x", budgets="100%", jobs=2)
    assert [r.failed for r in found] == [True] and "has ended; if memory ran out" in found.rows[0].why


def test_the_policies_that_are_asked_are_the_main_ones():
    assert set(main_policies()) == set(names()) - set(VARIANTS)
    assert "best" in main_policies() and "vdnn_conv" not in main_policies()


def test_budgets_and_batches_are_read_from_words():
    assert [budget_of(b) for b in (*BUDGETS, "0.5", "4GiB")] == [1.0, 0.7, 0.5, 0.3, 0.15, 0.5, 4 * 2**30]
    assert at_batch("vgg19:64") == ("vgg19", 64) and at_batch("net.yaml") == ("net.yaml", None)
    for wrong in ("half", "0%", "-5%", "2000%"):
        with pytest.raises(InvalidInput, match=f"budget {wrong!r}: expected a percentage"):
            budget_of(wrong)
