"""Each file that a document, a docstring or a comment names exists: from the root, from minidnn/, or from the folder of
the naming file. A name without a folder is the name of some file of the repository."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.blocks import blocks
from tests.support.paths import ROOT

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md")),
    *(ROOT / folder / "README.md" for folder in ("tests", "benchmarks", "release")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FOLDERS = ("minidnn", "minidnn_papers", "benchmarks", "tests", "models", "docs", "release")
CODE = (".py", ".c", ".h", ".cu", ".cuh")
# A path in a folder, of any kind that is kept in the repository; a bare name, of code.
PATH = re.compile(r"(?<![\w./{*<-])((?:\.?[\w-]+/)+[\w*-]+\.(?:py|md|cuh?|c|h|ya?ml|svg|cfg|toml|txt|css))(?![\w*/])")
BARE = re.compile(r"(?<![\w./{*<-])([a-z_0-9]{2,}\.(?:py|cuh?|c|h))(?![\w*/.(])")
FOLDER = re.compile(r"`((?:tests|docs|benchmarks|models|minidnn|minidnn_papers|release)/(?:[\w-]+/)*[\w-]*)`")
PLACEHOLDERS = ("NAME", "FAMILY", "MODEL", "SOLVER")
MADE = ("out/",)  # folders that runs make
NAMES = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in CODE} | {"setup.py"}
# Caffe's, CUDA's, and a user's own
OTHERS = {"parse_log.py", "extract_seconds.py", "cuda.h", "cuda_fp16.h", "cube.py", "mine.py"}


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of the docstrings and comments of a file of code; all of a document."""
    source = path.read_text()
    if path.suffix == ".py":
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
                first = node.body[0]
                if ast.get_docstring(node) is not None:
                    yield first.lineno, ast.get_docstring(node, clean=False) or ""
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    elif path.suffix in CODE:
        for found in re.finditer(r"/\*.*?\*/|//[^\n]*", source, re.DOTALL):
            yield source[: found.start()].count("\n") + 1, found.group()
    else:
        yield from enumerate(source.splitlines(), 1)


def missing(path: Path) -> list[str]:
    """Names of files that are not there, with the line that names them or begins the docstring."""
    found, source = [], path.read_text()
    if not any(names.search(source) for names in (PATH, BARE, FOLDER)):
        return []  # to find the comments of a file takes a while
    written = {block.file for block in blocks(path)} if path.suffix == ".md" else set()  # by a reader of the document
    for line, text in prose(path):
        for name in (*PATH.findall(text), *(FOLDER.findall(text) if path.suffix == ".md" else ())):
            if any(word in name for word in PLACEHOLDERS) or name.startswith(MADE):
                continue
            if not any(next(folder.glob(name), None) for folder in (ROOT, ROOT / "minidnn", path.parent)):
                found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
        for name in BARE.findall(text):
            if not any(name in names for names in (NAMES, OTHERS, written)):
                found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_documents_name_are_there(path):
    assert missing(path) == []


@pytest.mark.parametrize(
    "folder", sorted(p.name for p in (ROOT / "minidnn").iterdir() if p.is_dir() and p.name[0] != "_")
)
def test_files_that_docstrings_and_comments_name_are_there(folder):
    files = sorted(path for path in (ROOT / "minidnn" / folder).rglob("*") if path.suffix in CODE)
    assert [name for path in files for name in missing(path)] == []


@pytest.mark.parametrize("folder", ["benchmarks", "tests", "minidnn", "minidnn_papers"])
def test_files_that_the_rest_names_are_there(folder):
    files = (ROOT / folder).glob("*.py") if folder == "minidnn" else (ROOT / folder).rglob("*")
    assert [name for path in sorted(files) if path.suffix in CODE for name in missing(path)] == []


def test_a_name_that_is_wrong_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.project.test_paths.ROOT", tmp_path)
    path = tmp_path / "some.py"
    path.write_text('"""memory/no_such.py, no_such_name.py, test_paths.py; a.b/c.py.d is none."""\n1  # docs/gone.md\n')
    found = [name.rsplit(" ", 1)[1] for name in missing(path)]
    assert found == ["memory/no_such.py", "no_such_name.py", "docs/gone.md"]
