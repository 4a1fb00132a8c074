"""The lower bound over a program and its candidates in parts (memory/parts/regions.py): all that `best` plans.

Each candidate is a program with a bound of its own (bound.py). No plan of any of them is below the lowest of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.costs import Costs
from minidnn.memory.joint.bound import Bound, LowerBound
from minidnn.memory.joint.facts import Facts
from minidnn.memory.lowering.placement import homes
from minidnn.memory.parts.regions import candidates
from minidnn.program import Program


class Family:
    """The bounds of one program on one device, whether its ops run as a whole or in parts."""

    def __init__(self, program: Program, costs: Costs) -> None:
        """Raises linear.NoSolver without the package highspy."""
        self._whole = LowerBound(Facts(program, costs))
        self._parts = [LowerBound(Facts(made, costs)) for made in candidates(program)]

    def at(self, budget: int) -> Bound | None:
        """The bound for `budget` bytes; None: no plan of the family keeps it."""
        return _lowest([bound.at(budget) for bound in (self._whole, *self._parts)])

    def closest(self, budget: int) -> Bound | None:
        """`at`, closer where ops run as a whole (LowerBound.closest)."""
        return _lowest([self._whole.closest(budget), *(bound.at(budget) for bound in self._parts)])

    def least(self) -> int:
        """Bytes: no plan of the family keeps a budget below this."""
        return min(bound.least() for bound in (self._whole, *self._parts))


def _lowest(found: Sequence[Bound | None]) -> Bound | None:
    return min((bound for bound in found if bound is not None), key=lambda bound: bound.seconds, default=None)


def least_budget(programs: Sequence[Program], costs: Costs) -> int:
    """Bytes: no plan of the family keeps a budget below this, with these programs in one arena.

    Raises linear.NoSolver without the package highspy.
    """
    programs = [p.hosting(p.movable) for p in programs]
    base = homes(*programs).nbytes
    return max(Family(p, costs).least() + base - homes(p).nbytes for p in programs)
