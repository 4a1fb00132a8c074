"""Help texts: their lists are those of the tables, at 80 columns, and only help pays for reading the tables."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from minidnn import costs, zoo
from minidnn.cli import help
from minidnn.cli.main import _parser, main
from minidnn.cli.options import FILES, GROUPS
from minidnn.cli.verbs import VERBS
from minidnn.layers import FACTS
from minidnn.layers.facts import Facts
from minidnn.memory import policies
from minidnn_papers import SYSTEMS


@pytest.fixture
def printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def of(verb: str) -> str:
        with pytest.raises(SystemExit) as end:
            main([verb, "--help"])
        assert end.value.code == 0
        return capsys.readouterr().out

    return of


def option(text: str, flag: str) -> str:
    """What help says of an option, on one line."""
    (found,) = re.findall(rf"^  {flag} .*\n(?:   +.*\n)*", text, re.MULTILINE)
    return " ".join(found.split())


@pytest.mark.parametrize("verb", VERBS)
def test_lines_are_short_and_no_list_is_left_open(printed, verb):
    text = printed(verb)
    assert max(map(len, text.splitlines())) < 80
    assert not [name for name in help.LISTS if f"{{{name}}}" in text]


@pytest.mark.parametrize("verb, flag", [("train", "--policy"), ("compare", "--policies"), ("plan", "--policy")])
def test_policies_have_a_line_each(printed, verb, flag):
    text = printed(verb)
    lines = text[text.index("\npolicies:\n") :].splitlines()
    for name in policies.names():
        does = policies.summary(name)
        assert does and [line.split(maxsplit=1) for line in lines].count([name, does]) == 1, name
    default = f"(default: the file's, or {policies.DEFAULT}, or {policies.BUDGETED} with a budget)"
    assert flag == "--policies" or option(text, flag).endswith(default)


@pytest.mark.parametrize(
    "verb, default",
    [
        ("train", "the file's, or liveness, or best with a budget"), ("tune", "the file's, or best"),
        ("search", "every policy and every variant"),
    ],
)  # fmt: skip
def test_which_policy_is_the_default(printed, verb, default):
    assert option(printed(verb), "--policy").endswith(f"(default: {default})")


def test_gpus_facts_systems_and_families(printed):
    plan = printed("plan")
    assert f"or another of {len(costs.gpus())} profiles (`minidnn devices` lists them)" in option(plan, "--gpu NAME")
    planned = [name for name, facts in FACTS.items() if facts.planning_only()]
    assert option(plan, "--facts NAME").endswith(f"layrub; or, for planning only, {', '.join(planned)}")
    assert f"{', '.join(SYSTEMS)}, or all (the default)" in " ".join(printed("reproduce").split())
    assert all(name in option(printed("search"), "--max") for name in zoo.DEPTHS)


def test_what_is_new_in_a_table_is_in_the_help(printed, monkeypatch, tmp_path):
    monkeypatch.setitem(policies.POLICIES, "mine", policies.POLICIES["baseline"])
    monkeypatch.setitem(policies.POLICIES, "mine_too", policies.POLICIES["baseline"])
    monkeypatch.setitem(FACTS, "runs2026", Facts("runs2026"))
    monkeypatch.setitem(FACTS, "planned2026", Facts("planned2026", pool="x"))
    monkeypatch.setattr("minidnn.costs.profiles.PROFILES", tmp_path)
    (tmp_path / "rtx.yaml").write_text("")
    plan = printed("plan")
    assert "\n  mine  " in plan and "\n  mine_too  " in plan
    assert "or another of 1 profiles (`minidnn" in option(plan, "--gpu NAME")
    assert "layrub, runs2026; or, for planning only," in option(plan, "--facts NAME")
    assert option(plan, "--facts NAME").endswith(", planned2026")


def test_a_command_without_help_reads_no_table():
    code = (
        "import sys; from minidnn.cli.main import _parser; words = ['plan', 'net.yaml', '--policy', 'x', '--gpu', 'y'];"
        "assert _parser(words).parse_args(words).gpu == 'y'; print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "minidnn.cli.plan" in loaded
    heavy = {"numpy", "pydantic", "minidnn.memory.policies", "minidnn.jobs.job", "minidnn.layers", "minidnn.zoo"}
    assert not heavy & set(loaded)


@pytest.mark.parametrize("verb", VERBS)
def test_shared_options_are_in_groups(printed, verb):
    titles = [line[:-1] for line in printed(verb).splitlines() if line.endswith(":") and not line.startswith(" ")]
    known = [title for title in GROUPS if title in titles]
    without_files = verb in ("completion", "demo")
    assert [title for title in titles if title in GROUPS] == known and (FILES in known) != without_files


@pytest.mark.parametrize("verb", VERBS)
def test_examples_are_right_and_folded_as_a_shell_takes_them(printed, verb):
    _, _, shown = printed(verb).partition(f"{help.EXAMPLES}\n")
    commands = shown.replace("\\\n", " ").splitlines()
    assert commands
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "minidnn" and _parser(words).parse_args(words).verb == verb
