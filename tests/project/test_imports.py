"""What import-linter's contracts (setup.cfg) cannot say: circles through a package's face, and words that a wing does
not know."""

from __future__ import annotations

import ast
import configparser
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import grimp
import pytest

from tests.support.paths import ROOT

PROGRAMS = {"TRAIN", "TEST", "ACCUMULATE", "BEGIN"}


def circle(package: str, ignored: Iterable[tuple[str, str]] = ()) -> list[str]:
    """The imports of a circle between modules, a line for each; [] if there is none. A package's `__init__` counts as a
    module, and all imports count: for types, and within functions."""
    graph = grimp.build_graph(package, cache_dir=None)
    for importer, imported in ignored:
        graph.remove_import(importer=importer, imported=imported)
    try:
        TopologicalSorter({m: graph.find_modules_directly_imported_by(m) for m in graph.modules}).prepare()
    except CycleError as error:
        return list(_lines(graph, error.args[1][::-1]))
    return []


def _lines(graph: grimp.ImportGraph, modules: list[str]) -> Iterator[str]:
    for importer, imported in pairwise(modules):
        for detail in graph.get_import_details(importer=importer, imported=imported):
            yield f"{importer}:{detail['line_number']}: {detail['line_contents']}"


def test_no_circle_of_modules():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    ignored = config["importlinter:contract:circles"].get("ignore_imports", "").strip().splitlines()
    assert circle("minidnn", [tuple(line.split(" -> ")) for line in ignored]) == []


@pytest.mark.parametrize(
    "line",
    ["if TYPE_CHECKING:\n    import circular", "def f():\n    from circular import above", "import circular.above"],
)
def test_a_circle_is_found(tmp_path, monkeypatch, line):
    package = tmp_path / "circular"
    package.mkdir()
    (package / "__init__.py").write_text("from circular import above\n")
    (package / "above.py").write_text("import circular.below\n")
    (package / "below.py").write_text(f"from typing import TYPE_CHECKING\n{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "circular.above:1: import circular.below" in circle("circular")


def test_memory_knows_no_program_by_name():
    """Which programs a net has, and which of them runs, is up to whoever trains."""
    for path in (ROOT / "minidnn" / "memory").rglob("*.py"):
        texts = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        names = [f"{path}:{text.lineno}: {text.value}" for text in texts if text.value in PROGRAMS]
        assert names == []
