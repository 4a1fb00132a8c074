"""All text leaves the package through the few functions that make it visible, and files of text are UTF-8."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import minidnn

PACKAGE = Path(minidnn.__file__).parent
# what only these files may have; rich's console.print is no print, and its consoles are table.py's
ONLY = [
    (r"(?<![.\w])print\(", {"visible.py", "compiled.py"}),  # the second prints a constant text
    (r"from html import|(?<!\w)html\.escape", {"report/markup.py"}),
    (r"import Console\b|Console\(", {"report/table.py", "cli/progress.py"}),  # the second prints visible lines
    (r"json\.dump\(", set()),
    (r"sys\.std(out|err)\.write", {"visible.py"}),
    (r"\.(read|write)_text\((?!.*encoding=)", set()),
    (r'(?<![.\w])(?<!def )(os\.fd)?open\((?!.*(encoding=|"[rwax]?b"))', set()),
]


@cache
def lines() -> list[tuple[str, str]]:
    """(file, line) of each line of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return [(f.relative_to(PACKAGE).as_posix(), x) for f in files for x in f.read_text(encoding="utf-8").split("\n")]


@pytest.mark.parametrize(("pattern", "files"), ONLY)
def test_text_has_few_ways_out(pattern, files):
    assert {file for file, line in lines() if re.search(pattern, line)} == files
