"""The lower bound over a program and its candidates in parts (memory/parts/regions.py): all that `best` plans.

Each candidate is a program with a bound of its own (bound.py). No plan of any of them is below the lowest of these. So
none is that runs ops as a whole. NAME@N may plan another program, for an N that is no power of two, or a large one.
Where its plan is compared with a bound, this program is one `more` of the variants.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from minidnn.costs import Costs
from minidnn.memory.joint.bound import Bound, LowerBound
from minidnn.memory.joint.index import Index, shortest
from minidnn.memory.lowering.placement import persistent_layout
from minidnn.memory.parts import parted
from minidnn.memory.parts.regions import candidates, needed
from minidnn.program import Program, SplitRegion

CLOSE = 1e-3  # part by which the least bytes may be fewer than those of the closest bound

Regions = tuple[SplitRegion, ...]


@dataclass(frozen=True, eq=False)
class _Variant:
    """A program in parts, with seconds and bytes that no plan of it is below."""

    program: Program
    seconds: float
    needs: int


class ProgramVariants:
    """The bounds of one program on one device, whether its ops run as a whole or in parts."""

    def __init__(self, program: Program, costs: Costs, parts: bool = True) -> None:
        """parts: False: ops run as a whole only. Raises linear.NoSolver without the package highspy."""
        self._whole, self._costs, self._parts = program, costs, parts
        self._bounds: dict[Regions, LowerBound] = {}
        self._more: dict[Regions, _Variant] = {}

    @cached_property
    def _candidates(self) -> dict[Regions, _Variant]:
        return {made.parts: self._variant(made) for made in candidates(self._whole)} if self._parts else {}

    def _variant(self, made: Program) -> _Variant:
        return _Variant(made, shortest(made, self._costs), needed(made))

    def _bound(self, program: Program) -> LowerBound:
        if program.parts not in self._bounds:
            self._bounds[program.parts] = LowerBound(Index(program, self._costs))
        return self._bounds[program.parts]

    def _with(self, more: Collection[Regions]) -> list[_Variant]:
        """The candidates, and the program in these parts."""
        for regions in more:
            if regions and regions not in self._candidates and regions not in self._more:
                self._more[regions] = self._variant(parted(self._whole, regions))
        return [*self._candidates.values(), *(self._more[regions] for regions in more if regions in self._more)]

    def at(self, budget: int, more: Collection[Regions] = ()) -> Bound | None:
        """The bound for `budget` bytes; None: no plan of the plan space keeps it.

        more: parts other than the candidates' in which the program may run"""
        return self._lowest(budget, more, closest=False)

    def closest(self, budget: int, more: Collection[Regions] = ()) -> Bound | None:
        """`at`, closer where programs are short (LowerBound.closest)."""
        return self._lowest(budget, more, closest=True)

    def _lowest(self, budget: int, more: Collection[Regions], closest: bool) -> Bound | None:
        whole = self._bound(self._whole)
        result = whole.closest(budget) if closest else whole.at(budget)
        for made in sorted(self._with(more), key=lambda made: made.seconds):
            most = inf if result is None else result.seconds
            if made.seconds >= most:
                break
            found = self._bound(made.program).at(budget) if made.needs <= budget else None
            if closest and found is not None and found.seconds < most:
                found = self._bound(made.program).closest(budget)
            if found is not None and found.seconds < most:
                result = found
        return result

    def least(self, enough: int = 0) -> int:
        """Bytes: no plan of the plan space keeps a budget below this. If the program as a whole needs at most `enough`,
        no other is asked."""
        result = self._bound(self._whole).least()
        for made in () if result <= enough else sorted(self._candidates.values(), key=lambda made: made.needs):
            if made.needs >= result * (1 - CLOSE):
                return min(result, made.needs)
            result = min(result, self._bound(made.program).least())
        return result


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
