"""(b) Every policy ends with the same bytes as baseline with the same algorithms.

Each policy runs as a replayed graph and call by call, with all of the card's memory and under the smallest budget that
it can keep, in float32 and in 16 bits. It is also recorded how much memory besides the arena is taken. If
compute-sanitizer is installed, its memcheck watches our own kernels.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import numpy as np

from benchmarks.gpu_check.journal import ROOT
from benchmarks.gpu_check.place import RAM
from benchmarks.gpu_check.run import GROUP, Run, Wrong
from minidnn.backends.cuda.device import CudaDevice
from minidnn.costs import Choice, Costs, estimate, key
from minidnn.formats import usable
from minidnn.measuring.bench import each
from minidnn.memory.budget import BudgetError
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import Arrangement
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import Op, Program
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.training.session import Session
from tests.support.cpu_step import feed

STEPS = 4  # two bindings of the program, each run once before it is captured and replayed once
# The loss scale is so small that no step in float16 is skipped.
TRAIN = TrainSpec(SGD(momentum=0.9, weight_decay=5e-4), seed=1, loss_scale=256)
FIRST = ("vdnn_all", "superneurons", "vdnn_dyn", "vdnn_conv:p", "sqrt_n", "liveness", "layrub", "accudnn", "vdnn_pp")
SANITIZED = 40.0  # the most seconds for memcheck

Digest = dict[str, str]


def item(run: Run) -> None:
    """Every policy on one net in float32 and in bfloat16, then memcheck, then other nets and formats."""
    nets, place = run.place.policy_nets, run.place
    every_policy(run, nets[0], "float32")
    every_policy(run, nets[-1 if place.small else 1], "bfloat16")
    run.case("memcheck", lambda: memcheck(run), needs=20 if not place.small else 0)
    if not place.small:
        for name in nets[1:]:
            every_policy(run, name, "float32")
        every_policy(run, nets[0], "bfloat16")
        for name in nets[:2]:
            every_policy(run, name, "float32", tf32=False)
        every_policy(run, nets[1], "float16")


def every_policy(run: Run, name: str, form: str, tf32: bool = True) -> None:
    """Run a case per policy, so that the next run of the command can go on in the middle of a net."""
    subject = Subject(run, name, form, tf32)
    for policy in run.place.policies(FIRST):
        case = f"{name}, {form}{'' if form != 'float32' or tf32 else ', TF32 forbidden'}: {policy}"
        run.case(case, lambda p=policy: subject.same_bytes(p), needs=1 if run.place.small else 3)


class Subject:
    """A net in a format on a device, with baseline's bytes at the end for each choice of algorithms."""

    def __init__(self, run: Run, name: str, form: str, tf32: bool) -> None:
        self.net, self.device, self.form = run.place.net(f"tests/{name}"), run.place.device(tf32), usable(form)
        self.references: dict[tuple, Digest] = {}

    @cached_property
    def costs(self) -> Costs:
        """Estimated costs, without the plans that cuDNN refuses to run: those are found before anything is planned."""
        ops = [op for program in self.lowered for op in program.ops]
        tried = {key(op, a): (op, a) for op in ops for a in self.device.algorithms(op) if self.device.in_doubt(op, a)}
        for _ in each(self.device, tried):
            pass
        return estimate(self.device)

    @cached_property
    def lowered(self) -> list[Program]:
        return list(programs(self.net, TRAIN, ("TRAIN",), format=self.form, fuses=self.device.fuses).values())

    def same_bytes(self, policy: str) -> dict[str, Any]:
        """Compare the policy with baseline: as a graph and call by call, without a budget and under the smallest one.

        Raises Wrong if the bytes at the end differ."""
        budgets: list[int | None] = [None]
        try:
            arrange(self.lowered, policy, self.costs, 1)
        except BudgetError as error:
            budgets.append(error.smallest)
        wrong, cases, memory = [], 0, []
        for budget in budgets:
            reference = self._reference(arrange(self.lowered, policy, self.costs, budget))
            for graphs in (True, False):
                ends, taken = trained(self.net, self.device, policy, self.costs, budget, graphs, self.form)
                cases += 1
                memory.append(taken)
                if different := [name for name, end in ends.items() if reference[name] != end]:
                    what = f"budget {budget}, {'graph' if graphs else 'calls'}"
                    wrong.append(f"{what}: {', '.join(different[:3])} of {len(different)}")
        values = {
            "cases": cases, "steps": STEPS, "smallest_budget": budgets[-1],
            "most_beyond_arena_bytes": max(m["beyond_arena_bytes"] for m in memory),
            "most_taken_by_steps_bytes": max(m["taken_by_steps_bytes"] for m in memory),
        }  # fmt: skip
        if wrong:
            raise Wrong(
                f"{len(wrong)} of {cases} leave other bytes: {'; '.join(wrong[:5])}", {**values, "wrong": wrong}
            )
        return values

    def _reference(self, arrangement: Arrangement) -> Digest:
        """The digest of baseline's values at the end, with the algorithms that `arrangement` uses."""
        chosen = arrangement.schedules["TRAIN"].plan.algorithm
        taken = tuple(sorted((op.name, a.name, a.workspace) for op, a in chosen.items()))
        if taken not in self.references:
            costs = same_algorithms(self.costs, arrangement)
            self.references[taken], _ = trained(self.net, self.device, "baseline", costs, None, False, self.form)
        return self.references[taken]


def trained(
    net: Net, device: CudaDevice, policy: str, costs: Costs, budget: int | None, graphs: bool, form: str = "float32"
) -> tuple[Digest, dict[str, int]]:
    """Hashes of all persistent tensors and the losses after a few steps, and the memory taken besides the arena.

    Raises Wrong if a value is not finite, or a weight did not change."""
    device.graphs = graphs
    before = device.api.free_memory()
    with Session(
        net, TRAIN, ("TRAIN",), device=device, policy=policy, budget=budget, costs=costs, seed=1, format=form, ram=RAM
    ) as session:
        loaded = device.api.free_memory()
        first = {t.name: session.machine.get(t) for t in session.params.tensors}
        losses = []
        feed(session.machine, 0)
        for k in range(STEPS):
            following = partial(feed, session.machine, k + 1)
            if graphs:  # as a solver trains: it launches the next step when the loss has arrived
                session.launch("TRAIN", following)
            else:
                session.step("TRAIN", meanwhile=following)
            losses.append(session.objective("TRAIN"))
        session.machine.settle()
        after = device.api.free_memory()
        persistent = session.programs["TRAIN"].persistent
        values = {t.name: session.machine.get(t) for t in persistent} | {"losses": np.array(losses)}
        arena = session.machine.arena.nbytes  # the budget's bytes, if there is a budget
    if bad := [name for name, value in values.items() if not np.isfinite(value).all()]:
        raise Wrong(f"{policy}: {', '.join(bad[:3])} not finite")
    if still := [name for name, value in first.items() if name.endswith(".w") and np.array_equal(value, values[name])]:
        raise Wrong(f"{policy}: {', '.join(still[:3])} learned nothing, so that equal bytes would say nothing")
    digest = {name: sha256(np.ascontiguousarray(v).tobytes()).hexdigest() for name, v in values.items()}
    return digest, {"beyond_arena_bytes": before - loaded - arena, "taken_by_steps_bytes": loaded - after}


def same_algorithms(costs: Costs, arrangement: Arrangement) -> Costs:
    """Costs that offer only the algorithms that `arrangement` uses, so that any policy uses them; unlimited memory."""
    taken = {op.name: a for op, a in arrangement.schedules["TRAIN"].plan.algorithm.items()}

    def choices(op: Op) -> tuple[Choice, ...]:
        return (Choice(taken[op.name], costs.seconds(op, taken[op.name])),)

    return replace(costs, choices=choices, memory=1 << 62)


# ---- compute-sanitizer


def memcheck(run: Run) -> dict[str, Any]:
    """Run compute-sanitizer's memcheck on our own kernels (benchmarks/gpu_check/memchecked.py)."""
    tool = run.place.sanitizer
    if tool is None:
        return {"ran": False, "why": "compute-sanitizer is not on this machine"}
    command = [
        *tool,
        sys.executable,
        "-m",
        "benchmarks.gpu_check.memchecked",
        *(["--rehearse"] if run.place.small else []),
    ]
    limit = run.within(SANITIZED)
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **GROUP
    ) as child:
        try:
            output, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # the tool and the program that it runs
            output, _ = child.communicate()
            return {"ran": False, "why": f"not done in {limit:.0f} s", "output": output[-1500:]}
    values = {"ran": True, "rc": child.returncode, "tool": " ".join(tool), "output": output[-1500:]}
    if "not supported" in output and "ended well" not in output:
        return {**values, "ran": False, "why": "the tool refuses this machine"}
    if child.returncode or "ended well" not in output:
        raise Wrong(f"exit code {child.returncode}: {output[-600:]}", values)
    return values
