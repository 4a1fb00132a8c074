"""`python -m tests.fuzz --minutes N`: new cases of every kind for N minutes, in two processes under a watchdog.

A case that breaks a promise is made smaller and kept in the corpus, where it is a test from then on. The exit code is 1
if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz import corpus
from tests.fuzz.board import COUNTS, FAULTS, Board

WORKERS = 2
SHARED = "/dev/shm"  # files in memory: a busy disk takes longer to remove a folder than most cases take


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        return worker(*sys.argv[2:])
    from tests.fuzz.kinds import KINDS
    from tests.fuzz.watch import Watch

    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, help="the seed of the first cases (default: at random)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON, too")
    args = parser.parse_args()
    kinds = args.kinds.split(",")
    if unknown := set(kinds) - KINDS.keys():
        parser.error(f"there is no kind {', '.join(unknown)}")
    seed = random.SystemRandom().randrange(10**9) if args.seed is None else args.seed
    print(f"seed {seed}, {args.minutes:g} minutes, {WORKERS} processes, kinds: {', '.join(kinds)}", flush=True)
    began = time.monotonic()
    with TemporaryDirectory(prefix="minidnn-fuzz-", dir=SHARED if os.access(SHARED, os.W_OK) else None) as folder:
        watch = Watch(Path(folder), kinds, WORKERS, corpus.FOLDER)

        def tell() -> None:
            total = watch.board.total()
            counts = ", ".join(f"{int(total[what].sum())} {what}" for what in ("cases", "accepted", *FAULTS, "known"))
            print(f"{(time.monotonic() - began) / 60:5.1f} min: {counts}", flush=True)

        with contextlib.suppress(KeyboardInterrupt):
            watch.run(60 * args.minutes, seed, tell)
        faults = Path(folder) / "faults"
        if faults.exists():
            print(faults.read_text(errors="replace"))
        rows = table(watch.board, kinds)
    show(rows)
    if args.json:
        document = {"seed": seed, "seconds": round(time.monotonic() - began, 1), "processes": WORKERS, "kinds": rows}
        args.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if any(row[what] for row in rows for what in FAULTS) else 0


def table(board: Board, kinds: list[str]) -> list[dict[str, object]]:
    """A row for each kind, and one for all: the counts, cases a second of one process, and files of the corpus."""
    total = board.total()
    rows = [_row(kind, {what: float(total[what][i]) for what in COUNTS}) for i, kind in enumerate(kinds)]
    whole = {what: float(total[what].sum()) for what in COUNTS} | {"slowest": float(total["slowest"].max())}
    return [*rows, {**_row("all", whole), "corpus": sum(len(corpus.cases(kind)) for kind in kinds)}]


def _row(kind: str, counts: dict[str, float]) -> dict[str, object]:
    row: dict[str, object] = {"kind": kind}
    row |= {what: round(n, 2) if what in ("slowest", "seconds") else int(n) for what, n in counts.items()}
    rate = round(counts["cases"] / counts["seconds"], 1) if counts["seconds"] else 0.0
    return {**row, "a second": rate, "corpus": len(corpus.cases(kind))}


def show(rows: list[dict[str, object]]) -> None:
    width = {h: max(len(h), *(len(str(row[h])) for row in rows)) for h in rows[0]}
    for row in ({h: h for h in width}, *rows):
        print("  ".join(str(row[h]).ljust(w) if h == "kind" else str(row[h]).rjust(w) for h, w in width.items()))


def worker(folder: str, kinds: str, workers: str, number: str, seed: str, until: str, found: str, stack: str) -> int:
    from tests.fuzz.kinds import KINDS
    from tests.fuzz.worker import Worker

    argparse._ = str  # type: ignore[attr-defined]  # else it looks for translations on the disk, for each of its words
    some = [KINDS[name] for name in kinds.split(",")]
    board = Board(Path(folder), int(workers), len(some))
    with Worker(int(number), some, board, Path(found), float(until), float(stack)) as one:
        one.run(int(seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
