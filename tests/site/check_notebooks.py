"""Each notebook of docs/ runs from its first cell to its last, and is kept without outputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: Path, tmp_path, monkeypatch, record_property):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.read(path, as_version=4)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert cells and not any(cell.outputs or cell.execution_count for cell in cells), "clear its outputs"
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    nbclient.NotebookClient(book, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()
    record_property("cells of notebooks run", len(cells))
