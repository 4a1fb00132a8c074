"""Whether training under `best` ends with the bytes of baseline: six nets, ten budgets each, run on this CPU.

    python -m benchmarks.same_bytes                                      all: some minutes
    python -m benchmarks.same_bytes --networks resnet50:8 --budgets 3    one net and batch
    python -m benchmarks.same_bytes --suffixes                           all policies, with ":m", with ":p" and in parts
    python -m benchmarks.same_bytes --suffixes :p,@2 --cores Haswell --devices cpu

With --suffixes a small net is trained under all policies, on `cpu` and `reference`, with the kernels for three kinds of
CPU (benchmarks/snapshots.py). Without it:

The budgets are evenly spaced, from the least that `best` keeps to the most that it uses. `best` chooses algorithms by
the budget, so each plan is compared with baseline with the same algorithms. All values that live from step to step
count (weights, statistics, momenta), and all losses. Freed bytes are filled with NaN, and copies are delayed at random.
Costs are measured. Those of parts are not, so this is `best@1`, without parts. Every second plan is made as if copies
took 20 times as long, so that more ops run again.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine, nets, snapshots
from benchmarks.budgets import several
from benchmarks.cpu import Wrong, asked
from benchmarks.gpu_check.journal import commit
from benchmarks.progress import watched
from benchmarks.turns import Tell, costs_of, shut, train
from minidnn.backends.cpu import CpuDevice
from minidnn.cli.options import names, positive
from minidnn.costs import Costs
from minidnn.errors import BadInput
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.trace import copied
from minidnn.memory.planning import arrange
from minidnn.memory.policies import AT, BUDGETED
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.report import table
from minidnn.training.comparison import restricted
from minidnn.training.session import Session

NETWORKS = "digits_lenet:64", "alexnet:16", "googlenet:4", "resnet18:8", "densenet121:2", "resnet50:4"
BEST = f"{BUDGETED}{AT}1"
BASELINE = "baseline:p"
SLOWER = 20  # times as long take copies for every second plan
DELAYS = 1e-3  # seconds by which a copy is delayed at most
Row = dict[str, Any]
Algorithms = tuple[tuple[str, str, int], ...]  # of each op: its name, its algorithm's name and workspace
Measure = Callable[[CpuDevice, Program, Tell], Costs]


@dataclass(frozen=True)
class End:
    """The end of some steps: the losses, a digest of each value by name, and how many values changed."""

    losses: tuple[float, ...]
    values: dict[str, str]
    changed: int


def digests(session: Session) -> dict[str, str]:
    values = {**session.weights(), **session.state()}
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in values.items()}


def algorithms(session: Session) -> Algorithms:
    chosen = session.arrangement.schedules["TRAIN"].plan.algorithm
    return tuple((op.name, a.name, a.workspace) for op, a in chosen.items())


def trained(session: Session, steps: int) -> End:
    """Run steps on one batch of noise."""
    for tensor, value in nets.batch_of(session.programs["TRAIN"]).items():
        session.machine.write(tensor, value, "TRAIN")
    before = digests(session)
    losses = tuple(train(session) for _ in range(steps))
    values = digests(session)
    return End(losses, values, sum(values[name] != before[name] for name in values))


def budgets(program: Program, costs: Costs, count: int) -> list[int]:
    """Evenly spaced bytes, from the least that `best` keeps to the most that it uses."""
    most = arrange([program], BEST, costs).arena
    try:
        least = arrange([program], BEST, costs, 1).arena
    except BudgetError as refusal:
        least = refusal.smallest
    return [least + (most - least) * i // (count - 1) for i in range(count)]


def measured(device: CpuDevice, program: Program, tell: Tell) -> Costs:
    return costs_of(device, [program], False, tell)


def rows(
    network: str, batch: int | None, threads: int, count: int, steps: int, measure: Measure, tell: Tell
) -> Iterator[Row]:
    """A row for each budget."""
    device = CpuDevice(threads)
    net = nets.remembering(nets.found(network, batch))
    program = programs(net, nets.TRAIN, ("TRAIN",), fuses=device.fuses)["TRAIN"]
    real = measure(device, program, tell)
    slow = replace(real, bandwidth_out=real.bandwidth_out / SLOWER, bandwidth_in=real.bandwidth_in / SLOWER)
    opened = partial(Session, net, nets.TRAIN, ("TRAIN",), device=device, seed=1)
    ends: dict[Algorithms, End] = {}
    tell(0, count, "planning for the least budget and the largest")
    for i, budget in enumerate(budgets(program, real, count)):
        costs = slow if i % 2 else real
        tell(i, count, f"training in {table.size(budget)}")
        session = opened(policy=BEST, costs=costs, budget=budget, debug=True, delays=DELAYS)
        found, chosen = trained(session, steps), algorithms(session)
        schedule = session.arrangement.schedules["TRAIN"]
        shut(session)
        if chosen not in ends:
            tell(i, count, "training under baseline")
            session = opened(policy=BASELINE, costs=restricted(real, session.arrangement))
            ends[chosen] = trained(session, steps)
            shut(session)
        want = ends[chosen]
        yield {
            "network": network, "batch": batch, "budget_bytes": budget, "slower_copies": costs is slow,
            "peak_bytes": schedule.arena, **copied(schedule.instructions, schedule),
            "ops_again": len(schedule.plan.order) - len(schedule.program.ops), "steps": steps,
            "losses": found.losses, "values": len(found.values), "changed": found.changed,
            "different": sorted(name for name in want.values if found.values[name] != want.values[name]),
            "same": found == want and found.changed > 0,
        }  # fmt: skip


# ---- the command

HEADINGS = [
    "net",
    "budget",
    "copies",
    "arena",
    "moved out",
    "ops again",
    "values",
    "changed by training",
    "as baseline's",
]


def cells(r: Row) -> list[str]:
    same = "all" if r["same"] else f"not {', '.join(r['different'][:3]) or 'the losses'}"
    return [
        f"{r['network']}, batch {r['batch']}" if r["batch"] else r["network"], table.size(r["budget_bytes"]),
        "slow" if r["slower_copies"] else "as measured",
        table.size(r["peak_bytes"]), table.size(r["offload_bytes"]), str(r["ops_again"]), str(r["values"]),
        str(r["changed"]), same,
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        found = _of_policies(args) if args.suffixes else _of_budgets(args)
    except (Wrong, BadInput, OSError) as error:
        print(f"benchmarks/same_bytes.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("benchmarks/same_bytes.py: interrupted; the costs that were measured are kept", file=sys.stderr)
        return 130
    if args.json:
        table.dump(
            {"rows": found, "machine": machine.described(), "date": date.today().isoformat(), "commit": commit()}
        )
    elif args.suffixes:
        snapshots.show(found)
    else:
        _show(found, args.steps)
    return 0 if all(row["same"] for row in found) else 1


def _of_policies(args: argparse.Namespace) -> list[Row]:
    return [row for core in args.cores for row in snapshots.of_core(core, args.suffixes, args.devices, args.threads)]


def _of_budgets(args: argparse.Namespace) -> list[Row]:
    found: list[Row] = []
    wanted = [asked(network) for network in args.networks]
    with watched() as (_, say):
        for network, batch in wanted:

            def tell(done: int, of: int, text: str, network: str = network) -> None:
                say(done, of, f"{network}: {text}")

            found += rows(network, batch, args.threads, args.budgets, args.steps, measured, tell)
    return found


def _show(found: Sequence[Row], steps: int) -> None:
    table.plain(HEADINGS, [cells(row) for row in found], f"{steps} steps under {BEST} and under baseline")
    same = sum(row["same"] for row in found)
    print(f"{same} of {len(found)} trainings end with the bytes of baseline with the same algorithms")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/same_bytes.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", type=names, default=NETWORKS, metavar="NET:BATCH,...", help=",".join(NETWORKS))
    parser.add_argument("--budgets", type=several, default=10, metavar="N", help="for each net (default: 10)")
    parser.add_argument("--steps", type=positive, default=3, metavar="N", help="(default: 3)")
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="(default: 2)")
    parser.add_argument(
        "--suffixes", type=names, nargs="?", const=snapshots.SUFFIXES, metavar="SUFFIX,...",
        help=f"train under all policies with these suffixes ({','.join(snapshots.SUFFIXES)})",
    )  # fmt: skip
    parser.add_argument(
        "--cores", type=names, default=snapshots.CORES, metavar="CORE,...",
        help=f"with --suffixes: of {','.join(snapshots.ISA)}, as OpenBLAS names them ({','.join(snapshots.CORES)})",
    )  # fmt: skip
    parser.add_argument(
        "--devices", type=names, default=snapshots.DEVICES, metavar="DEVICE,...",
        help=f"with --suffixes ({','.join(snapshots.DEVICES)})",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
