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
from minidnn.memory.joint.facts import Facts
from minidnn.memory.lowering.placement import homes
from minidnn.memory.parts.regions import candidates
from minidnn.program import Program


class Family:
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
            self._bounds[program] = LowerBound(Facts(program, self._costs))
        return self._bounds[program]

    def _all(self) -> list[LowerBound]:
        return [self._bound(program) for program in (self._whole, *self._parted)]

    def at(self, budget: int) -> Bound | None:
        """The bound for `budget` bytes; None: no plan of the family keeps it."""
        return _lowest([bound.at(budget) for bound in self._all()])

    def closest(self, budget: int) -> Bound | None:
        """`at`, closer where programs are short (LowerBound.closest)."""
        found: Bound | None = None
        far = [(at.seconds, bound) for bound in self._all() if (at := bound.at(budget)) is not None]
        for seconds, bound in sorted(far, key=lambda one: one[0]):
            if found is not None and seconds >= found.seconds:
                break
            found = _lowest([found, bound.closest(budget)])
        return found

    def least(self, enough: int = 0) -> int:
        """Bytes: no plan of the family keeps a budget below this. Each candidate needs fewer bytes than those before:
        the last one is asked, and the program as a whole. If that needs at most `enough`, no other is asked."""
        found = self._bound(self._whole).least()
        last = () if found <= enough else self._parted[-1:]
        return min([found, *(self._bound(made).least() for made in last)])


def _lowest(found: Sequence[Bound | None]) -> Bound | None:
    return min((bound for bound in found if bound is not None), key=lambda bound: bound.seconds, default=None)


def least_budget(programs: Sequence[Program], costs: Costs, enough: int = 0, parts: bool = True) -> int:
    """Bytes: no plan of the family keeps a budget below this, with these programs in one arena. It may be more than the
    least such number if it is at most `enough`.

    parts: False: no plan of ops as a whole does. That number grows with the batch; the other depends on its divisors.
    Raises linear.NoSolver without the package highspy.
    """
    programs = [p.hosting(p.movable) for p in programs]
    base = homes(*programs).nbytes
    more = {p: base - homes(p).nbytes for p in programs}  # of the arena, for other programs
    return max(Family(p, costs, parts).least(enough - more[p]) + more[p] for p in programs)
