"""The judge of mutants for tests/support/cuda/races.py: slow and plain, without code in common with that check.

A capture is run on FakeApi, which refuses calls that CUDA refuses, and gives each work its direct predecessors. From
these follows for each work the set of all works that end before it begins (a bit each). Every pair of accesses is
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tests.support.cuda.fake import Event, FakeApi, Illegal, Work
from tests.support.cuda.recorder import Entry


def meet(a: Entry, b: Entry) -> bool:
    """Whether both entries touch a byte that at least one of them writes."""
    return any((w or v) and max(lo, at) < min(hi, end) for lo, hi, w in a.accesses for at, end, v in b.accesses)


class Judge:
    """Judges captures that have the same works in the same order as `graph`.

    beside: the accesses of the host while the graph is replayed."""

    def __init__(self, graph: Sequence[Entry], origin: int, beside: Sequence[Entry]) -> None:
        self.origin = origin
        self.works = [e for e in graph if e.kind == "work"]
        self.events = {e.event for e in graph if e.kind != "work"}
        self.needed = [0] * len(self.works)  # for each work, the bit set of works that must have ended when it begins
        for (i, a), (j, b) in combinations(enumerate(self.works), 2):
            if meet(a, b):
                self.needed[j] |= 1 << i
        self.always = any(meet(e, host) for host in beside for e in self.works)

    def broken(self, graph: Sequence[Entry]) -> str | None:
        """How an iteration could go wrong: "illegal" if CUDA refuses the capture, "race", or None."""
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
