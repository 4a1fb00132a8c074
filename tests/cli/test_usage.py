"""A wrong command ends in one line: what is wrong, what was meant, and where help is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minidnn.cli.main import main
from minidnn.cli.verbs import GROUPS, VERBS
from tests.support.texts import NET

WRONG = {
    "tran": "minidnn: there is no verb 'tran' (did you mean 'train'?); see `minidnn --help`",
    "help tran": "minidnn: there is no verb 'tran' (did you mean 'train'?); see `minidnn --help`",
    "--versoin": "minidnn: there is no option '--versoin' (did you mean '--version'?); see `minidnn --help`",
    "train": "minidnn train: the following arguments are required: SOLVER; see `minidnn train --help`",
    "plan --polices x": "minidnn plan: there is no option '--polices' (did you mean '--policies'?); "
    "see `minidnn plan --help`",
    "plan lenet --buget=1GiB": "minidnn plan: there is no option '--buget' (did you mean '--budget'?); "
    "see `minidnn plan --help`",
    "plan lenet -batch 3": "minidnn plan: there is no option '-batch' (did you mean '--batch'?); "
    "see `minidnn plan --help`",
    "plan lenet vgg16": "minidnn plan: unexpected argument 'vgg16'; see `minidnn plan --help`",
    "plan lenet --format float61": "minidnn plan: argument --format: there is no 'float61' (did you mean 'float16'?); "
    "there are float32, bfloat16, float16; see `minidnn plan --help`",
    "plan lenet --policy=": "minidnn plan: argument --policy: expected a name; see `minidnn plan --help`",
    "plan lenet --batch -1": "minidnn plan: argument --batch: '-1' is not a whole number of at least 1; "
    "see `minidnn plan --help`",
}


@pytest.mark.parametrize("command", WRONG)
def test_one_line_says_what_is_wrong(command, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(command.split())
    assert capsys.readouterr() == ("", WRONG[command] + "\n")


REFUSED = [
    "--policy nosuch",
    "--policies liveness,nosuch",
    "--policy best:m",
    "--policy liveness:q",
    "--policy no.plan",
]
REFUSED += [f"--policy liveness --budget 1KiB {how}" for how in ("", "--json", "--listing", "--save x.plan")]
REFUSED += ["--policies liveness,best --budget 1KiB", "--policy vdnn_all --host-budget 1KiB", "--ram 1MiB"]
REFUSED += ["--policy vdnn_all --host-ring 1KiB", "--policy no.plan"]


@pytest.mark.parametrize("options", REFUSED)
def test_plan_of_a_refused_policy_is_bad_input(options, capsys, tmp_path, own_cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(NET)
    assert main(["plan", "small.yaml", *options.split()]) == 2
    said = capsys.readouterr()
    assert said.out + said.err and not list(tmp_path.glob("*.plan"))


def test_what_is_quoted_has_no_effect_on_a_terminal(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "--\x1b[2J"])
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "\\x1b[2J" in said and "\x1b" not in said


def test_after_two_dashes_all_words_are_files(capsys):
    assert main(["show", "--", "--polices"]) == 2
    assert "there is no file or model --polices" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["help", "plan"], ["plan", "--help"], ["plan", "-h"]])
def test_help_of_a_verb(words, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(words)
    assert capsys.readouterr().out.startswith("usage: minidnn plan [-h]")


def test_help_of_all_and_no_words_are_the_same(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["help"])
    assert capsys.readouterr().out == printed
    listed = [line.split()[0] for line in printed.splitlines() if line.startswith("  ") and line[2] != " "]
    assert listed == list(VERBS) and all(f"\n{group}\n" in printed for group in GROUPS)


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_the_first_screen_keeps_to_the_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert main([]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) < min(int(columns), 101)


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "minidnn", "trian"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("minidnn: there is no verb 'trian'")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("plan googlenut", "(did you mean 'googlenet'?)"), ("plan lenet --gpu k4", "(did you mean 'k40'?)"),
        ("plan lenet --policy vdn_all", "(did you mean 'vdnn_all'?)"),
        ("plan lenet --facts layrb", "(did you mean 'layrub'?)"), ("reproduce vdn", "(did you mean 'vdnn'?)"),
    ],
)  # fmt: skip
def test_names_have_hints(command, hint, capsys):
    assert main(command.split()) == 2
    said = capsys.readouterr()
    assert said.out == "" and hint in said.err and said.err.count("\n") == 1
