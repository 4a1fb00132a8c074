"""The pages that are read from the package have all of it: each verb and option, each public name and method."""

from __future__ import annotations

import argparse
import inspect
import re

import pytest

import minidnn
from minidnn.cli.main import VERBS
from tests.support.paths import ROOT

pytest.importorskip("sphinx")

from docs.extensions.commands import page, verb_parser
from docs.extensions.docstrings import converted


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_s_section_has_its_options(verb):
    (section,) = re.findall(rf"^## {verb}\n(.*?)(?=^## |\Z)", page(), re.DOTALL | re.MULTILINE)
    told = [action for action in verb_parser(verb)._actions if action.help != argparse.SUPPRESS]
    flags = [flag for action in told for flag in action.option_strings or [str(action.metavar or action.dest)]]
    assert "--help" in flags and [flag for flag in flags if f"`{flag}" not in section] == []
    assert "{policies}" not in section


def test_python_s_page_has_each_public_name():
    text = (ROOT / "docs" / "python.md").read_text()
    assert set(re.findall(r"^\.\. auto\w+:: (\w+)$", text, re.MULTILINE)) == set(minidnn._EXPORTS)


def test_a_docstring_becomes_restructuredtext():
    docstring = """The sum of `a` and *b*, as in name_.

    a:  a number
        of any size
    b:  likewise

    Raises ValueError."""
    text = "\n".join(converted(inspect.cleandoc(docstring).split("\n")))
    assert text.startswith(r"The sum of ``a`` and \*b\*, as in name\_.")
    assert "``a``\n   a number\n   of any size" in text and text.endswith("\n\nRaises ValueError.")
