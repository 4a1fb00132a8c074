"""A step whose requests for memory get planned addresses: recorded once, packed, and then repeated."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidnn.errors import Failed
from minidnn.memory.packing import Problem, pack
from minidnn.memory.schedule import Compute, Prefetch, Schedule, aligned
from minidnn.sizes import text
from minidnn.torch.addresses.library import (
    FINE,
    IN_USE,
    NO_MEMORY,
    NOWHERE,
    OTHER_SIZE,
    OTHER_STREAM,
    TOO_FEW,
    Event,
    Left,
    Library,
)

Steps = Generator[Any, Any, Any]
UNIT = 512  # bytes: addresses are multiples of it, as PyTorch's own are
TIMES = 3  # recordings at most: libraries may ask for more at first


@dataclass(frozen=True, eq=False)
class Addresses:
    """The planned addresses of a step.

    sizes:   bytes of each request, in order
    places:  offsets in the arena, or NOWHERE: of what the step leaves to the caller, or nobody gives back
    made_by: the instruction of each
    half:    the number of requests before the loss
    arena:   bytes of the arena; beside: bytes of those that lie elsewhere
    """

    sizes: tuple[int, ...]
    places: tuple[int, ...]
    made_by: tuple[int, ...]
    half: int
    arena: int
    beside: int

    @classmethod
    def of(cls, events: Sequence[Event], half: int, left: Iterable[int]) -> Addresses:
        """The lowest addresses found for a recorded step. left: the requests that the caller got"""
        begins = {e.number: i for i, e in enumerate(events) if not e.ends}
        ends = {e.number: i for i, e in enumerate(events) if e.ends}
        requests = [events[i] for _, i in sorted(begins.items())]
        inside = [e.number for e in requests if e.number in ends and e.number not in set(left)]
        places = dict.fromkeys(begins, NOWHERE)
        arena = 0
        if inside:
            rows = [(begins[n], ends[n], aligned(requests[n].size, UNIT)) for n in inside]
            problem = Problem(*np.array(rows, np.int64).T)
            packed = pack(problem)
            assert not _overlap(problem, packed.offset), "packed bytes overlap"
            places |= zip(inside, packed.offset.tolist(), strict=True)
            arena = packed.height
        beside = sum(aligned(e.size, UNIT) for e in requests if places[e.number] == NOWHERE)
        return cls(
            tuple(e.size for e in requests), tuple(places[e.number] for e in requests),
            tuple(e.instruction for e in requests), half, arena, beside,
        )  # fmt: skip


def _overlap(problem: Problem, offset: np.ndarray) -> bool:
    """Whether two requests have the same bytes at the same time."""
    for i in range(len(problem)):
        rest = slice(i + 1, None)
        at_once = (problem.lo[rest] < problem.hi[i]) & (problem.lo[i] < problem.hi[rest])
        low = offset[rest] < offset[i] + problem.size[i]
        if (at_once & low & (offset[i] < offset[rest] + problem.size[rest])).any():
            return True
    return False


@dataclass(eq=False)
class Stepping:
    """A step's function with planned addresses: it is called as the function is.

    function: the step
    noted:    the step that says before each instruction which one it is (Library.note), for the recording
    stream:   gives the address of the compute stream
    """

    library: Library
    function: Callable[..., Steps]
    noted: Callable[..., Steps]
    schedule: Schedule
    device: int
    stream: Callable[[], int]
    addresses: Addresses | None = None
    recordings: int = 0
    _again: bool = False  # whether a request was not as planned, so that the next step is recorded
    _plan: int = 0
    _left: set[int] = field(default_factory=set)
    _half: int = 0

    def __call__(self, *given: Any) -> Steps:
        return self._recorded(*given) if self.addresses is None or self._again else self._planned(*given)

    @property
    def reserved(self) -> int | None:
        """Bytes that a step takes beside what the caller owns when it begins; None: not known yet."""
        return None if self.addresses is None else self.addresses.arena + self.addresses.beside

    # ---- a step that is recorded

    def _recorded(self, *given: Any) -> Steps:
        self.library.record()
        self._left, self._half, ended = set(), 0, False
        try:
            result = yield from _halves(self.noted(*given), self._enter, self._leave_recorded)
            ended = True
        finally:
            events = self.library.recorded()
            if ended:
                self._use(events)
        return result

    def _enter(self, half: int) -> None:
        if self.library.enter(self.device, self.stream(), None) != FINE:
            raise Failed("a step begins within another one: with planned addresses one runs at a time")

    def _leave_recorded(self, half: int, results: Sequence[Any] | None) -> None:
        left = self.library.leave(False)
        if half == 0:
            self._half = left.requests
        if results is not None and left.status != FINE:
            raise self._error(left)
        for t in results or ():
            self._left.add(self.library.number(t.untyped_storage().data_ptr()))

    def _use(self, events: Sequence[Event]) -> None:
        self.recordings, self._again = self.recordings + 1, False
        found = Addresses.of(events, self._half, self._left)
        self.library.drop_kept()
        status = self.library.reserve(self.device, found.arena)
        if status == IN_USE:
            raise Failed(
                "tensors of an earlier step are still in use, so the block of planned addresses cannot grow: keep no "
                "views of a step's tensors"
            )
        if status == NO_MEMORY:
            raise Failed(
                f"the GPU has no {text(found.arena)} in one piece for the planned addresses: give a smaller budget, or "
                "call minidnn.torch.planned_addresses() before anything else takes memory"
            )
        if self._plan:
            self.library.drop_plan(self._plan)
        self.addresses, self._plan = found, self.library.plan(found.sizes, found.places)

    # ---- a step that is planned

    def _planned(self, *given: Any) -> Steps:
        result = yield from _halves(self.function(*given), self._enter_planned, self._leave_planned)
        return result

    def _enter_planned(self, half: int) -> None:
        assert self.addresses is not None
        requests, middle = len(self.addresses.sizes), self.addresses.half
        first, end = (0, middle) if half == 0 else (middle, requests)
        if self.library.enter(self.device, self.stream(), self._plan, first, end) != FINE:
            raise Failed("a step begins within another one: with planned addresses one runs at a time")

    def _leave_planned(self, half: int, results: Sequence[Any] | None) -> None:
        left = self.library.leave(results is not None)
        if results is None or left.status == FINE:
            return
        error = self._error(left)
        if left.status != NO_MEMORY and self.recordings < TIMES:
            self._again = True  # all requests since then got addresses of their own
            return
        raise error

    def _error(self, left: Left) -> Failed:
        """What was not as planned, by the name of the op."""
        if left.status == NO_MEMORY:
            return Failed(f"the GPU has no {text(left.got)} left for {self._name(left.wrong)}: give a smaller budget")
        number = f"request {left.wrong + 1} of a planned step"
        wanted = self.addresses.sizes[left.wrong] if self.addresses and left.wrong < len(self.addresses.sizes) else 0
        what = {
            OTHER_SIZE: f"asked for {left.got} bytes, and {wanted} were planned",
            TOO_FEW: f"did not come, and {wanted} bytes were planned",
            IN_USE: f"asked for {left.got} bytes whose planned place is still in use: a tensor of the step was kept",
            OTHER_STREAM: f"asked for {left.got} bytes on another stream than the step's",
        }.get(left.status, f"asked for {left.got} bytes, and none were planned")
        return Failed(
            f"{self._name(left.wrong)}: {number} {what}; a step asks for memory differently each time, so do without "
            "minidnn.torch.planned_addresses()"
        )

    def _name(self, request: int) -> str:
        """The instruction of a request; of one too many, the last one's."""
        made_by = self.addresses.made_by if self.addresses is not None else ()
        i = made_by[min(request, len(made_by) - 1)] if made_by else -1
        x = self.schedule.instructions[i] if i >= 0 else None
        if isinstance(x, Compute):
            return x.op.name
        return f"the copy back of {x.residency.tensor.name}" if isinstance(x, Prefetch) else "the step's beginning"


def _halves(steps: Steps, enter: Callable[[int], None], leave: Callable[[int, Sequence[Any] | None], None]) -> Steps:
    """Run a step's halves, each between `enter` and `leave`, which gets the half's results, or None if it failed."""
    half, sent = 0, None
    try:
        while True:
            enter(half)
            results, ended = None, False
            try:
                try:
                    result = steps.send(sent)
                    results = [result]
                except StopIteration as end:
                    result, results, ended = end.value, end.value, True
            finally:
                leave(half, results)
            if ended:
                return result
            sent, half = (yield result), half + 1
    finally:
        steps.close()
