"""Writes what is made of tables: docs/layers.md, docs/solver.md, docs/papers.md, docs/results.md, the JSON Schemas, and
the pictures and the headlines of docs/gallery.

--check: say whether they are so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from minidnn.report.reference import files
from minidnn.report.results_page import results_page
from minidnn.results.documents import DOCUMENTS
from minidnn_papers import gallery, records
from minidnn_papers.papers_page import papers_page

HERE = Path(__file__).parent


def pages() -> dict[str, str]:
    """The text of each file, by name."""
    results = results_page({**DOCUMENTS, **records.DOCUMENTS})
    papers = {f"gallery/{name}": text for name, text in gallery.files(HERE / "gallery").items()}
    return {**files(), "papers.md": papers_page(), "results.md": results, **papers}


def main(check: bool) -> int:
    made = pages()
    stale = [name for name, text in made.items() if not (HERE / name).exists() or (HERE / name).read_text() != text]
    for name in stale:
        if check:
            print(f"docs/{name} is not what the tables say: make reference", file=sys.stderr)
        else:
            (HERE / name).write_text(made[name])
            print(f"docs/{name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
