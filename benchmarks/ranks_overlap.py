"""How much of communication does compute hide, with gradients in buckets and with all of them at the end?

    python -m benchmarks.ranks_overlap                        two ranks of one thread each, three nets
    python -m benchmarks.ranks_overlap --networks resnet18:8 --steps 60 --json
    python -m benchmarks.ranks_overlap --save                 also writes benchmarks/results/overlap-<CPU>.json

Under mpiexec all ranks load six nets: with buckets and with one all-to-all at the end, and each of these with three
engines. The first moves all bytes. The second moves a byte for each communication, so that ranks meet. The third does
nothing. They take turns, one step each. What communication adds to a step is what compute does not hide: it is exposed.
A part of it comes of meeting, since ranks are never equally quick. The rest comes of the bytes. Beside that stands what
the simulator foresees, which knows equal ranks alone, by costs and a link that are measured here first.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.gpu_check.journal import commit
from benchmarks.progress import watched
from benchmarks.rank_sides import ROOT, net_of
from benchmarks.ranks_foresight import NETWORKS, POLICY, RESULTS, measured_together
from benchmarks.turns import Failed
from minidnn.cli.options import names, positive
from minidnn.ranks.engine import Engine, Pieces
from minidnn.sizes import text

AT_THE_END = 1 << 50  # bytes of a bucket that holds all gradients

Row = dict[str, Any]


class Still(Engine):
    """An engine whose communications move nothing. meets: whether ranks meet in them, by a byte for each other rank"""

    def __init__(self, engine: Engine, meets: bool) -> None:
        self.rank, self.ranks, self._engine, self.meets = engine.rank, engine.ranks, engine, meets

    def transfer(self, sends: Pieces, receives: Pieces) -> Callable[[], None]:
        if not self.meets:
            return lambda: None
        byte = np.zeros((2, self.ranks), np.uint8)
        pieces = [[[] if k == self.rank else [side[k : k + 1]] for k in range(self.ranks)] for side in byte]
        return self._engine.transfer(*pieces)

    def share(self, value: Any) -> list[Any]:
        return self._engine.share(value)

    def close(self) -> None:
        pass


def inside(network: str, folder: Path, policy: str, steps: int) -> None:
    """One rank; the first one prints what came of it as JSON. folder: where measurements go"""
    from benchmarks import nets
    from benchmarks.rank_sides import _ours
    from minidnn.backends.cpu import CpuDevice
    from minidnn.costs.net import among, unhindered
    from minidnn.memory.execution.simulator import simulate
    from minidnn.programs.build import programs
    from minidnn.ranks.mpi import Mpi
    from minidnn.training.session import Session

    engine, device, net = Mpi(), CpuDevice(1), net_of(network)
    spec = replace(nets.TRAIN, ranks=engine.ranks, rank=engine.rank)
    specs = {"buckets": spec, "at the end": replace(spec, bucket=AT_THE_END)}
    every = [programs(net, one, ("TRAIN",), fuses=device.fuses)["TRAIN"] for one in (nets.TRAIN, *specs.values())]
    costs, between = measured_together(engine, device, every, folder)
    sessions, found = {}, {}
    for name, one in specs.items():
        for kind in ("all", "meets", "still"):
            by = engine if kind == "all" else Still(engine, kind == "meets")
            session = sessions[name, kind] = Session(
                net, one, ("TRAIN",), device=device, policy=policy, costs=costs, seed=1, engine=by, link=between
            )
            for tensor, value in nets.batch_of(session.programs["TRAIN"], nets.GENTLE, engine.rank).items():
                session.machine.write(tensor, value, "TRAIN")
        schedule, known = sessions[name, "all"].arrangement.schedules["TRAIN"], among(costs, between)
        ops = [op for op in schedule.program.ops if op.on_net]
        found[name] = {
            "foreseen_seconds": simulate(schedule, known).seconds,
            "foreseen_free_seconds": simulate(schedule, unhindered(known)).seconds,
            "net_seconds": sum(known.choices(op)[0].seconds for op in ops),
            "exchanges": sum(op.kind == "net.all_to_all" for op in ops),
            "largest_bytes": max(sum(t.nbytes for t in op.reads) for op in ops if op.kind == "net.all_to_all"),
            "link": asdict(between),
        }
    taken: dict[Any, list[float]] = {case: [] for case in sessions}
    for k in range(steps + 2):
        for case in list(sessions)[:: 1 if k % 2 else -1]:
            engine.share(None)
            began = perf_counter()
            _ours(sessions[case])
            taken[case].append(perf_counter() - began)
    for (name, kind), seconds in taken.items():
        slowest = [max(each) for each in zip(*engine.share(seconds[2:]), strict=True)]
        found[name][f"{kind}_seconds"] = slowest
    if not engine.rank:
        print(json.dumps(found))


def compared(network: str, folder: str, args: argparse.Namespace) -> list[Row]:
    """The rows of a net. folder: where measurements go. Raises Failed."""
    words = [
        "-m",
        "benchmarks.ranks_overlap",
        "--networks",
        network,
        "--policy",
        args.policy,
        "--steps",
        str(args.steps),
    ]
    command = ["mpiexec", "-n", str(args.ranks), sys.executable, *words, "--inside", folder]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(lines) != 1:
        raise Failed(f"{args.ranks} ranks: {done.stderr.strip()[-400:] or 'nothing was printed'}")
    rows = []
    for name, one in json.loads(lines[0]).items():
        whole, meets, still = (one.pop(f"{kind}_seconds") for kind in ("all", "meets", "still"))
        added = [a - b for a, b in zip(whole, still, strict=True)]
        moving = [a - b for a, b in zip(whole, meets, strict=True)]
        foreseen = one["foreseen_seconds"] - one["foreseen_free_seconds"]
        rows.append({
            "network": network, "ranks": args.ranks, "gradients": name, "step_seconds": median(whole),
            "still_seconds": median(still), "exposed_seconds": median(added), "moving_seconds": median(moving),
            "all_seconds": whole, "all_meeting_seconds": meets, "all_still_seconds": still,
            "foreseen_exposed_seconds": foreseen, **one,
        })  # fmt: skip
    return rows


def table(rows: Sequence[Row]) -> Table:
    found = Table("net", "gradients", "exchanges", "largest", "a step", "foreseen", "off", "exposed", "by bytes",
                  "foreseen", "of communication", "part of a step", "foreseen", box=None)  # fmt: skip
    for r in rows:
        found.add_row(
            r["network"], r["gradients"], str(r["exchanges"]), text(r["largest_bytes"]),
            f"{1e3 * r['step_seconds']:.1f} ms",
            f"{1e3 * r['foreseen_seconds']:.1f} ms", f"{r['foreseen_seconds'] / r['step_seconds'] - 1:+.1%}",
            f"{1e3 * r['exposed_seconds']:.1f} ms", f"{1e3 * r['moving_seconds']:.1f} ms",
            f"{1e3 * r['foreseen_exposed_seconds']:.1f} ms", f"{1e3 * r['net_seconds']:.1f} ms",
            f"{r['moving_seconds'] / r['step_seconds']:.1%}",
            f"{r['foreseen_exposed_seconds'] / r['foreseen_seconds']:.1%}",
        )  # fmt: skip
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("benchmarks/ranks_overlap.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", type=names, default=names(NETWORKS), metavar="NET:BATCH[:SIDE],...")
    parser.add_argument("--ranks", type=positive, default=2, metavar="N", help="(default: 2)")
    parser.add_argument("--policy", default=POLICY, metavar="NAME", help=f"(default: {POLICY})")
    parser.add_argument("--steps", type=positive, default=30, metavar="N", help="of each (default: 30)")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results")
    args = parser.parse_args(argv)
    if args.inside:
        inside(args.networks[0], args.inside, args.policy, args.steps)
        return 0
    if importlib.util.find_spec("mpi4py") is None or shutil.which("mpiexec") is None:
        parser.error("needs mpi4py and mpiexec: pip install 'minidnn[mpi]'")
    rows, code = list[Row](), 0
    with watched() as (console, say), tempfile.TemporaryDirectory() as folder:
        for k, network in enumerate(args.networks):
            say(k, len(args.networks), network)
            try:
                rows += compared(network, folder, args)
            except Failed as error:
                console.print(f"{network}: {error}", style="red", soft_wrap=True)
                code = 1
    document = {"rows": rows, "machine": machine.described(), "date": date.today().isoformat(), "commit": commit()}
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 200).print(table(rows))
    if args.save and rows:
        path = RESULTS / f"overlap-{machine.slug(machine.cpu())}.json"
        path.write_text(json.dumps(document, indent=2) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
