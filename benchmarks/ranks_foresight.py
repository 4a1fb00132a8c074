"""Is the speed of several ranks on this machine what the simulator foresees?

    python -m benchmarks.ranks_foresight                             1, 2 and 4 ranks, one thread each, three nets
    python -m benchmarks.ranks_foresight --networks resnet18:8 --ranks 1,2 --json
    python -m benchmarks.ranks_foresight --save                      also writes benchmarks/results/foresight-<CPU>.json

Each number of ranks runs under mpiexec on its own, all of its ranks on this machine. What ops cost is measured once, by
one rank while the others wait. The link is measured between all of them, alone and beside compute (measuring/ranks.py).
By these numbers the simulator foresees a step of the plan, and then the plan runs. Efficiency is the speed of N ranks
over N times that of one.

Medians of steps count. Other programs disturb several ranks more than one, which finds a free core. Hence the
efficiency of the quickest steps, too: these were disturbed least.

Ranks of one machine share its memory, and perhaps its cores, which the simulator does not know. So all ranks also take
steps of one rank at the same time, without a word between them. Ops are taken to last as many times as long as these
steps do: the column "sharing".
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
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.gpu_check.journal import commit
from benchmarks.progress import watched
from benchmarks.rank_sides import ROOT, net_of
from benchmarks.turns import Failed
from minidnn.cli.options import names, positive
from minidnn.cli.values import counts

NETWORKS = "resnet18:8,vgg16:16:64,cifar10_quick:100"
RANKS = "1,2,4"
POLICY = "liveness:p"
RESULTS = Path(__file__).with_name("results")

Row = dict[str, Any]


# ---- on a rank


def inside(network: str, folder: Path, policy: str, steps: int, bucket: int | None) -> None:
    """One rank: measure, foresee, run; the first one prints what came of it as JSON. folder: where measurements go"""
    from benchmarks import nets
    from minidnn.backends.cpu import CpuDevice
    from minidnn.costs.net import among, sent, unhindered
    from minidnn.memory.execution.simulator import simulate
    from minidnn.programs.build import programs
    from minidnn.ranks.mpi import Mpi
    from minidnn.training.session import Session

    engine, device, net = Mpi(), CpuDevice(1), net_of(network)
    spec = replace(nets.TRAIN, ranks=engine.ranks, rank=engine.rank)
    spec = spec if bucket is None else replace(spec, bucket=bucket)
    every = [programs(net, one, ("TRAIN",), fuses=device.fuses)["TRAIN"] for one in (nets.TRAIN, spec)]
    costs, between = measured_together(engine, device, every, folder)

    def opened(train: Any, **more: Any) -> Any:
        session = Session(net, train, ("TRAIN",), device=device, policy=policy, costs=costs, seed=1, **more)
        for tensor, value in nets.batch_of(session.programs["TRAIN"], nets.GENTLE, engine.rank).items():
            session.machine.write(tensor, value, "TRAIN")
        return session

    shared = 1.0
    if engine.ranks > 1:
        with closing(opened(nets.TRAIN)) as one:
            shared = _shared(engine, one, steps)
    session = opened(spec, **({"engine": engine, "link": between} if engine.ranks > 1 else {}))
    schedule, costs = session.arrangement.schedules["TRAIN"], among(_sharing(costs, shared), between)
    slowest = _together(engine, session, steps)
    if engine.rank:
        return
    found = {
        "seconds": slowest, "foreseen_seconds": simulate(schedule, costs).seconds,
        "free_seconds": simulate(schedule, unhindered(costs)).seconds,
        "sent_bytes": sum(sent(op) for op in schedule.program.ops if op.on_net),
        "link": asdict(between) if engine.ranks > 1 else None, "shared": shared,
    }  # fmt: skip
    print(json.dumps(found))


def measured_together(engine: Any, device: Any, every: Sequence[Any], folder: Path) -> tuple[Any, Any]:
    """The costs of the ops of all programs, measured by the first rank, and the link between all ranks."""
    from minidnn.costs import measured, measurements
    from minidnn.costs.net import LINK
    from minidnn.measuring.ops import measure
    from minidnn.measuring.ranks import link

    known = measurements(device, folder)
    if not engine.rank:
        measure(device, every, known)
    for name in ("seconds", "refused", "beside", "bandwidth_out", "bandwidth_in", "latency"):
        setattr(known, name, engine.share(getattr(known, name))[0])
    between, _ = link(engine, device) if engine.ranks > 1 else (LINK, [])
    return measured(device, known), between


def _together(engine: Any, session: Any, steps: int) -> list[float]:
    """The seconds of each step until the last rank ends it; all begin together."""
    taken = []
    for _ in range(steps + 2):
        engine.share(None)
        taken.append(_seconds(session))
    return [max(each) for each in zip(*engine.share(taken[2:]), strict=True)]


def _shared(engine: Any, one: Any, steps: int) -> float:
    """How many times as long a step of one rank takes while all ranks take such steps, without a word between them."""
    alone = [_seconds(one) for _ in range(steps + 2 if not engine.rank else 0)][2:]
    first = engine.share(alone)[0]
    return max(1.0, median(_together(engine, one, steps)) / median(first))


def _seconds(session: Any) -> float:
    from benchmarks.rank_sides import _ours

    began = perf_counter()
    _ours(session)
    return perf_counter() - began


def _sharing(costs: Any, times: float) -> Any:
    """The costs if each op takes so many times as long."""
    from minidnn.costs import Choice

    return replace(costs, choices=lambda op: tuple(Choice(c.algorithm, times * c.seconds) for c in costs.choices(op)))


# ---- the parent


def ran(network: str, ranks: int, folder: str, args: argparse.Namespace) -> Row:
    """What the ranks have printed. Raises Failed."""
    words = [sys.executable, "-m", "benchmarks.ranks_foresight", "--networks", network,
             "--policy", args.policy, "--steps", str(args.steps)]  # fmt: skip
    words += [] if args.bucket is None else ["--bucket", str(args.bucket)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = ["mpiexec", "-n", str(ranks), *words, "--inside", folder]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(lines) != 1:
        raise Failed(f"{ranks} ranks: {done.stderr.strip()[-400:] or 'nothing was printed'}")
    found: Row = json.loads(lines[0])
    return found


def compared(network: str, folder: str, args: argparse.Namespace, tell: Any) -> list[Row]:
    """A row for each number of ranks. folder: where measurements go. Raises Failed."""
    batch, rows = int(network.split(":")[1]), []
    for number, ranks in enumerate(args.ranks):
        tell(number, len(args.ranks), f"{ranks} ranks")
        found = ran(network, ranks, folder, args)
        seconds, foreseen = median(found["seconds"]), found["foreseen_seconds"]
        rows.append({
            "network": network, "ranks": ranks, "cores": os.cpu_count(), "policy": args.policy,
            "quickest_images_per_second": ranks * batch / min(found["seconds"]),
            "step_seconds": seconds, "foreseen_step_seconds": foreseen, "all_seconds": found["seconds"],
            "images_per_second": ranks * batch / seconds, "foreseen_images_per_second": ranks * batch / foreseen,
            "exposed_seconds": foreseen - found["free_seconds"], "sent_bytes": found["sent_bytes"],
            "link": found["link"], "shared": found["shared"],
        })  # fmt: skip
    one = rows[0]
    for row in rows:
        for kind in ("", "foreseen_", "quickest_"):
            speed = row[f"{kind}images_per_second"] / one[f"{kind}images_per_second"]
            row[f"{kind}efficiency"] = speed / row["ranks"] * one["ranks"]
    return rows


def table(rows: Sequence[Row]) -> Table:
    found = Table("net", "ranks", "images/s", "foreseen", "off", "efficiency", "of quickest steps", "foreseen", "off",
                  "exposed", "sharing", "link", box=None)  # fmt: skip
    for r in rows:
        speed, efficiency = (r[f"foreseen_{name}"] / r[name] - 1 for name in ("images_per_second", "efficiency"))
        link = r["link"] and f"{r['link']['bandwidth'] / 1e9:.1f} GB/s, {1e6 * r['link']['latency']:.1f} µs"
        found.add_row(
            r["network"], f"{r['ranks']}{' (share cores)' if r['ranks'] > r['cores'] else ''}",
            f"{r['images_per_second']:.1f}", f"{r['foreseen_images_per_second']:.1f}", f"{speed:+.1%}",
            f"{r['efficiency']:.3f}", f"{r['quickest_efficiency']:.3f}", f"{r['foreseen_efficiency']:.3f}",
            f"{efficiency:+.1%}",
            f"{1e3 * r['exposed_seconds']:.1f} ms", f"{r['shared']:.2f}", link,
        )  # fmt: skip
    return found


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.inside:
        inside(args.networks[0], args.inside, args.policy, args.steps, args.bucket)
        return 0
    if importlib.util.find_spec("mpi4py") is None or shutil.which("mpiexec") is None:
        print("benchmarks/ranks_foresight.py: needs mpi4py and mpiexec: pip install 'minidnn[mpi]'", file=sys.stderr)
        return 2
    rows, code = list[Row](), 0
    with watched() as (console, say), tempfile.TemporaryDirectory() as folder:
        for network in args.networks:
            try:
                rows += compared(network, folder, args, lambda d, n, t, of=network: say(d, n, f"{of}: {t}"))
            except Failed as error:
                console.print(f"{network}: {error}", style="red", soft_wrap=True)
                code = 1
    document = {"rows": rows, "machine": machine.described(), "date": date.today().isoformat(), "commit": commit()}
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 200).print(table(rows))
    if args.save and rows:
        path = RESULTS / f"foresight-{machine.slug(machine.cpu())}.json"
        path.write_text(json.dumps(document, indent=2) + "\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/ranks_foresight.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--networks", type=names, default=names(NETWORKS), metavar="NET:BATCH[:SIDE],...", help=NETWORKS
    )
    parser.add_argument("--ranks", type=counts, default=counts(RANKS), metavar="A,B,...", help=f"(default: {RANKS})")
    parser.add_argument("--policy", default=POLICY, metavar="NAME", help=f"(default: {POLICY})")
    parser.add_argument("--steps", type=positive, default=30, metavar="N", help="that are timed (default: 30)")
    parser.add_argument("--bucket", type=int, metavar="BYTES", help="of gradients that travel together")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
