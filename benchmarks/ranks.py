"""Training on several ranks of the CPU, one thread each, beside PyTorch's DistributedDataParallel with gloo.

    python -m benchmarks.ranks                                    two ranks, the nets below
    python -m benchmarks.ranks --ranks 2 --networks resnet18:8 --rounds 7 --json
    python -m benchmarks.ranks --save                             also writes benchmarks/results/ranks-<CPU>.json

Both sides train the same net from the same weights, by SGD with momentum; each rank has a batch of its own, which lies
in memory. First both have to compute the same mean losses over a few updates. Then they take turns, in rounds of
alternating order; while one runs, the other waits and takes no processor. The median over all steps counts. PyTorch
runs in each of its layouts, with gradients in DDP's buckets and without (`gradient_as_bucket_view`); the fastest
counts.

Bytes sent are computed: what leaves a rank in a step. State is the optimizer's, of one rank. Resident bytes are the
most that a rank's process has had, with its libraries.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from collections.abc import Sequence
from datetime import date
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import machine, nets
from benchmarks.cpu import SETTINGS
from benchmarks.gpu_check.journal import commit
from benchmarks.progress import watched
from benchmarks.rank_sides import Ranks
from benchmarks.turns import TURN, Failed
from minidnn import sizes
from minidnn.cli.options import names, positive

NETWORKS = "resnet18:8,vgg16:16:64,cifar10_quick:100"
POLICY = "liveness:p"
THEIRS = [(layout, views) for layout in ("contiguous", "channels_last") for views in (False, True)]
RESULTS = Path(__file__).with_name("results")

Row = dict[str, Any]


def compared(network: str, args: argparse.Namespace, tell: Any) -> Row:
    """The row of one net. Raises Failed."""
    sides: list[Ranks] = []
    try:
        tell(0, 3, "starting")
        ours = Ranks("ours", args.ranks, network, args.threads, {})
        sides.append(ours)
        tell(1, 3, "measuring costs")
        ours.ask("measure", args.again)
        cases: dict[tuple[Any, ...], tuple[Ranks, list[Row]]] = {}
        for case in THEIRS:
            tell(2, 3, f"PyTorch, {case[0]}: comparing losses")
            side = Ranks("theirs", args.ranks, network, args.threads, SETTINGS["tuned"])
            sides.append(side)
            cases[case] = side, side.ask("load", *case)
        cases[("ours",)] = ours, ours.ask("load", args.policy, args.bucket)
        mine = cases[("ours",)][1]
        for case in THEIRS:
            first, later = nets.apart(mine[0]["losses"], cases[case][1][0]["losses"])
            if not (first <= nets.AGREE["float32"] and later <= nets.AGREE_LATER["float32"]):
                said = f"{mine[0]['losses']} and PyTorch's {cases[case][1][0]['losses']} ({case[0]})"
                raise Failed(f"the two do not compute the same, so their times are not compared: losses {said}")
        taken = _rounds(cases, args.rounds, tell)
    finally:
        for side in sides:
            side.close()
    seconds = {case: median(s for turn in turns for s in turn) for case, turns in taken.items()}
    best = min(THEIRS, key=seconds.__getitem__)
    peer, images = cases[best][1], args.ranks * int(network.split(":")[1])
    own = seconds[("ours",)]
    ratios = [median(a) / median(b) for a, b in zip(taken[("ours",)], taken[best], strict=True)]
    keys = ("state_bytes", "sent_bytes", "resident_bytes")
    return {
        "network": network, "ranks": args.ranks, "threads": args.threads, "policy": args.policy,
        "step_seconds": own, "peer_step_seconds": seconds[best], "seconds_ratio": own / seconds[best],
        "ratio_rounds": ratios, "images_per_second": images / own, "peer_images_per_second": images / seconds[best],
        **{key: mine[0][key] for key in keys}, **{f"peer_{key}": peer[0][key] for key in keys},
        "arena_bytes": mine[0]["arena_bytes"], "predicted_step_seconds": mine[0]["predicted_seconds"],
        "losses": mine[0]["losses"], "peer_losses": peer[0]["losses"],
        "peer_layout": best[0], "peer_bucket_views": best[1], "peer": f"PyTorch {peer[0]['version']}",
    }  # fmt: skip


def _rounds(cases: Any, rounds: int, tell: Any) -> dict[Any, list[list[float]]]:
    """{case: the seconds of each round's steps}; a step takes as long as its slowest rank."""
    count = {case: max(1, ceil(TURN / max(side.ask("steps", 1))[0])) for case, (side, _) in cases.items()}
    taken: dict[Any, list[list[float]]] = {case: [] for case in cases}
    for k in range(rounds):
        for case in list(cases)[:: 1 if k % 2 else -1]:
            tell(k, rounds, f"round {k + 1}: {' '.join(map(str, case))}")
            taken[case].append([max(each) for each in zip(*cases[case][0].ask("steps", count[case]), strict=True)])
    return taken


def table(rows: Sequence[Row]) -> Table:
    found = Table("net", "images/s", "PyTorch", "seconds", "rounds", "state", "PyTorch", "sent", "PyTorch", "resident",
                  "PyTorch", box=None)  # fmt: skip
    for r in rows:
        shown = (sizes.text(r[f"{who}{what}_bytes"]) for what in ("state", "sent", "resident") for who in ("", "peer_"))
        spread = f"{min(r['ratio_rounds']):.2f} to {max(r['ratio_rounds']):.2f}"
        found.add_row(r["network"], f"{r['images_per_second']:.1f}", f"{r['peer_images_per_second']:.1f}",
                      f"{r['seconds_ratio']:.2f}", spread, *shown)  # fmt: skip
    return found


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    for missing, what in (("torch", "minidnn[peer]"), ("mpi4py", "minidnn[mpi]")):
        if importlib.util.find_spec(missing) is None:
            print(f"benchmarks/ranks.py: {missing} is not installed: pip install '{what}'", file=sys.stderr)
            return 2
    if shutil.which("mpiexec") is None:
        print("benchmarks/ranks.py: there is no mpiexec on the PATH", file=sys.stderr)
        return 2
    rows, code = [], 0
    with watched() as (console, say):
        for network in args.networks:
            try:
                rows.append(compared(network, args, lambda d, n, t, of=network: say(d, n, f"{of}: {t}")))
            except Failed as error:
                console.print(f"{network}: {error}", style="red", soft_wrap=True)
                code = 1
    document = {"rows": rows, "machine": machine.described(), "date": date.today().isoformat(), "commit": commit(),
                "rounds": args.rounds}  # fmt: skip
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 200).print(table(rows))
    if args.save and rows:
        path = RESULTS / f"ranks-{machine.slug(machine.cpu())}.json"
        path.write_text(json.dumps(document, indent=2) + "\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/ranks.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--networks", type=names, default=names(NETWORKS), metavar="NET:BATCH[:SIDE],...", help=NETWORKS
    )
    parser.add_argument("--ranks", type=positive, default=2, metavar="N", help="(default: 2)")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="of each rank (default: 1)")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="of turns (default: 7)")
    parser.add_argument("--policy", default=POLICY, metavar="NAME", help=f"(default: {POLICY})")
    parser.add_argument("--bucket", type=int, metavar="BYTES", help="of gradients that travel together")
    parser.add_argument("--again", action="store_true", help="measure anew what our ops cost")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
