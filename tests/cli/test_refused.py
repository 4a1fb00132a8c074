"""A refused budget is answered: with its worst moment, with the least that is possible, and with what would fit."""

import json
import re
import shlex
import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest

from minidnn import sizes
from minidnn.cli.main import main
from minidnn.report import refusal
from tests.support.slow import usual_are
from tests.support.texts import NET

SOLVER = "net: small.yaml\nbase_lr: 0.01\nlr_policy: fixed\nmomentum: 0.9\nmax_iter: 2\n"
LEANER = "lenet --gpu titan_x --policy liveness:p --budget 7.5MiB"
ASKED = {  # {a refused command: which options are proposed}
    "small.yaml --batch 32 --gpu titan_x --budget 250KiB": ["batch", "budget"],
    "small.yaml --batch 8 --gpu k40 --policy baseline:m --budget 125KiB": ["policy", "batch", "budget"],
    LEANER: ["policy", "policy", "batch", "budget"],
    "small.yaml --batch 8 --device reference --budget 60KiB": ["format", "format", "batch", "budget"],
    "small.yaml --batch 1 --device reference --policy liveness --budget 20KiB": ["policy", "budget"],
    "solver.yaml --batch 1 --gpu titan_x --policy liveness --budget 40KiB": ["policy", "state", "state", "budget"],
    "small.yaml --batch 32 --gpu titan_x --policy vdnn_all --host-budget 200KiB": ["host_budget", "policy", "batch"],
    "small.yaml --batch 32 --device reference --policy vdnn_all --host-ring 1KiB": ["host_ring"],
}
LONG = {
    LEANER,
    "small.yaml --batch 32 --gpu titan_x --budget 250KiB",
    "small.yaml --batch 8 --device reference --budget 60KiB",
    "solver.yaml --batch 1 --gpu titan_x --policy liveness --budget 40KiB",
}


@pytest.fixture
def folder(tmp_path, own_cache, monkeypatch):
    (tmp_path / "small.yaml").write_text(NET)
    (tmp_path / "solver.yaml").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def leaner() -> tuple[str, dict]:
    """What LEANER prints on a terminal of 80 columns, and its document."""
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refusal, "WIDE", 80)
        for how in ([], ["--json"]):
            with redirect_stdout(StringIO()) as out:
                assert main(["plan", *shlex.split(LEANER), *how]) == 2
            said.append(out.getvalue())
    return said[0], json.loads(said[1])["refused"]


def planned(capsys, *argv, code):
    assert main(["plan", *argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", usual_are(ASKED.keys() - LONG, ASKED))
def test_each_proposal_fits_when_it_is_followed(command, folder, capsys):
    asked = shlex.split(command)
    told = planned(capsys, *asked, code=2)["refused"]
    assert [name for remedy in told["remedies"] for name in remedy["change"]] == ASKED[command]
    for remedy in told["remedies"]:
        (row,) = planned(capsys, *asked, *shlex.split(remedy["options"]), code=0)["rows"]
        assert row["fits"] and (row["peak_bytes"], row["step_seconds"]) == (
            remedy["peak_bytes"],
            remedy["step_seconds"],
        )
    for vain in told["in_vain"]:
        assert main(["plan", *asked, *shlex.split(vain["options"]), "--listing"]) == 2
        capsys.readouterr()


@pytest.mark.extended
def test_what_the_bound_says_holds(folder, capsys):
    asked = shlex.split(next(iter(ASKED)))
    told = planned(capsys, *asked, code=2)["refused"]
    assert told["limit_bytes"] < told["least_bytes"] <= told["reached_bytes"]
    assert told["largest_batch"] is None, "a larger batch may fit in parts"
    asked += ["--policy", "recompute_all:m"]
    told = planned(capsys, *asked, code=2)["refused"]
    (tried,) = (r["change"]["batch"] for r in told["remedies"] if r["change"].keys() == {"batch"})
    assert tried <= told["largest_batch"] < 32
    for policy in ("recompute_all:m", "best"):
        more = ["--batch", str(told["largest_batch"] + 1), "--policy", policy, "--listing"]
        assert main(["plan", *asked, *more]) == 2


@pytest.mark.extended
def test_no_batch_helps_if_the_weights_alone_are_too_many(folder, capsys):
    argv = ["small.yaml", "--batch", "4", "--gpu", "k40", "--budget", "10KiB"]
    told = planned(capsys, *argv, code=2)["refused"]
    assert told["carried_bytes"] > told["limit_bytes"] and not told["in_vain"]
    assert [set(r["change"]) for r in told["remedies"]] == [{"budget"}]
    assert main(["plan", *argv]) == 2
    assert "no smaller batch helps, but keeping them on the host does" in capsys.readouterr().out


def test_a_leaner_algorithm_is_named(leaner):
    remedy = leaner[1]["remedies"][0]
    assert remedy["options"] == "--policy liveness" and remedy["note"].startswith("a leaner algorithm for conv")


def test_the_picture_has_every_byte_once_and_fits_a_terminal(leaner):
    out, then = leaner[0], leaner[1]["worst"]
    assert (
        then["live_bytes"]
        == sum(then["held_bytes"].values())
        == sum(r["tensor_bytes"] for r in then["residents"])
        > 7.5 * 2**20
    )
    first = out.index("The worst moment")
    picture = out[first : out.index("The leanest plan")].rstrip().splitlines()
    assert all(len(line) <= 80 for line in picture[1:]) and then["op"] in picture[0]
    bars = [line[2 : 3 + refusal.BAR] for line in picture if re.match(r"  [ █▏│]", line)][1:]
    column = [sum(bar[i] == "█" for bar in bars) for i in range(refusal.BAR + 1)]
    mark = round(refusal.BAR * 7.5 * 2**20 / then["live_bytes"])
    assert all(bar[mark] == "│" for bar in bars) and set(column[:mark] + column[mark + 1 : -1]) == {1}
    held = [sizes.text(nbytes) for why, nbytes in then["held_bytes"].items() if nbytes > then["live_bytes"] / 100]
    assert all(f", {text}: " in out for text in held)


VERBS = ["train solver.yaml", "time small.yaml --gpu k40", "compare small.yaml --gpu k40"]


@pytest.mark.parametrize("verb", usual_are(VERBS[1:2], VERBS))
def test_other_verbs_name_the_command_that_tells_more(verb, folder, capsys):
    code = main([*shlex.split(verb), "--budget", "12.5KiB", "--batch", "8"])
    said = capsys.readouterr()
    (command,) = re.findall(r"`minidnn (plan [^`]*)` says what would fit", said.out + said.err)
    assert "--budget 12.5KiB" in command and "--batch 8" in command
    assert ("--gpu k40" in command) == ("k40" in verb)
    assert code == (0 if verb.startswith("compare") else 2)
    assert main(shlex.split(command.replace("NAME", "best"))) == 2
    assert "What would fit" in capsys.readouterr().out


def test_several_policies_are_told_apart_first(folder, capsys):
    argv = ["plan", "small.yaml", "--gpu", "k40", "--policies", "baseline,best", "--budget", "10KiB"]
    assert main(argv) == 2
    out = capsys.readouterr().out
    assert out.count("refused: ") == 2 and "--policy NAME` says what would fit" in out and "What would fit" not in out


def test_a_plan_file_has_one_size(folder, capsys):
    assert main(["plan", "small.yaml", "--gpu", "k40", "--policy", "liveness", "--save", "small.plan"]) == 0
    capsys.readouterr()
    told = planned(capsys, "small.yaml", "--gpu", "k40", "--policy", "small.plan", "--budget", "40KiB", code=2)[
        "refused"
    ]
    assert {frozenset(t["change"]) for t in told["remedies"] + told["in_vain"]} <= {
        frozenset({"policy"}), frozenset({"budget"})
    }  # fmt: skip


def test_without_the_solver_it_is_tried_all_the_same(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    told = planned(
        capsys, "small.yaml", "--batch", "8", "--gpu", "k40", "--policy", "liveness", "--budget", "40KiB", code=2
    )["refused"]
    assert told["limit_bytes"] < told["least_bytes"] and told["largest_batch"] == 4
    assert any("batch" in t["change"] for t in told["remedies"])


@pytest.mark.parametrize("nbytes", [1, 999, 1000, 1024, 1500, 2621440, 12 * 10**9, 12 * 2**30, 2876556544, 2**53 - 1])
def test_a_size_is_written_so_that_it_is_read_as_it_was(nbytes):
    assert sizes.parse(sizes.exact(nbytes)) == nbytes


def test_sizes_are_written_as_people_do():
    assert [sizes.exact(n) for n in (2**20 * 5 // 2, 12 * 10**9, 1001)] == ["2.5MiB", "12GB", "1001"]
