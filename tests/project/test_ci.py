"""CI runs what a user runs, and all tests, each once."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import ROOT

LEGS = re.findall(r"^leg (\w+) (.+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
MAKEFILE = (ROOT / "Makefile").read_text()


def recipe(target: str) -> str:
    """The commands of a target of the Makefile."""
    return re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[1]


def test_it_begins_with_the_commands_of_the_readme():
    shown = re.findall(r"^(make \w+)  +# sets everything up", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert shown == ["make demo", "make test"]
    assert [command for _, command in LEGS[: len(shown)]] == shown


@pytest.mark.parametrize("target", ["test", "test-rest", "test-peers", "lint", "docs"])
def test_it_runs(target):
    assert re.search(rf"^leg \w+ make {target}\b", "".join(f"leg {name} {of}\n" for name, of in LEGS), re.MULTILINE)


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("peer", [False, True])
def test_each_test_is_in_a_leg(extended, peer):
    chosen = [re.search(r'-m "?([\w ]+)', recipe(target))[1] for target in ("test", "test-rest", "test-peers")]
    assert any(eval(of, {}, {"extended": extended, "peer": peer}) for of in (text.strip() for text in chosen))


def test_make_test_installs_no_peer():
    of_user = re.findall(r"^(?:demo|test|quick):.*?(\S+)$", MAKEFILE, re.MULTILINE)
    assert set(of_user) == {"$(VENV)/.run", "$(VENV)/.dev"}
    installed = re.findall(r"^\$\(VENV\)/\.(?:run|dev):.*\n(.*)$", MAKEFILE, re.MULTILINE)
    assert installed == ["\t$(PIP) -e '.[data,cpu]'", "\t$(PIP) -e '.[data,cpu,dev]'"]
