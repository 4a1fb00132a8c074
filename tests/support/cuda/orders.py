"""The judge of mutants for tests/support/cuda/races.py: slow and plain, and no code shared with the check.

A capture is enacted on FakeApi, which refuses what CUDA refuses and gives each work those that it must be behind. All
that is behind all that is one set of works per work (a bit each). Every pair of accesses is compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tests.support.cuda.fake import Event, FakeApi, Illegal, Work
from tests.support.cuda.recorder import Entry


def meet(a: Entry, b: Entry) -> bool:
    """Whether both touch a byte that one of them writes."""
    return any((w or v) and max(lo, at) < min(hi, end) for lo, hi, w in a.accesses for at, end, v in b.accesses)


class Judge:
    """Of all captures with the same works in the same order as this one. `beside`: what the host touches meanwhile."""

    def __init__(self, graph: Sequence[Entry], origin: int, beside: Sequence[Entry]) -> None:
        self.origin = origin
        self.works = [e for e in graph if e.kind == "work"]
        self.events = {e.event for e in graph if e.kind != "work"}
        self.needed = [0] * len(self.works)  # of each work, those before it that it must be behind
        for (i, a), (j, b) in combinations(enumerate(self.works), 2):
            if meet(a, b):
                self.needed[j] |= 1 << i
        self.always = any(meet(e, host) for host in beside for e in self.works)

    def broken(self, graph: Sequence[Entry]) -> str | None:
        """How an iteration could go wrong: "illegal", where CUDA refuses the capture, or "race"."""
        assert [e for e in graph if e.kind == "work"] == self.works
        api = FakeApi()
        outside = Work(0, 0, None, (), "what an event was recorded behind before the capture", done=True)
        api.events = {event: Event(False, (outside,)) for event in self.events}
        number: dict[Work, int] = {}
        try:
            api.begin_capture(self.origin)
            for e in graph:
                if e.kind == "record":
                    api.record(e.event, e.stream)
                elif e.kind == "wait":
                    api.wait(e.stream, e.event)
                elif e.kind == "tell":
                    api.tell(e.event, e.stream)
                else:
                    number[api.enqueue(e.stream, None, "work")] = len(number)
            api.end_capture(self.origin)
        except Illegal:
            return "illegal"
        behind: dict[Work, int] = {}
        for work in api.log:
            behind[work] = 0
            for b in work.before:
                behind[work] |= behind[b] | (1 << number[b] if b in number else 0)
        unordered = any(self.needed[k] & ~behind[work] for work, k in number.items())
        return "race" if unordered or self.always else None
