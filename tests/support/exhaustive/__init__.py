"""The quickest plans of small programs, by trying all decisions: what `best` is compared with.

A decision is what becomes of a large tensor in a gap between two of its uses. It is kept; or it leaves for the host
after the one use and is back before the other; or its op runs again. Where ops that run again may need it within the
gap, it then remains, or goes once more after each. Small tensors stay, and each op has one algorithm.

The evaluator of joint planning says what decisions take (minidnn/memory/joint/evaluator.py); enumerate.c asks it for
each combination. A plan counts only if its arena keeps the budget, the proof accepts it, and the simulator says that it
is quicker than the best one known.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minidnn.compiled import Sources, portable
from minidnn.costs import Costs
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.joint.evaluator import KEEP, NEVER, OFFLOAD, RECOMPUTE, Evaluator
from minidnn.memory.joint.index import Index, overwrites
from minidnn.memory.lowering.asap import asap
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import Plan, complete
from minidnn.memory.proof.verify import verify
from minidnn.program import Program

QUICKER = 1 - 1e-9  # of a plan's seconds: less than this is quicker

_OPTIONS = portable("-O3", "-fPIC", "-ffp-contract=off")
SOURCES = Sources(Path(__file__).parent, "the enumeration, once: a second", _OPTIONS, lambda: ("x86-64",))

# The struct Search of enumerate.c, in its order: an array's kind is its dtype.
_SEARCH: tuple[tuple[Any, str], ...] = (
    (ctypes.c_void_p, "evaluate frame fate pin_from total"),
    (ctypes.c_int64, "gaps ops budgets"),
    (np.int32, "gap options_at"),
    (np.uint8, "option_fate option_pin"),
    (np.int32, "lo hi"),
    (np.int64, "size"),
    (np.float64, "run"),
    (np.int64, "budget"),
    (np.float64, "best"),
    (np.int64, "bytes"),
    (np.float64, "seconds"),
    (np.int32, "option"),
    (ctypes.c_int64, "depth left evaluated"),
)
_KIND = {name: kind for kind, names in _SEARCH for name in names.split()}
_PLAIN = (ctypes.c_void_p, ctypes.c_int64)

Option = tuple[int, int]  # a gap's fate and `pin_from`


class _Search(ctypes.Structure):
    _fields_ = [(name, kind if kind in _PLAIN else ctypes.c_void_p) for name, kind in _KIND.items()]


@dataclass(frozen=True)
class Quickest:
    """The quickest plan for a budget. plan: None: it is the one that was known; seconds: infinite: there is none"""

    seconds: float
    plan: Plan | None = None


class Exhaustive:
    """All combinations of decisions about one program on one device, whose costs should have one algorithm an op: about
    as many gaps as have at most `most` combinations, those of the largest tensors.

    gaps:      those that are decided about, as the evaluator numbers them; the largest tensors first
    options:   of each of these gaps
    plans:     how many combinations there are
    evaluated: how many of them were evaluated. The others take too many bytes, or too long, by a part of the decisions
    unplaced:  how many answers were quicker than the best plan, and had an arena that exceeded the budget
    """

    def __init__(self, program: Program, costs: Costs, most: int, pins: bool = True) -> None:
        """pins: whether a tensor that is back early may go once more"""
        self.program, self.costs = program, costs
        self.evaluator = ev = Evaluator(Index(program, costs))
        self._size = [int(ev.arrays["size"][ev.number[gap.tensor]]) for gap in ev.gaps]
        decided = np.flatnonzero(ev.may_offload | ev.may_recompute).tolist()
        self.gaps: list[int] = []
        self.options: list[list[Option]] = []
        self.plans = 1
        for i in sorted(decided, key=lambda i: -self._size[i]):
            options = self._options(i, pins)
            if self.plans * len(options) > most:
                break
            self.gaps.append(i)
            self.options.append(options)
            self.plans *= len(options)
        self.evaluated = self.unplaced = 0

    def _options(self, gap: int, pins: bool) -> list[Option]:
        ev = self.evaluator
        away = [OFFLOAD] * bool(ev.may_offload[gap]) + [RECOMPUTE] * bool(ev.may_recompute[gap])
        again = pins and self._may_be_needed_within(gap)
        return [(KEEP, 0), *((fate, pin) for fate in away for pin in (0, NEVER)[: 1 + again])]

    def _may_be_needed_within(self, gap: int) -> bool:
        """Whether an op that may run again within the gap reads its tensor, or writes it besides another."""
        ev, mine = self.evaluator, self.evaluator.gaps[gap]
        for its in (ev.gaps[other] for other in np.flatnonzero(ev.may_recompute).tolist()):
            meets = its.use > mine.last and mine.use > its.last
            if meets and its.tensor != mine.tensor and mine.tensor in ev.index.ops[ev.makers[its.tensor]].tensors:
                return True
        return False

    def quickest(self, known: Mapping[int, float]) -> dict[int, Quickest]:
        """The quickest plan for each budget. known: {budget: seconds of a plan of it; infinite: there is none}"""
        budgets = sorted(known)
        result = {budget: Quickest(known[budget]) for budget in budgets}
        arrays = self._arrays(budgets, [known[budget] * QUICKER for budget in budgets])
        search = self._search(arrays)
        library = SOURCES.load()
        library.next.restype, library.next.argtypes = ctypes.c_int64, (ctypes.c_void_p,)
        while (k := library.next(ctypes.addressof(search))) >= 0:
            plan = self.evaluator.plan()
            seconds = certified(self.program, self.costs, plan, budgets[k])
            if seconds is None:
                self.unplaced += 1
            elif seconds < result[budgets[k]].seconds:
                result[budgets[k]] = Quickest(seconds, plan)
                arrays["best"][k] = seconds * QUICKER
        self.evaluated += search.evaluated
        return result

    def _search(self, arrays: Mapping[str, np.ndarray]) -> _Search:
        ev = self.evaluator
        ev.pin_from[:] = 0
        ev.fate[:] = np.where([gap.last >= 0 for gap in ev.gaps], KEEP, ev.fate)
        frame = ev._frame
        search = _Search(
            evaluate=ctypes.cast(ev._library.evaluate, ctypes.c_void_p).value,
            frame=ctypes.addressof(frame),
            fate=ev.fate.ctypes.data,
            pin_from=ev.pin_from.ctypes.data,
            total=ctypes.addressof(frame) + type(frame).total.offset,
            gaps=len(self.gaps),
            ops=len(ev.index.ops),
            budgets=len(arrays["budget"]),
            left=len(arrays["budget"]),
        )
        for name, array in arrays.items():
            setattr(search, name, array.ctypes.data)
        return search

    def _arrays(self, budgets: Iterable[int], best: Iterable[float]) -> dict[str, np.ndarray]:
        ev, options = self.evaluator, [option for options in self.options for option in options]
        gaps = [ev.gaps[i] for i in self.gaps]
        inner = [gap.use < len(ev.index.ops) for gap in gaps]  # behind its last use no op need find a tensor
        options_at = np.cumsum([0, *map(len, self.options)])
        seconds = np.zeros(len(gaps) + 1)
        seconds[0] = ev.seconds.sum()
        values = {
            "gap": self.gaps,
            "options_at": options_at,
            "option_fate": [fate for fate, _ in options],
            "option_pin": [pin for _, pin in options],
            "lo": [gap.last + 1 for gap in gaps],
            "hi": [gap.use if ends else 0 for gap, ends in zip(gaps, inner, strict=True)],
            "size": [self._size[i] for i in self.gaps],
            "run": self._run_seconds(inner),
            "budget": [budget - ev.base for budget in budgets],
            "best": list(best),
            "bytes": self._own_bytes(),
            "seconds": seconds,
            "option": options_at[:-1],
        }
        return {name: np.array(value, _KIND[name]) for name, value in values.items()}

    def _own_bytes(self) -> list[int]:
        """Bytes that each op takes at least: its reads, its writes but those to a read's bytes, its workspace."""
        ev, result = self.evaluator, []
        for p, op in enumerate(ev.index.ops):
            shared = {write for _, write in overwrites(ev.index, p)}
            own = {t for t in op.tensors if t in ev.number and t not in shared}
            result.append(sum(int(ev.arrays["size"][ev.number[t]]) for t in own) + int(ev.workspace[p]))
        return result

    def _run_seconds(self, inner: Iterable[bool]) -> list[float]:
        """Seconds that each gap adds at least where its tensor is made anew. Of several that an op makes one counts."""
        ev = self.evaluator
        tensors = [ev.gaps[i].tensor for i in self.gaps]
        often = Counter(tensors)
        chief = {ev.makers.get(t): t for t in sorted(often, key=lambda t: often[t])}
        return [
            float(ev.seconds[ev.makers[t]]) if ends and t in ev.makers and chief[ev.makers[t]] == t else 0.0
            for t, ends in zip(tensors, inner, strict=True)
        ]


def tried(program: Program, costs: Costs, most: int) -> list[Exhaustive]:
    """Two ways to spend that many combinations: on decisions after which tensors may go once more, and on those of more
    gaps, without. One if both have the same gaps."""
    with_pins, without = (Exhaustive(program, costs, most, pins) for pins in (True, False))
    return [with_pins] if len(with_pins.gaps) == len(without.gaps) else [with_pins, without]


def certified(program: Program, costs: Costs, plan: Plan, budget: int) -> float | None:
    """The simulator's seconds of a plan that is lowered, placed and proved; None: its arena exceeds the budget."""
    schedule = place(lower(program, complete(program, costs, plan)), enough=budget)
    if schedule.arena > budget:
        return None
    schedules = schedule, asap(schedule)
    for each in schedules:
        verify(each)
    return min(simulate(each, costs).seconds for each in schedules)
