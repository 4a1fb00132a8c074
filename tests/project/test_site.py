"""The site's pages and what `make docs` runs of them: which blocks of a document count, and when outputs are equal."""

from __future__ import annotations

import re
import shlex

import pytest

from minidnn.cli.main import _parser
from tests.site.blocks import blocks, same
from tests.support.paths import ROOT

QUESTIONS = ROOT / "docs" / "which-command.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = "fits yes\n────\n1.50 MiB  in 3.2 ms\n"


@pytest.fixture
def page(tmp_path):
    def written(text: str):
        path = tmp_path / "page.md"
        path.write_text(text)
        return blocks(path)

    return written


@pytest.mark.parametrize(
    ("printed", "varying"),
    [
        (SHOWN, []),
        ("fits\n  yes\n──\n1.50 MiB in\n 3.2 ms", []),  # folded otherwise
        ("fits yes\n────\n1.50 MiB  in 41 s\n", ["seconds"]),
        ("fits yes\n────\n2 MiB  in 1e-3 ms\n", ["numbers"]),
    ],
)
def test_what_counts_as_the_same(printed, varying):
    assert same(SHOWN, printed, varying)


@pytest.mark.parametrize(
    ("printed", "varying"),
    [
        ("fits no\n────\n1.50 MiB  in 3.2 ms\n", ["numbers"]),
        ("fits yes\n────\n1.51 MiB  in 3.2 ms\n", ["seconds"]),
        ("fits yes\n────\n1.50 MiB  in 3.3 ms\n", ["MiB"]),
        (SHOWN + "and more\n", ["numbers"]),
        ("", ["numbers"]),
    ],
)
def test_what_counts_as_another(printed, varying):
    assert not same(SHOWN, printed, varying)


def test_a_line_of_dots_stands_for_any_lines():
    assert same("a\n...\nz\n", "a\nb c\nz\n", []) and same("a\n...\n", "a\nb\n", []) and same("...\nz\n", "a\nz\n", [])
    assert not same("a\n...\nz\n", "a\nb\n", []) and not same("a ...\n", "a b\n", [])


def test_each_part_of_a_page_is_told_apart(page):
    found = page(
        "# A page\n```{note}\nno program\n```\n<!-- ends with 2; MiB, of vary -->\n```console\n"
        "$ minidnn plan \\\n    net.yaml\nshown\n$ cat x\n```\n```python\n# mine.py\nx = 1\n```\n"
        "<!-- needs no_such_package -->\n```python\nimport no_such_package\n```\n"
        "<!-- not run: it fetches -->\n```console\n$ get\n```\n"
    )
    note, transcript, file, needs, kept = found
    assert not list(note.commands()) and note.file is None
    assert list(transcript.commands()) == [("minidnn plan \\\n    net.yaml", "shown\n"), ("cat x", "")]
    assert (transcript.code, transcript.varying, transcript.not_run) == (2, ["MiB", "of"], None)
    assert (file.file, file.line) == ("mine.py", 12)
    assert needs.not_run == "it needs no_such_package" and kept.not_run == "it fetches"


def commands():
    """Every command of ours that stands in a block, whether it is run or only shown."""
    for path in PAGES:
        for block in blocks(path):
            lines = [command for command, _ in block.commands()] or block.text.split("\n")
            for line in (line.replace("\\\n", " ") for line in lines):
                if line.startswith("minidnn ") and not any(word in line for word in ("...", "[", "|", " A B")):
                    yield pytest.param(re.split(r"#| \d?>", line)[0], id=f"{path.stem}:{block.line} {line[:40]}")
    for line in re.findall(r"`(minidnn [^`]+)`", QUESTIONS.read_text()):
        if "help VERB" not in line:
            yield pytest.param(line, id=f"{QUESTIONS.stem} {line[:40]}")


@pytest.mark.parametrize("command", list(commands()))
def test_a_command_is_understood(command):
    words = shlex.split(command)[1:]
    assert _parser(words).parse_args(words).verb == words[0]


def test_every_page_is_in_a_table_of_contents():
    docs = ROOT / "docs"
    listed = {"index"}
    for name in ("index", "howto/index", "gallery/index"):
        for block in blocks(docs / f"{name}.md"):
            if block.language == "{toctree}":
                folder = name.rpartition("/")[0]
                lines = [line for line in block.text.split("\n") if line and not line.startswith(":")]
                listed |= {f"{folder}/{line.split('<')[-1].rstrip('>')}".lstrip("/") for line in lines}
    assert {path.relative_to(docs).with_suffix("").as_posix() for path in docs.rglob("*.md")} == listed
