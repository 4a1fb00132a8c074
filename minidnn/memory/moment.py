"""A moment of a schedule: which bytes are live at one execution, and why each of them is there.

A budget is refused because of its worst moment. Most of the bytes that are live then cannot leave. The rest could
leave, but the plan keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from minidnn.costs import Costs
from minidnn.memory.plan import Point
from minidnn.memory.schedule import Buffer, Compute, Residency, Schedule
from minidnn.program import Algorithm, Role

ROLES = {
    Role.PARAM: "weights",
    Role.COPY: "weights",
    Role.PARAM_GRADIENT: "weight_gradients",
    Role.STATE: "optimizer_state",
    Role.INPUT: "feature_maps",
    Role.ACTIVATION: "feature_maps",
    Role.GRADIENT: "gradients",
    Role.EXTRA: "extra",
    Role.WORKSPACE: "workspace",
    Role.LABEL: "labels",
    Role.CONTROL: "labels",
}


class Why(Enum):
    """Why bytes are on the device at an execution. Only the last of these could leave."""

    USED = "in use"  # the op reads or writes them
    WORKSPACE = "workspace"  # the op's scratch
    PERSISTENT = "carried"  # weights and what belongs to them: they stay from step to step
    COPIED = "on the way"  # their copy to the host has not ended, or they came back before their use
    KEPT = "kept"  # an op reads them later; they could leave


@dataclass(frozen=True)
class Resident:
    """A tensor on the device, or several that share bytes.

    name: of the tensor that lies there; of the written one, if the op writes
    role: its purpose, one of the values of ROLES
    over: the tensor whose bytes the op overwrites with this one; it may be the same; empty if there is none
    read: whether the op reads it, and does not write there
    """

    name: str
    nbytes: int
    role: str
    why: Why
    over: str = ""
    read: bool = False

    def row(self) -> dict[str, Any]:
        """The values of a `Resident` (results/policies.py)."""
        result = {"name": self.name, "tensor_bytes": self.nbytes, "role": self.role, "stays": self.why.value}
        return {**result, "read": self.read, "over": self.over}


@dataclass(frozen=True)
class Moment:
    """The bytes that are live while one op runs.

    point:     position of the execution in the plan's order, of `points`
    residents: by Why, each of them by falling size
    algorithm: the op's, with its workspace
    leanest:   the op's algorithm of least workspace
    """

    program: str
    op: str
    point: Point
    points: int
    residents: tuple[Resident, ...]
    algorithm: Algorithm
    leanest: Algorithm

    @property
    def live(self) -> int:
        """All live bytes."""
        return sum(r.nbytes for r in self.residents)

    def of(self, why: Why) -> list[Resident]:
        """The residents that are there for this reason, largest first."""
        return [r for r in self.residents if r.why is why]

    def held(self, why: Why) -> int:
        """The bytes that are there for this reason."""
        return sum(r.nbytes for r in self.of(why))

    def row(self) -> dict[str, Any]:
        """The values of a `Worst` (results/policies.py)."""
        return {
            "program": self.program, "op": self.op, "number": self.point + 1, "ops": self.points,
            "live_bytes": self.live, "held_bytes": {why.value: self.held(why) for why in Why},
            "algorithm": self.algorithm.name, "workspace_bytes": self.algorithm.workspace,
            "leanest_algorithm": self.leanest.name, "leanest_workspace_bytes": self.leanest.workspace,
            "residents": [r.row() for r in self.residents],
        }  # fmt: skip


def worst(schedule: Schedule, limit: int, costs: Costs) -> Moment:
    """The execution with the most bytes that cannot leave, among those with more than `limit` live bytes: it shows best
    why the limit is too low. If no execution has so many, the live peak."""
    live = schedule.curve()
    stuck = np.array([sum(b.nbytes for b in _stuck(schedule, p)) for p in range(len(live))])
    over = np.flatnonzero(live > limit)
    return moment(schedule, int(over[np.argmax(stuck[over])]) if len(over) else schedule.peak_point, costs)


def moment(schedule: Schedule, point: Point, costs: Costs) -> Moment:
    """The moment of the execution at `point`."""
    compute = _compute(schedule, point)
    result = [_resident(b, point, compute) for b in schedule.live(point)]
    order = list(Why)
    result.sort(key=lambda r: (order.index(r.why), -r.nbytes))
    return Moment(
        schedule.program.name, compute.op.name, point, len(schedule.plan.order), tuple(result), compute.algorithm,
        costs.least_memory(compute.op),
    )  # fmt: skip


def placed(moment: dict[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """The values of a `Worst`, with the lines of the source that its op and its tensors come from."""
    residents = [{**r, "place": places.get(r["name"])} for r in moment["residents"]]
    return {**moment, "place": places.get(moment["op"]), "residents": residents}


def by_role(schedule: Schedule) -> dict[str, int]:
    """Bytes by role at the live peak; their sum is the live peak.

    A buffer that several tensors share counts for the tensor that it holds then, or held last."""
    result = dict.fromkeys(ROLES.values(), 0)
    for b in schedule.live(schedule.peak_point):
        result[ROLES[_holds(b, schedule.peak_point).tensor.role]] += b.nbytes
    return result


def _compute(schedule: Schedule, point: Point) -> Compute:
    result = schedule.instructions[schedule.points[point]]
    assert isinstance(result, Compute)
    return result


def _stuck(schedule: Schedule, point: Point) -> Iterator[Buffer]:
    """The buffers that the op at `point` uses and that are not of a persistent tensor, each once."""
    x = _compute(schedule, point)
    residencies = (*x.reads, *x.writes, *([] if x.workspace is None else [x.workspace]))
    return (b for b in dict.fromkeys(s.buffer for s in residencies) if not b.persistent)


def _holds(b: Buffer, point: Point) -> Residency:
    """The residency that the buffer holds at `point`, or held last."""
    begun = [s for s in b.residencies if s.lo <= point]
    return max(begun, key=lambda s: (s.hi > point, s.lo)) if begun else b.residencies[0]


def _resident(b: Buffer, point: Point, compute: Compute) -> Resident:
    read, written = (
        [s.tensor.name for s in residencies if s.buffer is b] for residencies in (compute.reads, compute.writes)
    )
    holds = _holds(b, point)
    if b.persistent:
        return Resident(holds.tensor.name, b.nbytes, ROLES[holds.tensor.role], Why.PERSISTENT)
    if compute.workspace is not None and compute.workspace.buffer is b:
        return Resident("scratch", b.nbytes, "workspace", Why.WORKSPACE)
    role = ROLES[holds.tensor.role]
    if written:
        return Resident(written[0], b.nbytes, role, Why.USED, over=read[0] if read else "")
    if read:
        return Resident(read[0], b.nbytes, role, Why.USED, read=True)
    why = Why.COPIED if _on_the_way(holds, point) else Why.KEPT
    return Resident(b.name or holds.tensor.name, b.nbytes, role, why)


def _on_the_way(s: Residency, point: Point) -> bool:
    """Whether the residency's copy out has been issued, or its copy back is not awaited yet."""
    leaves = s.leaves is not None and s.leaves.offload_at is not None and s.leaves.offload_at <= point
    comes = s.arrives is not None and s.arrives.needed_at is not None and point < s.arrives.needed_at
    return s.lo <= point < s.hi and (leaves or comes)
