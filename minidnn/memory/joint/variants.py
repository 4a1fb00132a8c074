"""The lower bound over a program and its candidates in parts (memory/parts/regions.py): all that `best` plans.

Each candidate is a program with a bound of its own (bound.py). No plan of any of them is below the lowest of these. So
none is that runs ops as a whole. NAME@N may be: its program is another, and is a candidate only if it needs fewer
bytes, workspaces apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from minidnn.costs import Costs
from minidnn.memory.joint.bound import Bound, LowerBound
from minidnn.memory.joint.index import Index
from minidnn.memory.lowering.placement import persistent_layout
from minidnn.memory.parts.regions import candidates
from minidnn.program import Program


class ProgramVariants:
    """The bounds of one program on one device, whether its ops run as a whole or in parts."""

    def __init__(self, program: Program, costs: Costs, parts: bool = True) -> None:
        """parts: False: ops run as a whole only. Raises linear.NoSolver without the package highspy."""
        self._whole, self._costs, self._parts = program, costs, parts
        self._bounds: dict[Program, LowerBound] = {}

    @cached_property
    def _parted(self) -> list[Program]:
        return list(candidates(self._whole)) if self._parts else []

    def _bound(self, program: Program) -> LowerBound:
        if program not in self._bounds:
            self._bounds[program] = LowerBound(Index(program, self._costs))
        return self._bounds[program]

    def _all(self) -> list[LowerBound]:
        return [self._bound(program) for program in (self._whole, *self._parted)]

    def at(self, budget: int) -> Bound | None:
        """The bound for `budget` bytes; None: no plan of the plan space keeps it."""
        return _lowest([bound.at(budget) for bound in self._all()])

    def closest(self, budget: int) -> Bound | None:
        """`at`, closer where programs are short (LowerBound.closest)."""
        result: Bound | None = None
        far = [(at.seconds, bound) for bound in self._all() if (at := bound.at(budget)) is not None]
        for seconds, bound in sorted(far, key=lambda one: one[0]):
            if result is not None and seconds >= result.seconds:
                break
            result = _lowest([result, bound.closest(budget)])
        return result

    def least(self, enough: int = 0) -> int:
        """Bytes: no plan of the plan space keeps a budget below this. Each candidate needs fewer bytes than those
        before: the last one is asked, and the program as a whole. If that needs at most `enough`, no other is asked."""
        result = self._bound(self._whole).least()
        last = () if result <= enough else self._parted[-1:]
        return min([result, *(self._bound(made).least() for made in last)])


def _lowest(bounds: Sequence[Bound | None]) -> Bound | None:
    return min((bound for bound in bounds if bound is not None), key=lambda bound: bound.seconds, default=None)


def least_budget(programs: Sequence[Program], costs: Costs, enough: int = 0, parts: bool = True) -> int:
    """Bytes: no plan of the plan space keeps a budget below this, with these programs in one arena. It may be more than
    the least such number if it is at most `enough`.

    parts: False: no plan of ops as a whole does. That number grows with the batch; the other depends on its divisors.
    Raises linear.NoSolver without the package highspy.
    """
    programs = [p.with_host_resident(p.movable) for p in programs]
    base = persistent_layout(*programs).nbytes
    more = {p: base - persistent_layout(p).nbytes for p in programs}  # of the arena, for other programs
    return max(ProgramVariants(p, costs, parts).least(enough - more[p]) + more[p] for p in programs)
