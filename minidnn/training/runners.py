"""Runners for a comparison: a solver file's training on its data, or a net's forward and backward on random batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from minidnn.costs import Costs
from minidnn.jobs.job import Job
from minidnn.jobs.nets import Nets
from minidnn.jobs.setting import Setting
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.trace import Trace
from minidnn.memory.planning import ENDLESS
from minidnn.program import Role
from minidnn.training.comparison import Open, Runner
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
    """A net without a solver as a Runner: forward and backward on random batches, without updates; forward alone of a
    net without a loss."""

    def __init__(self, session: Session, seed: int, name: str) -> None:
        self.session, self.machine, self.name = session, session.machine, name
        self.arrangement = session.arrangement
        self.program = session.programs[name]
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
            self.machine.write(t, value.astype(t.dtype), self.name)
        return self.machine.step(self.name, trace=trace)

    def values(self) -> Mapping[str, np.ndarray]:
        live = {t.name: self.machine.get(t) for t in (*self.program.persistent, *self.program.host_resident)}
        return live | {t.name: self.machine.read(t, self.name) for t in self.program.outputs}

    def stored(self) -> int:
        return sum(self.machine.stored(self.name).values())

    def close(self) -> None:
        self.session.close()


def runner(job: Job, batch: int | None = None) -> Open:
    """A function that opens a job for running under a policy, each time from the same start: a solver trains on its
    data, and a net without one runs forward and backward on random batches.

    batch: samples, instead of the job's"""
    setting = replace(job.setting, ranks=None, link=None, global_batch=None)
    nets = _untested(job.nets if batch is None else job.nets.with_batch(batch))

    def opened(under: Setting) -> Runner:
        if nets.solver is not None:
            return _Trained(Solver(nets, batch=batch or job.asked, setting=under))
        name = job.train.name
        return _Differentiated(Session(nets.net, None, (name,), setting=under), setting.seed, name)

    def open_runner(policy: str, costs: Costs, budget: int | None) -> Runner:
        return _under(opened, setting, policy, costs, budget)

    return open_runner


def _untested(nets: Nets) -> Nets:
    """The nets of steps alone, which keep no best test."""
    if (p := nets.solver) is None:
        return nets
    own = p.minidnn.model_copy(update={"keep_best": None, "patience": None})
    return nets._replace(solver=p.model_copy(update={"minidnn": own}))


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
    return opened(replace(under, host_budget=ENDLESS))
