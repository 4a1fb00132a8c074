"""Writes what is made of tables: docs/layers.md, docs/solver.md, docs/papers.md, docs/results.md and the JSON Schemas.

--check: say whether they are so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from minidnn.report.reference import files

HERE = Path(__file__).parent


def main(check: bool) -> int:
    made = files()
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
