"""Texts name options as their reader writes them: as flags on the command line, as keywords in Python."""

import ast
import re
from pathlib import Path

import pytest

import minidnn
from minidnn.cli.main import VERBS, _parser, main
from minidnn.errors import BadInput
from minidnn.spoken import either, many, on_command_line, option

ROOT = Path(minidnn.__file__).parent
COMMAND = re.compile(r"`[^`]*`")  # a whole command is as a shell takes it
# the command line itself, its help, what verbs without a function tell, and tables that name both forms
OF_FLAGS = (
    "cli/", "jobs/options.py", "jobs/assigned.py", "measuring/card.py", "report/devices.py", "report/results_page.py",
    "schema/refused.py",
)  # fmt: skip


def flags():
    """All flags of the command line."""
    parsers = [_parser([verb])._subparsers._group_actions[0].choices[verb] for verb in VERBS]
    return {flag for parser in parsers for flag in parser._option_string_actions if flag.startswith("--")}


def texts(path):
    """(line, text) of each string that is no docstring, and no part of a call of `either`; of an f-string its parts."""
    tree = ast.parse(path.read_text())
    silent = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(node.value)
        called = getattr(getattr(node, "func", None), "id", "")
        if called in ("either", "option") or getattr(node, "arg", "") == "description":  # of a document of --json
            silent.update(ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and node not in silent:
            silent.update(node.values)
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "_" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in silent:
            yield node.lineno, node.value


def test_no_text_below_the_command_line_names_a_flag():
    names = "|".join(sorted(flags(), key=len, reverse=True))
    own = re.compile(rf"(?<![\w-])(?<!var\()(?:{names})(?![\w-])")  # var(--area) is CSS
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(OF_FLAGS):
            found += [f"{name}:{line}: {text}" for line, text in texts(path) if own.search(COMMAND.sub("", text))]
    assert not found, "\n".join(["name options by minidnn.spoken:", *found])


@pytest.mark.parametrize(
    ("name", "value", "flag", "keyword"),
    [
        ("host_budget", None, "--host-budget", "host_budget"),
        ("ranks", "N", "--ranks N", "ranks=N"),
        ("budget", "64MiB", "--budget 64MiB", 'budget="64MiB"'),
        ("worker_limit", 120.0, "--worker-limit 120", "worker_limit=120"),
        ("loss", True, "--loss", "loss=True"),
        ("no_fusion", True, "--no-fusion", "fuse=False"),
    ],
)
def test_an_option_is_a_flag_or_a_keyword(name, value, flag, keyword):
    assert option(name, value) == keyword and either("a", "b") == "b"
    with on_command_line():
        assert option(name, value) == flag and either("a", "b") == "a"
    assert option(name, value) == keyword


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        (dict(link="nvlink4"), "link: a link joins ranks: give their number (ranks=N)"),
        (
            dict(compress=True),
            'compress=True needs pinned memory that is used again: give host_ring="64MiB", or pin_on_demand=True',
        ),
        (dict(effort=1.0, ram="1GiB"), "with ram a policy plans several times; use budget and host_budget instead"),
        (dict(global_batch=6, ranks=4), "global_batch=6 does not divide among 4 ranks"),
    ],
)
def test_a_mistake_is_told_in_the_words_that_made_it(keywords, says, capsys):
    with pytest.raises(BadInput) as error:
        minidnn.plan("digits_lenet", **keywords)
    assert says in str(error.value)
    argv = ["plan", "digits_lenet"]
    for name, value in keywords.items():
        argv += [
            f"--{name.replace('_', '-')}",
            *([] if value is True else [f"{value:g}" if name == "effort" else str(value)]),
        ]
    assert main(argv) == 2
    told = capsys.readouterr().err
    assert "--" in told and not any(f"{name}=" in told for name in keywords)


def test_one_of_a_thing_is_no_plural():
    assert [many(n, "rank") for n in (0, 1, 2)] == ["0 ranks", "1 rank", "2 ranks"]
    assert many(3, "policy") == "3 policies" and many(1, "policy") == "1 policy" and many(1200, "step") == "1,200 steps"
