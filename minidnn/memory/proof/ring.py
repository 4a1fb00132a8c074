"""The part of the proof about the pinned ring, whose bytes are used again and again within a step.

A range of the ring holds the number last written to it, and remembers its writer and its readers since. The next writer
must come after all of these, and a reader after the writer. A write spoils every staging slot that it overlaps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from minidnn.memory.schedule import ALIGNMENT, StagingSlot, Stream


@dataclass(frozen=True)
class _Range:
    lo: int
    hi: int
    # the staging slot that it holds whole; None: part of the staging slot was overwritten
    staging_slot: StagingSlot | None
    number: Hashable
    written: tuple[int, Stream]
    reads: dict[Stream, int] = field(default_factory=dict)


class Ring:
    """The ring's ranges at one instruction. `write` and `read` return an error as text, or None."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.ranges: list[_Range] = []  # by offset, without overlap

    def _over(self, lo: int, hi: int) -> tuple[int, int]:
        """Indices [i, j) of the ranges that overlap these bytes."""
        i = bisect_right(self.ranges, lo, key=lambda r: r.lo) - 1
        if i < 0 or self.ranges[i].hi <= lo:
            i += 1
        return i, bisect_left(self.ranges, hi, key=lambda r: r.lo)

    def write(
        self, slot: StagingSlot, number: Hashable, index: int, stream: Stream, clock: Mapping[Stream, int]
    ) -> str | None:
        lo, hi = slot.at, slot.at + slot.nbytes
        if lo < 0 or lo % ALIGNMENT or hi > self.nbytes:
            return f"{slot.tensor.name} lies at [{lo}, {hi}) of a ring of {self.nbytes} bytes"
        if slot.nbytes < slot.tensor.nbytes:
            return f"{slot.tensor.name} has {slot.tensor.nbytes} bytes, its staging slot {slot.nbytes}"
        i, j = self._over(lo, hi)
        for r in self.ranges[i:j]:
            for other, before in ((r.written[1], r.written[0]), *r.reads.items()):
                if clock[other] < before:
                    return (
                        f"{slot.tensor.name} takes bytes of the ring that instruction {before} ({other}) may still use"
                    )
        new = [_Range(lo, hi, slot, number, (index, stream))]
        if i < j and self.ranges[i].lo < lo:
            new.insert(0, replace(self.ranges[i], hi=lo, staging_slot=None))
        if i < j and self.ranges[j - 1].hi > hi:
            new.append(replace(self.ranges[j - 1], lo=hi, staging_slot=None))
        self.ranges[i:j] = new
        return None

    def read(
        self, slot: StagingSlot, index: int, stream: Stream, clock: Mapping[Stream, int]
    ) -> tuple[Hashable, str | None]:
        """(the number read, an error as text or None)."""
        i, j = self._over(slot.at, slot.at + slot.nbytes)
        result = self.ranges[i] if j == i + 1 else None
        if (
            result is None
            or result.staging_slot is None
            or (result.staging_slot.tensor, result.lo, result.hi) != (slot.tensor, slot.at, slot.at + slot.nbytes)
        ):
            return None, f"the ring does not hold {slot.tensor.name} at {slot.at}"
        if clock[result.written[1]] < result.written[0]:
            return None, f"{slot.tensor.name} races in the ring with instruction {result.written[0]}, which writes it"
        result.reads[stream] = index
        return result.number, None
