"""`minidnn profile FILE.yaml`: measure this machine's seconds for each op and algorithm, and keep them."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from minidnn import sizes
from minidnn.cli import subject
from minidnn.costs import Costs, Measurements


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(parser, "device", "format", "json")
    parser.add_argument("--again", action="store_true", help="measure anew what is known already")


def measuring(about: subject.Subject, again: bool = False) -> tuple[Costs, Measurements, int]:
    """Costs of the subject's programs on its device, with how many had to be measured now: what is not known yet, or
    (`again`) all. Shows how far it is on a terminal."""
    from minidnn.backends import open_device
    from minidnn.costs import measurements
    from minidnn.formats import usable
    from minidnn.measuring.ops import measure

    usable(about.setting.format)
    device = open_device(about.setting.device)
    known = measurements(device)
    if known.problem:
        print(f"minidnn: {known.problem}", file=sys.stderr)
    before = 0 if again else len(known.seconds)

    def tell(done: int, of: int, name: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[Kmeasuring {done + 1} of {of}: {name}", end="", file=sys.stderr, flush=True)

    costs = measure(device, about.programs, known, again, tell)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    return costs, known, len(known.seconds) - before


def run(args: argparse.Namespace) -> int:
    from minidnn.costs import key
    from minidnn.measuring.link import described
    from minidnn.report import table

    about = subject.read(args)
    costs, known, count = measuring(about, args.again)
    rows: list[dict[str, Any]] = []
    for program in about.programs:
        for op in program.ops:
            for choice in costs.choices(op):
                rows.append(
                    {
                        "program": program.name,
                        "op": op.name,
                        "kind": op.kind,
                        "algorithm": choice.algorithm.name,
                        "workspace_bytes": choice.algorithm.workspace,
                        "seconds": choice.seconds,
                        "flops": op.flops,
                        "bytes": op.nbytes,
                        "key": key(op, choice.algorithm),
                    }
                )
    facts: dict[str, Any] = {
        "device": known.device,
        "format": about.setting.format,
        "bandwidth_out": known.bandwidth_out,
        "bandwidth_in": known.bandwidth_in,
        "latency": known.latency,
        "beside_compute": known.beside,
        "cache": str(known.path),
        "measured": count,
    }
    if args.json:
        table.dump({**facts, "rows": rows})
        return 0
    lines = [
        [
            row["op"],
            row["algorithm"],
            sizes.text(row["workspace_bytes"]) if row["workspace_bytes"] else "0",
            table.duration(row["seconds"]),
            f"{row['flops'] / row['seconds'] / 1e9:.1f}",
            f"{row['bytes'] / row['seconds'] / 1e9:.1f}",
        ]
        for row in rows
        if row["program"] == about.train.name
    ]
    headings = ["op", "algorithm", "workspace", "time", "GFLOP/s", "GB/s"]
    table.plain(headings, lines, f"{about.titled()} on {known.device}")
    rate = f"copies: {known.bandwidth_out / 1e9:.1f} GB/s out, {known.bandwidth_in / 1e9:.1f} GB/s in"
    print(described(known.beside))
    print(f"{rate}; {facts['measured']} measured now, {len(known.seconds)} kept in {known.path}")
    return 0
