"""Runners for a comparison: a solver file's training on its data, or a net's forward and backward on random batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from minidnn.costs import Costs
from minidnn.jobs.setting import Setting
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.trace import Trace
from minidnn.nets.net import Net
from minidnn.program import Role
from minidnn.schema import SolverParameter
from minidnn.study.run import Open, Runner
from minidnn.training.session import Session
from minidnn.training.solver import Solver


class _Trained:
    """A Solver as a Runner: it trains on the solver file's data."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.arrangement = solver.session.arrangement

    def step(self, trace: bool = False) -> Trace | None:
        return self.solver.step(trace=trace).trace

    def values(self) -> Mapping[str, np.ndarray]:
        return self.solver.values()

    def stored(self) -> int:
        return sum(self.solver.machine.stored("TRAIN").values())

    def close(self) -> None:
        self.solver.close()


class _Differentiated:
    """A net without a solver as a Runner: forward and backward on random batches, without updates."""

    def __init__(self, session: Session, seed: int) -> None:
        self.session, self.machine = session, session.machine
        self.arrangement = session.arrangement
        self.program = session.programs["TRAIN"]
        self.random = np.random.default_rng(seed)
        self.classes = {
            op.reads[1]: op.reads[0].shape[1]
            for op in self.program.ops
            if op.kind in ("softmax_loss.forward", "accuracy.forward", "pointwise_loss.forward")
        }

    def step(self, trace: bool = False) -> Trace | None:
        for t in self.program.inputs:
            if t.role is Role.INPUT:
                value: np.ndarray = self.random.standard_normal(t.shape, np.float32)
            elif t.role is Role.LABEL:
                value = self.random.integers(0, self.classes.get(t, 2), t.shape)
            else:
                value = np.zeros(t.shape)
            self.machine.write(t, value.astype(t.dtype), "TRAIN")
        return self.machine.step("TRAIN", trace=trace)

    def values(self) -> Mapping[str, np.ndarray]:
        live = {t.name: self.machine.get(t) for t in (*self.program.carried, *self.program.hosted)}
        return live | {t.name: self.machine.read(t, "TRAIN") for t in self.program.outputs}

    def stored(self) -> int:
        return sum(self.machine.stored("TRAIN").values())

    def close(self) -> None:
        self.session.close()


def solver_runner(
    source: str | Path | SolverParameter | Net,
    batch: int | None,
    setting: Setting,
    ignore_unknown: bool = False,
) -> Open:
    """A function that opens the training of a solver under a policy, each time from the same start."""

    def open_runner(policy: str, costs: Costs, budget: int | None) -> Runner:
        def opened(under: Setting) -> Runner:
            return _Trained(Solver(source, batch=batch, setting=under, ignore_unknown=ignore_unknown))

        return _under(opened, setting, policy, costs, budget)

    return open_runner


def net_runner(net: Net, setting: Setting) -> Open:
    """A function that opens a net under a policy, to run forward and backward each time on the same random batches."""

    def open_runner(policy: str, costs: Costs, budget: int | None) -> Runner:
        def opened(under: Setting) -> Runner:
            return _Differentiated(Session(net, None, ("TRAIN",), setting=under), setting.seed)

        return _under(opened, setting, policy, costs, budget)

    return open_runner


def _under(
    opened: Callable[[Setting], Runner], setting: Setting, policy: str, costs: Costs, budget: int | None
) -> Runner:
    """What `opened` opens with `setting` under this policy, these costs and this budget. The staging is that of
    `costs`. There are no workers: those of the second policy would be forks of a process with the first one's arena.

    A policy that does not keep the host budget runs without it."""
    under = replace(setting, policy=policy, costs=costs, budget=budget, staging=None, workers=0)
    try:
        return opened(under)
    except BudgetError as refused:
        if not refused.host:
            raise
    return opened(replace(under, host_budget=None))
