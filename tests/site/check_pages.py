"""The outputs in the documents are the program's: `make docs` runs every command and every piece of Python.

SHOWN=write puts the present output in the place of one that differs: read the difference.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.site.blocks import Block, blocks, same, words
from tests.support.paths import ROOT

REST = "...\n"
PAGES = [ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
RUN = [path for path in PAGES if any(b.file or b.text.startswith("$ ") or b.language == "python" for b in blocks(path))]


def run(words: list[str], folder: Path) -> tuple[int, str]:
    """The exit code and the output of a program, in a folder with the repository's models."""
    bin = str(Path(sys.executable).parent)
    env = os.environ | {"PATH": f"{bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    env.pop("COLUMNS", None)  # pytest-xdist sets it, and commands obey it
    done = subprocess.run(words, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def check(block: Block, folder: Path, path: Path) -> tuple[int, int]:
    """Run the commands of a block. The numbers of commands and of compared outputs."""
    commands = list(block.commands())
    where = f"{path.relative_to(ROOT)}:{block.line}"
    for command, shown in commands:
        code, printed = run(["bash", "-euo", "pipefail", "-c", command], folder)
        wanted = block.code if command == commands[-1][0] else 0
        assert code == wanted, f"{where}: {command}\nends with {code}, not with {wanted}\n{printed}"
        if same(shown, printed, block.varying):
            continue
        if os.environ.get("SHOWN") == "write" and "\n...\n" not in f"\n{shown.removesuffix(REST)}":
            rewrite(path, f"$ {command}\n{shown}", f"$ {command}\n{instead(shown, printed)}")
            continue
        a, b = ([" ".join(words(line, block.varying)) for line in text.split("\n")] for text in (shown, printed))
        told = "\n".join(difflib.unified_diff(a, b, "shown", "printed", lineterm=""))
        pytest.fail(f"{where}: {command}\nprints something else\n{told}\n\nprinted:\n{printed}", pytrace=False)
    return len(commands), sum(bool(shown.strip()) for _, shown in commands)


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times"
    path.write_text(text.replace(old, new), encoding="utf-8")


def folded(line: str) -> list[str]:
    """A line on several ones if it is a long sentence; rows of tables stay whole."""
    row = "  " in line.strip() or "──" in line
    return [line] if row else textwrap.wrap(line, 112, break_long_words=False, break_on_hyphens=False) or [""]


def instead(shown: str, printed: str) -> str:
    """Printed text as a page shows it: a long sentence on several lines, no blanks at the ends of lines, and as many
    lines as were shown if `...` ended them."""
    text = "".join(f"{line}\n" for given in printed.split("\n") for line in folded(given.rstrip())).strip("\n") + "\n"
    if not shown.endswith(REST):
        return text
    return "".join(text.splitlines(keepends=True)[: shown.count("\n") - 1]) + REST


@pytest.mark.parametrize("path", RUN, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_shows(path, tmp_path, record_property):
    for name in ("models", "docs", "README.md", "DESIGN.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "out").mkdir()
    commands = outputs = 0
    program = []  # the pieces of Python without a name
    for block in blocks(path):
        where = f"{path.relative_to(ROOT)}:{block.line}"
        if block.not_run is not None:
            record_property("told", f"{where} is not run: {block.not_run}")
        elif block.file:
            (tmp_path / block.file).write_text(block.text)
        elif block.text.startswith("$ "):
            more = check(block, tmp_path, path)
            commands, outputs = commands + more[0], outputs + more[1]
        elif block.language == "python":
            program.append(block.text)
    if program:
        code, printed = run([sys.executable, "-c", "\n".join(program)], tmp_path)
        assert code == 0, f"the Python of {path.relative_to(ROOT)}\n{printed}"
    record_property("commands run", commands)
    record_property("outputs compared", outputs)
    record_property("pieces of Python run", len(program))
