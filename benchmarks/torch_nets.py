"""Whether modules of PyTorch train to the bits of eager mode under `minidnn.torch`, within the bytes foreseen.

    python -m benchmarks.torch_nets                                         all: some 20 minutes on two cores
    python -m benchmarks.torch_nets --only gpt2,unet --policies best --shares 60,30
    python -m benchmarks.torch_nets --save                                  also writes benchmarks/results/torch-nets-*

The nets are those of tests/torch/nets; those of packages that are not installed are left out. A share is a part of
the bytes that a step makes if all is kept until its last use, above what the caller owns. For each net, policy and
share: two steps from one seed, whose losses, gradients, buffers and generator's state must have eager's bits; the bytes
at the peak of a third one, foreseen and measured; the seconds of tracing and of planning; the time of a step over
eager's, in turns.

A row is wrong if a bit differs, if the peaks differ by more than 0.1 % and 64 KiB, or if the measured one exceeds the
budget. Then the exit code is 1. A policy that cannot keep a budget says so: "refused".
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.torch_steps import KIB, End, Row, Side, in_turns, mib, parser, report
from minidnn.cli.options import names
from minidnn.errors import Failed, InvalidInput
from minidnn.memory.budget import BudgetError
from minidnn.program import nbytes
from minidnn.torch import step as door
from minidnn.torch.step import Step, compile
from tests.support.peers import installed
from tests.torch.nets import NETS, PACKAGES

POLICIES = "best", "sqrt_n", "superneurons", "vdnn_all"
SHARES = 100, 60, 30
HEADINGS = (
    "net", "policy", "share, %", "budget, MiB", "foreseen, MiB", "measured, MiB", "kept", "bits", "again", "copies",
    "planning, s", "time over eager's",
)  # fmt: skip


def rows(name: str, policies: Sequence[str], shares: Sequence[int], rounds: int) -> Iterator[Row]:
    """A row for each policy and share."""
    torch.manual_seed(0)
    case = NETS[name]()
    case.module.train()
    eager, ours = Side(case), Side(case)
    with timed("trace") as tracing:
        plain = compile(ours.module, case.args, loss=case.loss, policy="liveness")
    (plan,) = plain.plans.values()
    own = nbytes(plan.capture.program.persistent)
    about = {
        "net": name, "ops": len(plan.capture.program.ops), "owned_bytes": own, "trace_seconds": tracing[0],
        "whole_bytes": plan.schedule.arena - own,
    }  # fmt: skip
    reference = eager.end()
    about["eager_bytes"] = eager.peak()
    for policy in policies:
        for share in shares:
            row: Row = {**about, "policy": policy, "share": share}
            row["budget_bytes"] = own + row["whole_bytes"] * share // 100
            step = compile(ours.module, loss=case.loss, budget=row["budget_bytes"], policy=policy)
            step._traces = plain._traces  # one serves all
            yield row | under(step, row, (ours, eager), reference, rounds)


def under(step: Step, row: Row, sides: tuple[Side, Side], reference: End, rounds: int) -> Row:
    """What comes of one policy within one budget."""
    ours, _ = sides
    ours.begin_again()
    try:
        with timed("arrange") as planning:
            plan = step.plan(*ours.case.args)
    except BudgetError as refused:
        return {"refused": str(refused), "smallest_bytes": refused.smallest}
    ours.call = step
    unequal = ours.end().unequal(reference)
    peak = ours.peak()
    assert list(step.plans.values()) == [plan], "one plan serves all these steps"
    seconds = in_turns(sides, rounds)
    return {
        "plan_seconds": planning[0], "foreseen_bytes": plan.peak - row["owned_bytes"], "measured_bytes": peak,
        "kept": peak + row["owned_bytes"] <= row["budget_bytes"], "unequal": unequal,
        "again": len(plan.schedule.plan.order) - row["ops"], "copies": len(plan.schedule.plan.offloads),
        "seconds": seconds[0], "eager_seconds": seconds[1],
    }  # fmt: skip


@contextmanager
def timed(name: str) -> Iterator[list[float]]:
    """The seconds that a function of minidnn.torch.step takes in a block of code."""
    result, function = [0.0], getattr(door, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            result[0] += time.perf_counter() - begin

    setattr(door, name, run)
    try:
        yield result
    finally:
        setattr(door, name, function)


def wrong(row: Row) -> list[str]:
    """What is wrong with a row."""
    if "refused" in row:
        return []
    off = abs(row["measured_bytes"] - row["foreseen_bytes"])
    told = [f"{part}: unequal" for part in row["unequal"]]
    if off > max(64 * KIB, 0.001 * (row["foreseen_bytes"] + row["owned_bytes"])):
        told.append(f"peak off by {mib(off)} MiB")
    return told if row["kept"] else [*told, "above the budget"]


def cells(row: Row) -> list[str]:
    own = row["owned_bytes"]
    first = [row["net"], row["policy"], str(row["share"]), mib(row["budget_bytes"] - own)]
    if "refused" in row:
        return [*first, f"refused: needs {mib(row['smallest_bytes'] - own)}", *["–"] * (len(HEADINGS) - 5)]
    return [
        *first, mib(row["foreseen_bytes"]), mib(row["measured_bytes"]), "yes" if row["kept"] else "NO",
        "; ".join(row["unequal"]) or "equal", str(row["again"]), str(row["copies"]), f"{row['plan_seconds']:.1f}",
        f"{row['seconds'] / row['eager_seconds']:.2f}",
    ]  # fmt: skip


def summary(all_rows: Sequence[Row]) -> list[str]:
    ran = [row for row in all_rows if "refused" not in row]
    if not ran:
        return [f"{len(all_rows)} rows, all refused"]
    off = max(abs(row["measured_bytes"] - row["foreseen_bytes"]) for row in ran)
    equal, held = sum(not row["unequal"] for row in ran), sum(row["kept"] for row in ran)
    bad = [f"{row['net']}, {row['policy']}, {row['share']} %: {'; '.join(wrong(row))}" for row in ran if wrong(row)]
    traced = {row["net"]: row["trace_seconds"] for row in all_rows}
    slowest = max(row["plan_seconds"] for row in ran)
    return [
        f"{len(ran)} rows of {len(traced)} nets ran, {len(all_rows) - len(ran)} were refused: bits equal in {equal}, "
        f"budget kept in {held}, the peaks at most {mib(off)} MiB apart; at most {max(traced.values()):.1f} s of "
        f"tracing, {slowest:.1f} s of planning",
        *bad,
    ]


def main(argv: Sequence[str] | None = None) -> int:
    asked = parser(__doc__)
    asked.add_argument("--only", type=names, default=list(NETS), metavar="NET,...", help=", ".join(NETS))
    asked.add_argument("--policies", type=names, default=list(POLICIES), metavar="POLICY,...")
    asked.add_argument("--shares", type=names, default=[str(s) for s in SHARES], metavar="PERCENT,...")
    asked.add_argument("--rounds", type=int, default=3, help="steps of each side whose median counts (3)")
    args = asked.parse_args(argv)
    if unknown := [name for name in args.only if name not in NETS]:
        asked.error(f"no net {unknown[0]}; there are {', '.join(NETS)}")
    warnings.simplefilter("ignore")
    all_rows: list[Row] = []
    failed: list[str] = []
    for name in args.only:
        if name in PACKAGES and not installed(PACKAGES[name][1]):
            print(f"{name}: left out, {PACKAGES[name][1]} is not installed", file=sys.stderr)
            continue
        try:
            for row in rows(name, args.policies, [int(share) for share in args.shares], args.rounds):
                all_rows.append(row)
                print("  ".join(cells(row)), file=sys.stderr, flush=True)
        except (InvalidInput, Failed) as error:
            failed.append(f"{name}: {error}")
            print(failed[-1], file=sys.stderr, flush=True)
    report("torch-nets", HEADINGS, [cells(row) for row in all_rows], [*summary(all_rows), *failed], all_rows, args)
    return 1 if failed or any(wrong(row) for row in all_rows) else 0


if __name__ == "__main__":
    sys.exit(main())
