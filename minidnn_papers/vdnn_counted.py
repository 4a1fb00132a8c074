"""vDNN's accounting: memory and time of a plan as its paper counts them.

Memory is feature maps, gradient maps and workspaces over time, plus weights (under vDNN, only those of the feature
extraction). Weight gradients are in none of its bars. Only the feature extraction is timed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidnn.costs import Costs
from minidnn.jobs.compare import Result, simulated
from minidnn.jobs.solver_file import understand
from minidnn.layers import FACTS
from minidnn.memory.policies.papers.vdnn import feature_extraction
from minidnn.memory.schedule import Schedule
from minidnn.program import Pass, Program, Role, nbytes
from minidnn.programs.build import programs

FEATURE_MAPS = frozenset({Role.INPUT, Role.ACTIVATION})
GRADIENT_MAPS = frozenset({Role.GRADIENT})
WORKSPACES = frozenset({Role.WORKSPACE})


@dataclass(frozen=True, eq=False)
class Counted:
    """A policy's result, and its memory and time as the paper counts them."""

    result: Result
    most: float  # bytes
    average: float  # bytes
    seconds: float  # of the feature extraction

    @property
    def schedule(self) -> Schedule:
        return self.result.schedule

    @property
    def offloaded(self) -> int:
        """Bytes that leave in a step."""
        result = self.result.row()["offload_bytes"]
        assert isinstance(result, int)
        return result


def program(name: str, batch: int) -> Program:
    net, _, _ = understand(name, batch=batch)
    return programs(net, None, ("TRAIN",), facts=FACTS["vdnn2016"])["TRAIN"]


def counted(p: Program, policies: Iterable[str], costs: Costs) -> dict[str, Counted]:
    """{policy: its plan on `costs`, within their memory, as the paper counts it}"""
    return {r.policy: count(r) for r in simulated((p,), list(policies), costs)}


def count(r: Result) -> Counted:
    schedule = r.schedule
    features = {layer.name for layer in feature_extraction(schedule.program)}
    held = weights(schedule.program, features if r.policy.startswith("vdnn") else None)
    curve = schedule.curve(FEATURE_MAPS | GRADIENT_MAPS | WORKSPACES)
    took = np.array([s.end - s.start for s in r.trace.spans if s.stream == "compute"])
    managed = np.array([op.layer in features and op.during is not Pass.UPDATE for op in schedule.plan.order])
    # The mean over ops, not over seconds: this mean gives the paper's bars, to a per cent for (m).
    average = curve[managed].mean() if r.policy.startswith("vdnn") else curve.max()
    seconds = float(r.trace.seconds - took[~managed].sum())
    return Counted(r, float(curve.max()) + held, float(average) + held, seconds)


def weights(p: Program, of: set[str] | None) -> int:
    """Bytes of the weights that the layers `of` read; of all layers, if None."""
    owner = {t: op.layer for op in p.ops for t in op.reads if t.role is Role.PARAM}
    return nbytes(t for t, layer in owner.items() if of is None or layer in of)
