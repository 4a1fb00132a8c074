"""`minidnn pack FILE.csv`: find offsets for buffers with known lives, as low as possible."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from minidnn.cli.help import examples
from minidnn.cli.options import common
from minidnn.cli.values import positive, size
from minidnn.visible import say, status

WORK = 12_000_000_000  # some ten seconds, for any buffers that cannot be packed
REFUSED = 2  # the exit code if no packing within the capacity was found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn pack buffers.csv --out placed.csv",
        "minidnn pack buffers.csv --capacity 1GiB --json",
    )
    parser.add_argument(
        "file",
        metavar="FILE.csv",
        help="a table of buffers with the columns id, lower, upper, size; each is alive over [lower, upper)",
    )
    parser.add_argument(
        "--capacity",
        type=size,
        metavar="SIZE",
        help="stop at a packing of this size or less (default: the load, which is the most bytes alive at once)",
    )
    parser.add_argument("--out", metavar="FILE.csv", help="write the table with a column of offsets")
    parser.add_argument(
        "--work", type=positive, metavar="N", default=WORK,
        help=f"how many buffers and moments the search may examine in all (default: {WORK}, about ten seconds)",
    )  # fmt: skip
    common(parser, "json")


def run(args: argparse.Namespace) -> int:
    from minidnn.errors import InvalidInput
    from minidnn.files.replace import unwritable
    from minidnn.memory import packing
    from minidnn.memory.packing.tight import missing
    from minidnn.report import table
    from minidnn.results.others import Packing

    if args.out and (why := unwritable(Path(args.out), ".csv")):
        raise InvalidInput(f"--out {args.out}: {why}")
    problem = packing.read(Path(args.file))
    began = time.monotonic()

    def tell(capacity: int, best: packing.Solution) -> None:
        over = f"{best.height} bytes so far, {best.height / problem.load:.4f} times the load"
        status(f"packing {len(problem)} buffers: {over}; searching within {capacity}")

    result = packing.lowest(problem, args.work, args.capacity or 0, tell)
    status()
    seconds = time.monotonic() - began
    if args.out:
        packing.write(Path(args.out), problem, result)
    fits = args.capacity is None or result.height <= args.capacity
    row = Packing(
        buffers=len(problem),
        load_bytes=problem.load,
        height_bytes=result.height,
        over_load=result.height / problem.load if problem.load else None,
        capacity_bytes=args.capacity,
        fits=fits,
        how=result.how,
        pack_seconds=seconds,
    )
    if args.json:
        table.dump(row)
        return 0 if fits else REFUSED
    over = "" if row.over_load is None else f"{row.over_load:.4f}"
    cells = [str(len(problem)), str(problem.load), str(result.height), over, result.how, table.duration(seconds)]
    table.plain(("", "buffers", "load", "height", "over load", "found by", "time"), [(Path(args.file).name, *cells)])
    if not fits:
        say(f"found no packing within {args.capacity} bytes; no packing takes less than the load, {problem.load} bytes")
    if result.height > problem.load and (why := missing()):
        say(f"the search was left out ({why})")
    return 0 if fits else REFUSED
