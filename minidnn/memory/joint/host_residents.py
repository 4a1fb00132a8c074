"""Chooses the persistent tensors that live on the host: those that the bound's solution sends there, if the plan is
then quicker by enough to pay.

First comes a plan with all of them on the device. It is taken if the bound shows that no plan could be much quicker.
Otherwise there are four candidate sets: tensors whose share on the device is below 0.5 in the linear program's
solution; all with a share below 1; the optimizer's state; everything. The last two leave out tensors whose copy is
dominated by latency, unless no set keeps the budget without them. A bound for each set says what it could gain. If the
host has no room for a whole set, its largest tensors go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import inf

from minidnn.costs import Costs
from minidnn.memory.joint.bound import LowerBound, Relaxed
from minidnn.memory.joint.index import SMALL, Index
from minidnn.memory.joint.planner import NEAR, Candidate, Planner
from minidnn.memory.lowering.host import fixed
from minidnn.memory.plan import Plan
from minidnn.memory.schedule import aligned
from minidnn.program import Pass, Program, Tensor

PAYS = 1e-3  # relative gain in step time that a candidate set must bring
SHORT = 300  # ops: in longer programs only the most promising set is planned
PARTS = 0.5, 0.999  # tensors with a smaller share on the device form a candidate set


class HostResidents:
    """Plans one program on one device, with its persistent tensors on the device or the host, where that is quickest.

    All programs of a net then have them there (memory/planning.py). So a program that trains decides by seconds; TEST
    sends nothing to the host that it has room for.
    """

    def __init__(
        self,
        program: Program,
        costs: Costs,
        small: int = SMALL,
        tell: Callable[[str], object] = lambda text: None,
        search: bool = True,
        descend: bool = True,
    ) -> None:
        """`small`, `tell`, `search`: as for Planner. Raises as it does.

        descend: whether the plan of a short program ends in descents (descents.py)"""
        self.program, self.costs, self.small, self.tell, self.search = program, costs, small, tell, search
        self.descend = descend
        self.index = Index(program, costs, small)
        self.movable = program.movable if costs.staging is None else frozenset()  # a ring is there to pin less
        self.trains = any(op.during is Pass.BACKWARD for op in program.ops)
        self.bound = LowerBound(self.index)
        self._planners: dict[frozenset[Tensor], Planner] = {}

    def planner(self, host_resident: frozenset[Tensor]) -> Planner:
        """The planner of the program with these tensors on the host."""
        if host_resident not in self._planners:
            program = self.program.with_host_resident(host_resident)
            self._planners[host_resident] = Planner(program, self.costs, self.small, self.tell, search=self.search)
        return self._planners[host_resident]

    def within(self, budget: int, below: float = inf) -> Candidate | None:
        """The quickest plan found whose arena keeps the budget, if it takes less than `below` seconds; None: there is
        none, or none was found."""
        nowhere = frozenset[Tensor]()
        result = first = self._descended(self._with(nowhere, budget, below), budget)
        relaxed = self.bound.relaxed(budget)
        if relaxed is None:
            return None
        most = below if result is None else result.seconds / (1 + PAYS)
        sets = self._sets(relaxed, budget, most)
        for host_resident in sets if result is None or self.trains else ():
            self.tell(f"{len(host_resident)} tensors on the host")
            other = self._with(host_resident, budget, most)
            if other is not None:
                result, most = other, other.seconds / (1 + PAYS)
            if result is not None and len(self.program.ops) > SHORT:
                break
        if result is None and below == inf and self.most not in (nowhere, *sets):
            result = self._with(self.most, budget, below)
        result = result if result is first else self._descended(result, budget)
        if result is None:
            return None
        far = self.search and result.seconds > relaxed.bound.seconds * NEAR
        return replace(result, bound=(far and self.bound.closest(budget)) or relaxed.bound)

    def _with(self, host_resident: frozenset[Tensor], budget: int, below: float) -> Candidate | None:
        """The plan found with these tensors on the host, if it takes less than `below` seconds."""
        result = self.planner(host_resident).within(budget, below)
        return None if result is None else replace(result, plan=replace(result.plan, host_resident=host_resident))

    def _descended(self, found: Candidate | None, budget: int) -> Candidate | None:
        """A quicker plan with the same tensors on the host, if descents lead to one."""
        if found is None or not self.descend:
            return found
        host_resident = found.plan.host_resident
        result = self.planner(host_resident).descended(budget, found)
        return replace(result, plan=replace(result.plan, host_resident=host_resident))

    def leanest(self) -> Plan:
        """The plan with the lowest arena found, whatever its seconds: all lives on the host that can. Where the host
        has too little room for that, tensors that travel may need it more."""
        sets = dict.fromkeys((self.most, frozenset[Tensor]()) if self.most < self.movable else (self.most,))
        plans = [(self.planner(host_resident).leanest(), host_resident) for host_resident in sets]
        if len(plans) > 1:
            plans.sort(key=lambda found: self.planner(found[1]).arena(found[0], 0))
        return replace(plans[0][0], host_resident=plans[0][1])

    @cached_property
    def most(self) -> frozenset[Tensor]:
        """All tensors that can live on the host, up to its room."""
        return self._with_room(self.movable)

    def _with_room(self, tensors: frozenset[Tensor]) -> frozenset[Tensor]:
        """The tensors that the host has room for, the largest first."""
        if self.costs.host is None:
            return tensors
        left, result = self.costs.host - fixed(self.program), []
        for t in sorted(tensors, key=lambda t: (-t.nbytes, t.name)):
            if aligned(t.nbytes) <= left:
                result.append(t)
                left -= aligned(t.nbytes)
        return frozenset(result)

    def _updated(self) -> frozenset[Tensor]:
        """The tensors that only updates use: the optimizer's state."""
        used = {t for op in self.program.ops if op.during is not Pass.UPDATE for t in op.tensors}
        return self.movable - used

    def _small(self) -> frozenset[Tensor]:
        """The tensors whose copy is dominated by latency."""
        bandwidth = min(self.costs.bandwidth_out, self.costs.bandwidth_in)
        return frozenset(t for t in self.movable if t.nbytes < self.costs.latency * bandwidth)

    def _sets(self, relaxed: Relaxed, budget: int, seconds: float) -> list[frozenset[Tensor]]:
        """Sets of tensors with which a plan on the host may take less than `seconds`: the smaller first, but those last
        whose bound is above another's."""
        of_answer = (frozenset(t for t, on_device in relaxed.on_device.items() if on_device < part) for part in PARTS)
        small, updated = self._small(), self._updated()
        sets = *of_answer, updated - small, self.movable - small
        bounds: dict[frozenset[Tensor], float] = {}
        for host_resident in dict.fromkeys(self._with_room(s & self.movable) for s in sets):
            bound = self.planner(host_resident).bound.at(budget) if host_resident else None
            if bound is not None and bound.seconds < seconds:
                bounds[host_resident] = bound.seconds
        least = min(bounds.values(), default=0.0)
        return sorted(bounds, key=lambda host_resident: bounds[host_resident] > least * (1 + PAYS))
