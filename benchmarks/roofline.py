"""Each product of a net's training step on the CPU beside the roof of this machine.

    python -m benchmarks.roofline resnet50:8                 convolutions, inner products, attention: by layer and pass
    python -m benchmarks.roofline resnet50:8 densenet121:8 --threads 1 --json
    ONEDNN_MAX_CPU_ISA=AVX2 python -m benchmarks.roofline gpt2:4:512

The net is planned as benchmarks/cpu.py plans it, with measured costs, or with `--estimated` as a training is. Steps run
as in a training, so that an op finds in the caches what its neighbours leave there (measuring/steps.py). The fastest of
the steps counts, op by op, as it does for the roof. GFLOP/s are by the operations that the layer defines, as papers
count them. `of the roof` is the least seconds of the op with its algorithm (benchmarks/roof.py) over its seconds, and
`bound` says whether its arithmetic or its bytes take these. Winograd's algorithm makes fewer operations, so its GFLOP/s
may be above the roof; its share of the roof never is.

At the end: the sums by pass, and the layers whose ops would gain most if they reached the roof. Run it on an idle
machine; it says when it was not. With `--threads 1` the seconds of ops are the processor's, which other programs
disturb little.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from time import thread_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine, nets, rates, roof
from benchmarks.gpu_check.journal import commit
from benchmarks.progress import one_by_one
from benchmarks.turns import Tell, costs_of
from minidnn.backends.cpu import CpuDevice
from minidnn.cli.options import positive
from minidnn.compiled import NotCompiled
from minidnn.costs import NotKept, estimate
from minidnn.errors import BadInput
from minidnn.measuring.load import BUSY, Load
from minidnn.measuring.steps import Steps
from minidnn.memory.execution.threads import Threads
from minidnn.memory.planning import arrange
from minidnn.memory.policies.check import check_policies
from minidnn.memory.schedule import Compute
from minidnn.program import Op
from minidnn.programs.build import programs
from minidnn.report import table

POLICY, STEPS = "liveness:p", 10
WORST = 5
OTHERS = "all others"  # the ops that multiply no matrices


@dataclass(frozen=True)
class Row:
    """One op in a step, or several."""

    layer: str
    of: str  # its pass: "backward_data"
    algorithm: str
    seconds: float
    roof_seconds: float
    arithmetic_seconds: float  # of the roof's: of its operations alone
    flops: int  # as the layer defines them

    @property
    def lost(self) -> float:
        """Seconds that it would take less at the roof."""
        return self.seconds - self.roof_seconds

    @property
    def bound(self) -> str:
        return "arithmetic" if self.arithmetic_seconds >= self.roof_seconds else "bytes"


def row(op: Op, x: Compute, seconds: float, top: roof.Roof) -> Row:
    """The row of an op that took so many seconds."""
    work = roof.work(op, x.algorithm)
    product = op.kind in roof.KINDS
    return Row(
        op.layer, op.name.rpartition(".")[2] if product else OTHERS, x.algorithm.name, seconds, top.seconds(work),
        top.arithmetic(work), op.flops if product else 0,
    )  # fmt: skip


def total(rows: Iterable[Row], layer: str = "", of: str = "", algorithm: str = "") -> Row:
    """The sum of the rows."""
    every = list(rows)
    numbers = ("seconds", "roof_seconds", "arithmetic_seconds", "flops")
    return Row(layer, of, algorithm, *(sum(getattr(r, name) for r in every) for name in numbers))


@contextmanager
def processor_time(wanted: bool) -> Iterator[None]:
    """If wanted, steps within are timed by the processor time of their thread."""
    before = Threads.clock
    if wanted:
        Threads.clock = staticmethod(thread_time)
    try:
        yield
    finally:
        Threads.clock = staticmethod(before)


def measured(net: nets.Asked, device: CpuDevice, args: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    """The rows of a net, the seconds of a step, and the machine's roof just before. Raises NotKept and NotCompiled."""
    program = programs(net.net(), nets.TRAIN, ("TRAIN",), fuses=device.fuses)["TRAIN"]
    costs = estimate(device) if args.estimated else costs_of(device, [program], args.again, tell)
    tell(0, 1, "the roof")
    top = rates.measured(device)
    began = Load.now()
    with processor_time(device.threads == 1), closing(Steps(device, arrange([program], args.policy, costs))) as running:
        whole = []
        for i in range(args.steps):
            tell(i, args.steps, "steps")
            whole.append(running.step())
        rows = [
            row(x.op, x, min(running.taken[i]), top)
            for i, x in enumerate(running.schedule.instructions)
            if isinstance(x, Compute)
        ]
    others = began.others_until(Load.now())
    return {"net": str(net), "rows": rows, "seconds": min(whole), "roof": top, "others": others}


def worst(rows: Iterable[Row]) -> list[Row]:
    """The products that would gain most at the roof, the first first; a layer's op as often as a step runs it."""
    return sorted((r for r in rows if r.of != OTHERS), key=lambda r: -r.lost)[:WORST]


def by_pass(rows: Sequence[Row]) -> list[Row]:
    """The sum of each pass, in their order, and of all ops that are no products."""
    passes = sorted(dict.fromkeys(r.of for r in rows), key=lambda of: of == OTHERS)
    return [total((r for r in rows if r.of == of), of=of) for of in passes]


def _cells(r: Row, step: float) -> list[str]:
    rate = f"{r.flops / r.seconds / 1e9:.1f}" if r.flops else "–"
    return [
        r.layer, r.of, r.algorithm, table.duration(r.seconds), f"{r.seconds / step:.1%}", rate,
        f"{r.roof_seconds / r.seconds:.0%}", r.bound,
    ]  # fmt: skip


HEADINGS = ("layer", "pass", "algorithm", "time", "of the step", "GFLOP/s", "of the roof", "bound")


def show(found: dict[str, Any]) -> None:
    rows, step, top = found["rows"], found["seconds"], found["roof"]
    products = [r for r in rows if r.of != OTHERS]
    table.plain(HEADINGS, [_cells(r, step) for r in products], f"{found['net']}: a step takes {table.duration(step)}")
    sums = [*by_pass(rows), total(rows, of="the step")]
    table.plain(HEADINGS[1:2] + HEADINGS[3:7], [(c := _cells(r, step))[1:2] + c[3:7] for r in sums], "By pass")
    fastest = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in top.rates.items())
    print(f"The roof: {top.flops / 1e9:.0f} GFLOP/s ({fastest}).")
    for level in top.levels:
        where = "memory" if level.nbytes is None else f"{table.size(level.nbytes)} of cache"
        print(f"  {where}: GB/s read {level.read / 1e9:.0f}, written {level.written / 1e9:.0f}, "
              f"moved {level.moved / 1e9:.0f}")  # fmt: skip
    print("Most would be gained at the roof by")
    for r in worst(rows):
        print(f"  {r.layer} {r.of} [{r.algorithm}]: {r.roof_seconds / r.seconds:.0%} of the roof, "
              f"{table.duration(r.lost)} more than there, {r.lost / step:.1%} of the step")  # fmt: skip
    if (found["others"] or 0.0) > BUSY:
        print(
            f"Other programs kept {found['others']:.1f} processors at work: on several threads these times say little."
        )


def document(found: dict[str, Any]) -> dict[str, Any]:
    step = found["seconds"]
    rows = [
        {**asdict(r), "bound": r.bound, "share": r.seconds / step, "of_roof": r.roof_seconds / r.seconds}
        for r in found["rows"]
    ]
    return {**found, "rows": rows, "roof": found["roof"].document(), "worst": [asdict(r) for r in worst(found["rows"])]}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("benchmarks/roofline.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("nets", nargs="+", metavar="NET[:BATCH[:TOKENS]]", help="as resnet50:8")
    parser.add_argument("--threads", type=positive, metavar="N", help="default: one per core")
    parser.add_argument("--policy", default=POLICY, metavar="NAME", help=f"default: {POLICY}")
    parser.add_argument("--steps", type=positive, default=STEPS, metavar="N", help=f"default: {STEPS}")
    costs = parser.add_mutually_exclusive_group()
    costs.add_argument("--again", action="store_true", help="measure anew what our ops cost")
    costs.add_argument("--estimated", action="store_true", help="measure no costs: plan by estimates, as trainings do")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(argv)
    found = []
    try:
        check_policies([args.policy])
        device = CpuDevice(args.threads)
        wanted = [nets.Asked.parse(text) for text in args.nets]
        for net in wanted:
            net.net()
        for net, tell in one_by_one(wanted):
            found.append(measured(net, device, args, tell))
    except (BadInput, NotCompiled, NotKept, ValueError) as error:
        print(f"benchmarks/roofline.py: {error}", file=sys.stderr)
        return 2
    if args.json:
        about = {"machine": machine.described(), "date": date.today().isoformat(), "commit": commit(),
                 "device": device.description, "threads": device.threads, "policy": args.policy,
                 "estimated": args.estimated}  # fmt: skip
        table.dump({"nets": [document(each) for each in found], **about})
        return 0
    for each in found:
        show(each)
    return 0


if __name__ == "__main__":
    sys.exit(main())
