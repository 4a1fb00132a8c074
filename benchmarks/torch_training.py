"""Whether twelve steps of AdamW end with eager mode's weights, under budgets down to the least.

    python -m benchmarks.torch_training                         four nets: some minutes
    python -m benchmarks.torch_training --only gpt2 --save      also writes benchmarks/results/torch-training-*

Each step adds the gradients of three different batches up, clips their norm and lets AdamW move the weights. The nets
have dropout, and resnet50 the statistics of BatchNorm. "least" is the smallest budget that a refusal names, for both
plans that such a loop needs: without gradients to add to, and with. With a disk, the host may keep two thirds of what
it keeps without one. Where `best` then recomputes, nothing reaches the disk; so there is a row of vdnn_all, too, which
copies all that it can, with the smallest host budget that it can keep: the ring alone, and all behind it on the disk.

The digest is of weights, buffers, losses, the optimizer's state and the generator's. If one differs from eager's, the
exit code is 1.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch

from benchmarks.torch_steps import SEED, Row, digest, mib, parser, report
from minidnn.cli.options import names
from minidnn.memory.budget import BudgetError
from minidnn.report.table import duration
from minidnn.torch.step import Step, compile
from tests.torch.nets import NETS
from tests.torch.nets.case import Case

ONLY = "gpt2", "lstm", "unet", "resnet50"
BUDGETS = "60%", "30%", "least"
STEPS, BATCHES = 12, 3
HEADINGS = "net", "budget", "disk", "plans", "peaks, MiB", "on the disk, MiB", "digest", "equal", "seconds"


def batches(name: str) -> list[Case]:
    """One module, with three batches."""
    torch.manual_seed(0)
    case = NETS[name]()
    case.module.train()
    return [case, *(case._replace(args=NETS[name]().args) for _ in range(BATCHES - 1))]


def trained(cases: Sequence[Case], made: Callable[[torch.nn.Module], Step] | None) -> tuple[str, Step | None, float]:
    """(the digest, the step, seconds of the loop) of the module's training; made: None for eager mode."""
    module = deepcopy(cases[0].module)
    step = made(module) if made else None
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    torch.manual_seed(SEED)
    losses, begin = [], time.perf_counter()
    for _ in range(STEPS):
        for case in cases:
            loss = (step(*case.args) if step else case.eager(module)) / len(cases)
            loss.backward()
            losses.append(digest(loss))
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    seconds = time.perf_counter() - begin
    state = [value for one in optimizer.state.values() for value in one.values()]
    values = [*module.parameters(), *module.buffers(), *state, torch.get_rng_state()]
    return hashlib.sha256("".join([*losses, *map(digest, values)]).encode()).hexdigest()[:16], step, seconds


def least(cases: Sequence[Case], named: str = "budget", **how: Any) -> int:
    """The smallest budget that a refusal names, for both plans that such a loop needs. named: "budget" for that of the
    device, or "host_budget". how: further arguments of `compile`"""
    result = 1
    while True:
        try:
            planned_twice(cases, **how, **{named: result})
            return result
        except BudgetError as refused:
            result = max(refused.smallest, result + 1)


def planned_twice(cases: Sequence[Case], **how: Any) -> None:
    """Plan a step without gradients to add to, and one with."""
    module = deepcopy(cases[0].module)
    step = compile(module, cases[0].args, loss=cases[0].loss, **how)
    for p in module.parameters():
        p.grad = torch.zeros_like(p)
    step.plan(*cases[0].args)


def rows(name: str) -> Iterator[Row]:
    cases = batches(name)
    reference, _, seconds = trained(cases, None)
    yield {"net": name, "budget": "eager", "digest": reference, "equal": True, "seconds": seconds}
    for asked in BUDGETS:
        plain = {"net": name, "disk": False, **under(cases, asked, reference)}
        yield plain
        if kept := plain.get("host_bytes"):
            with tempfile.TemporaryDirectory() as folder:
                host = {"disk": folder, "host_budget": kept * 2 // 3}
                yield {"net": name, "disk": True, **under(cases, asked, reference, **host)}
    with tempfile.TemporaryDirectory() as folder:
        host = {"disk": folder, "policy": "vdnn_all"}
        host["host_budget"] = least(cases, "host_budget", **host)
        yield {"net": name, "disk": True, **under(cases, "100%", reference, **host)}


def under(cases: Sequence[Case], asked: str, reference: str, **host: Any) -> Row:
    """What comes of one budget. host: further arguments of `compile`"""
    try:
        budget: int | str = least(cases, **host) if asked == "least" else asked
        found: Any = trained(cases, lambda module: compile(module, loss=cases[0].loss, budget=budget, **host))
    except BudgetError as refused:
        return {"budget": asked, "refused": str(refused)}
    ours, step, seconds = found
    plans = {plan.capture.program.name: plan for plan in step.plans.values()}
    stored = sum(t.nbytes for plan in plans.values() for t in plan.schedule.disk_offset)
    return {
        "budget": asked, "policy": host.get("policy", "best"), "digest": ours,
        "budget_bytes": budget if asked == "least" else None,
        "equal": ours == reference, "seconds": seconds, "disk_bytes": stored,
        "host_bytes": max(plan.schedule.host_bytes for plan in plans.values()),
        "peak_bytes": {name: plan.peak for name, plan in plans.items()},
    }  # fmt: skip


def cells(row: Row) -> list[str]:
    on_disk = {None: "–", False: "no", True: "yes"}[row.get("disk")]
    if "refused" in row:
        return [row["net"], row["budget"], on_disk, "refused", *["–"] * (len(HEADINGS) - 4)]
    peaks = row.get("peak_bytes", {})
    budget = f"least: {mib(row['budget_bytes'])} MiB" if row.get("budget_bytes") else row["budget"]
    if row.get("policy") == "vdnn_all":
        budget = f"{budget}, vdnn_all"
    return [
        row["net"], budget, on_disk, ", ".join(peaks) or "–",
        ", ".join(map(mib, peaks.values())) or "–", mib(row.get("disk_bytes")), row["digest"],
        "yes" if row["equal"] else "NO", duration(row["seconds"]),
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    asked = parser(__doc__)
    asked.add_argument("--only", type=names, default=list(ONLY), metavar="NET,...", help=", ".join(NETS))
    args = asked.parse_args(argv)
    if unknown := [name for name in args.only if name not in NETS]:
        asked.error(f"no net {unknown[0]}; there are {', '.join(NETS)}")
    warnings.simplefilter("ignore")
    all_rows: list[Row] = []
    for name in args.only:
        for row in rows(name):
            all_rows.append(row)
            print("  ".join(cells(row)), file=sys.stderr, flush=True)
    ran = [row for row in all_rows if "refused" not in row]
    equal = sum(row["equal"] for row in ran)
    what = f"{STEPS} steps of AdamW, each on {BATCHES} batches, with clipping"
    notes = [f"{what}: {equal} of {len(ran)} rows equal eager's"]
    notes += [f"{row['net']}, {row['budget']}: {row['refused']}" for row in all_rows if "refused" in row]
    report("torch-training", HEADINGS, [cells(row) for row in all_rows], notes, all_rows, args)
    return 0 if equal == len(ran) else 1


if __name__ == "__main__":
    sys.exit(main())
