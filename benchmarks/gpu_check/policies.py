"""(b) Every policy leaves the bytes that baseline leaves when it takes the same algorithms: replayed as a graph and
call by call, with all the memory there is and under the smallest budget that it can keep. And the arena is the only
memory taken. Then compute-sanitizer's memcheck over a small net, where the tool is there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from benchmarks.gpu_check.journal import ROOT
from benchmarks.gpu_check.run import GROUP, Run, Wrong
from minidnn.autodiff import TrainSpec
from minidnn.backends.cuda.device import CudaDevice
from minidnn.costs import Choice, Costs, estimate
from minidnn.memory.arrange import BudgetError, arrange
from minidnn.memory.schedule import Arrangement
from minidnn.net import Net
from minidnn.program import Op
from minidnn.session import Session, programs
from tests.cpu_step import feed

POLICIES = ("baseline:p", "liveness:m", "liveness:p", "vdnn_all:m", "vdnn_all:p", "vdnn_conv:m", "vdnn_conv:p")
POLICIES += ("vdnn_dyn",)
STEPS = 4  # two bindings, each once before it is captured and once replayed
TRAIN = TrainSpec(momentum=0.9, weight_decay=5e-4, seed=1)
SANITIZED = 60.0  # seconds, at most

Digest = dict[str, str]


def item(run: Run) -> None:
    nets = run.place.policy_nets
    for form in run.place.formats:
        _allowed(run, nets, form, tf32=True)
    run.case("memcheck", lambda: memcheck(run), needs=20 if not run.place.small else 0)
    for form in run.place.formats:
        _allowed(run, nets[: 0 if run.place.small else 2], form, tf32=False)


def _allowed(run: Run, nets: Sequence[str], form: str, tf32: bool) -> None:
    for name in nets:
        net, device = run.place.net(f"tests/{name}"), run.place.device(tf32)
        case = f"{name}, {form}, TF32 {'allowed' if tf32 else 'forbidden'}"
        run.case(case, lambda n=net, d=device: every_policy(n, d), needs=5)


def every_policy(net: Net, device: CudaDevice) -> dict[str, Any]:
    costs = estimate(device)
    lowered = list(programs(net, TRAIN, ("TRAIN",)).values())
    references: dict[tuple, Digest] = {}
    wrong, cases, extra, late = [], 0, [], []
    for policy in POLICIES:
        budgets: list[int | None] = [None]
        try:
            arrange(lowered, policy, costs, 1)
        except BudgetError as error:
            budgets.append(error.smallest)
        for budget in budgets:
            arrangement = arrange(lowered, policy, costs, budget)
            taken = _algorithms(arrangement)
            if taken not in references:
                references[taken], _ = trained(
                    net, device, "baseline", same_algorithms(costs, arrangement), None, False
                )
            for graphs in (True, False):
                ends, memory = trained(net, device, policy, costs, budget, graphs)
                cases += 1
                extra.append(memory["beyond_arena_bytes"])
                late.append(memory["taken_by_steps_bytes"])
                if different := [name for name, end in ends.items() if references[taken][name] != end]:
                    what = f"{policy}, budget {budget}, {'graph' if graphs else 'calls'}"
                    wrong.append(f"{what}: {', '.join(different[:3])} of {len(different)}")
    values = {
        "cases": cases, "steps": STEPS, "references": len(references), "most_beyond_arena_bytes": max(extra),
        "most_taken_by_steps_bytes": max(late),
    }  # fmt: skip
    if wrong:
        raise Wrong(f"{len(wrong)} of {cases} leave other bytes: {'; '.join(wrong[:5])}", {**values, "wrong": wrong})
    return values


def trained(
    net: Net, device: CudaDevice, policy: str, costs: Costs, budget: int | None, graphs: bool
) -> tuple[Digest, dict[str, int]]:
    """Fingerprints of all that lives on after a few steps, and what memory was taken beside the arena."""
    device.graphs = graphs
    before = device.api.free_memory()
    with Session(net, TRAIN, ("TRAIN",), device=device, policy=policy, budget=budget, costs=costs, seed=1) as session:
        loaded = device.api.free_memory()
        for k in range(STEPS):
            feed(session.machine, k)
            session.step("TRAIN")
        after = device.api.free_memory()
        carried = session.programs["TRAIN"].carried
        values = {t.name: session.machine.get(t) for t in carried}
        arena = session.arrangement.arena
    if bad := [name for name, value in values.items() if not np.isfinite(value).all()]:
        raise Wrong(f"{policy}: {', '.join(bad[:3])} not finite")
    digest = {name: sha256(np.ascontiguousarray(v).tobytes()).hexdigest() for name, v in values.items()}
    return digest, {"beyond_arena_bytes": before - loaded - arena, "taken_by_steps_bytes": loaded - after}


def _algorithms(arrangement: Arrangement) -> tuple:
    taken = arrangement.schedules["TRAIN"].plan.algorithm
    return tuple(sorted((op.name, a.name, a.workspace) for op, a in taken.items()))


def same_algorithms(costs: Costs, arrangement: Arrangement) -> Costs:
    """Costs that know only what was taken there, so that any policy takes it, and no end of memory."""
    taken = {op.name: a for op, a in arrangement.schedules["TRAIN"].plan.algorithm.items()}

    def choices(op: Op) -> tuple[Choice, ...]:
        return (Choice(taken[op.name], costs.seconds(op, taken[op.name])),)

    return replace(costs, choices=choices, memory=1 << 62)


# ---- compute-sanitizer


def memcheck(run: Run) -> dict[str, Any]:
    """Few steps of a small net under it: policy and graph as they are trained with, in a process of its own."""
    tool = run.place.sanitizer
    if tool is None:
        return {"ran": False, "why": "compute-sanitizer is not on this machine"}
    command = [*tool, sys.executable, "-m", "benchmarks.gpu_check.small", *(["--rehearse"] if run.place.small else [])]
    limit = min(SANITIZED, run.left())
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **GROUP
    ) as child:
        try:
            output, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # the tool and what it runs
            output, _ = child.communicate()
            return {"ran": False, "why": f"not done in {limit:.0f} s", "output": output[-1500:]}
    values = {"ran": True, "rc": child.returncode, "tool": " ".join(tool), "output": output[-1500:]}
    if "not supported" in output and "ended well" not in output:
        return {**values, "ran": False, "why": "the tool refuses this machine"}
    if child.returncode or "ended well" not in output:
        raise Wrong(f"exit code {child.returncode}: {output[-600:]}", values)
    return values
