"""Faults on purpose and loads: python -m tests.faults [--only errors,kills] [--json] (make faults ARGS="...")

errors    each call of a training that changes files fails, with each error
kills     SIGKILL before and after each of these calls
power     every state of the disk that a power cut can leave
random    SIGKILL at random moments of trainings in processes of their own
trainers  many trainers at once on one prefix
long      many iterations in one process: descriptors, threads, memory, speed
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults import long_run, processes, product
from tests.faults.product import Part

PARTS = ("errors", "kills", "power", "random", "trainers", "long")


def table(part: Part) -> str:
    """The part as a title and columns; problems below."""
    names = list(part.rows[0]) if part.rows else []
    cells = [names] + [[str(row[name]) for name in names] for row in part.rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join([part.title, *lines, *(f"PROBLEM {problem}" for problem in part.problems)])


def long(iterations: int) -> Part:
    with tempfile.TemporaryDirectory() as folder:
        code, found = long_run.samples(Path(folder), iterations)
    part = Part(f"{iterations} iterations of the digits net in one process, medians of tenths")
    part.problems += [f"exit code {code}"] if code else []
    part.problems += long_run.grown(found)
    for name, s in long_run.tenths(found):
        row = {"tenth": name, "to iteration": s.iteration, "descriptors": s.descriptors, "threads": s.threads}
        part.rows.append(row | {"resident KiB": s.kib, f"seconds/{long_run.EVERY}": f"{s.seconds:.2f}"})
    return part


def main() -> int:
    parser = argparse.ArgumentParser("make faults", description="Faults on purpose, and loads.")
    parser.add_argument("--only", default=",".join(PARTS), help="these parts, with commas between: %(default)s")
    parser.add_argument("--kills", type=int, default=100, help="how many kills at random moments (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of these moments")
    parser.add_argument("--trainers", type=int, default=20, help="how many trainers at once (%(default)s)")
    parser.add_argument("--iterations", type=int, default=50_000, help="of the long run (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    args = parser.parse_args()
    chosen = args.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: expected parts of {', '.join(PARTS)}")

    def shimmed(what: Callable[[product.Trainers], Part]) -> Part:
        with product.Trainers() as trainers:
            return what(trainers)

    def apart(what: Callable[..., Part], *values: int) -> Part:
        with tempfile.TemporaryDirectory() as folder:
            return what(Path(folder), *values)

    run: dict[str, Callable[[], Part]] = {
        "errors": lambda: shimmed(product.errors),
        "kills": lambda: shimmed(product.kills),
        "power": lambda: shimmed(product.power_cuts),
        "random": lambda: apart(processes.random_kills, args.kills, args.seed),
        "trainers": lambda: apart(processes.many_trainers, args.trainers),
        "long": lambda: long(args.iterations),
    }
    document, failed = {}, False
    for name in chosen:
        began = time.perf_counter()
        part = run[name]()
        seconds = time.perf_counter() - began
        failed = failed or bool(part.problems)
        document[name] = {**dataclasses.asdict(part), "seconds": round(seconds, 1)}
        print(f"{table(part)}\n({seconds:.0f} s)\n", file=sys.stderr if args.json else sys.stdout, flush=True)
    if args.json:
        print(json.dumps({"seed": args.seed, "parts": document}, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
