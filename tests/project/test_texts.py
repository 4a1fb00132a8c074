"""All text leaves the packages through the few functions that make it visible, and files of text are UTF-8."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import minidnn
import minidnn_papers

PACKAGES = [Path(package.__file__).parent for package in (minidnn, minidnn_papers)]
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
    """(file, line) of each line of the packages."""
    files = [(f.relative_to(package).as_posix(), f) for package in PACKAGES for f in sorted(package.rglob("*.py"))]
    return [(name, x) for name, f in files for x in f.read_text(encoding="utf-8").split("\n")]


@pytest.mark.parametrize(("pattern", "files"), ONLY)
def test_text_has_few_ways_out(pattern, files):
    assert {file for file, line in lines() if re.search(pattern, line)} == files
