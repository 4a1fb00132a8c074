"""A training beside other programs: iterations per second while busy loops keep cores at work.

    python -m benchmarks.beside                                     the nets below, alone and beside two loops
    python -m benchmarks.beside --waits 300000,1000,0 --loops 0,1,2 --rounds 7

Threads that wait for each other look for work before they sleep; `--waits` says how often (GOMP_SPINCOUNT): ours
(minidnn/backends/cpu/waits.py), and GNU's default. Each way is a process of its own, with a net that is planned as a
training is. They take turns, in rounds of alternating order, so that all see the same machine. The median of the rounds
counts. `of a fair share` compares the speed with the part of the speed alone that the training may have: half of it,
beside as many busy loops as it has threads, one for each core. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine, nets
from benchmarks.progress import one_by_one
from benchmarks.turns import Failed, Side, Tell, opened, train
from minidnn.backends.cpu import waits
from minidnn.cli.options import names, positive
from minidnn.errors import BadInput
from minidnn.measuring.load import processors
from minidnn.report import table

NETWORKS = "lenet:64,cifar10_quick:100,resnet50:8"
DEFAULT = "300000"  # of GNU's OpenMP
POLICY, ROUNDS, TURN = "liveness:p", 5, 1.0  # seconds of a turn, at least
LOOP = "while True: pass"


class Trained:
    """A net that is trained, in a process of its own."""

    def __init__(self, tell: Tell, asked: nets.Asked, threads: int) -> None:
        from minidnn.backends.cpu import CpuDevice
        from minidnn.costs import estimate

        device = CpuDevice(threads)
        self.session, _ = opened(asked.net(), device, POLICY, estimate(device), 2)

    def turn(self, seconds: float) -> float:
        """Iterations per second in so many seconds."""
        began, count = perf_counter(), 0
        while count == 0 or perf_counter() - began < seconds:
            train(self.session)
            count += 1
        return count / (perf_counter() - began)


@contextmanager
def loops(count: int) -> Iterator[None]:
    """Keep `count` processes busy while the block runs."""
    running = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def share(count: int, threads: int, cores: int) -> float:
    """The part of its speed alone that so many threads may have beside so many busy loops."""
    return min(1.0, max(threads, cores) / (threads + count))


def rows(net: nets.Asked, args: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    """A row for each number of loops and each way to wait. Raises Failed."""
    found: list[dict[str, Any]] = []
    sides: dict[str, Side] = {}
    alone: dict[str, float] = {}
    try:
        for way in args.waits:
            tell(len(sides), len(args.waits), "planning")
            sides[way] = Side(Trained, net, args.threads, environment={waits.SPINS: way})
            sides[way].ask("turn", 0.0)
        for count in args.loops:
            with loops(count):
                speeds = _rounds(sides, args, lambda done, of, count=count: tell(done, of, f"beside {count} loops"))
            for way, each in speeds.items():
                speed = median(each)
                alone |= {way: speed} if count == 0 else {}
                may = share(count, args.threads, len(processors())) * alone[way] if way in alone else None
                found.append(
                    {"net": str(net), "loops": count, "spins": way, "speed": speed, "fair": may and speed / may,
                     "rounds": each}
                )  # fmt: skip
    finally:
        for side in sides.values():
            side.close()
    return found


def _rounds(
    sides: Mapping[str, Side], args: argparse.Namespace, tell: Callable[[int, int], object]
) -> dict[str, list[float]]:
    """The speeds of each side, round by round."""
    speeds: dict[str, list[float]] = {way: [] for way in sides}
    for i in range(args.rounds):
        tell(i, args.rounds)
        for way in list(sides)[:: 1 if i % 2 == 0 else -1]:
            speeds[way].append(sides[way].ask("turn", args.seconds))
    return speeds


def counts(text: str) -> list[int]:
    """Numbers of loops, in "0,2". Raises ValueError."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 0:
        raise ValueError(text)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--networks", type=names, default=names(NETWORKS), metavar="NET:BATCH,...", help=NETWORKS)
    parser.add_argument("--waits", type=names, default=[DEFAULT, waits.BRIEF], metavar="N,N",
                        help=f"GOMP_SPINCOUNT (default: {DEFAULT},{waits.BRIEF})")  # fmt: skip
    parser.add_argument("--loops", type=counts, default=[0, 2], metavar="N,N", help="busy loops (default: 0,2)")
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="of the training (default: 2)")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, metavar="N", help=f"default: {ROUNDS}")
    parser.add_argument("--seconds", type=float, default=TURN, metavar="S", help=f"of a turn (default: {TURN})")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(argv)
    found: list[dict[str, Any]] = []
    try:
        wanted = [nets.Asked.parse(text) for text in args.networks]
        for net in wanted:
            net.net()
        for net, tell in one_by_one(wanted):
            found += rows(net, args, tell)
    except (BadInput, Failed) as error:
        print(f"benchmarks.beside: {error}", file=sys.stderr)
        return 2 if isinstance(error, BadInput) else 1
    if args.json:
        table.dump({"rows": found, "machine": machine.described(), "threads": args.threads})
        return 0
    lines = [
        [r["net"], str(r["loops"]), r["spins"], f"{r['speed']:.3g}",
         f"{min(r['rounds']):.3g}–{max(r['rounds']):.3g}", "–" if r["fair"] is None else f"{r['fair']:.0%}"]
        for r in found
    ]  # fmt: skip
    headings = ["net", "loops", "looks for work", "iterations/s", "rounds", "of a fair share"]
    table.plain(headings, lines, f"{args.threads} threads beside busy loops")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
