"""The arena's history as PyTorch's memory viewer reads it: a snapshot like that of `torch.cuda.memory._snapshot()`.

The arena is one segment, each buffer an allocation at its real offset. Policies are devices, in their order. PyTorch
has frames of the code that allocated. Here the first frames name the tensors, with their layers as files. The last one
has the number of the instruction in `minidnn plan --listing`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

from minidnn.memory.schedule import Alloc, Buffer, Free, aligned
from minidnn.report.step import Step

Entry = dict[str, Any]

BASE = 1 << 40  # address of the arena's first byte: what the viewer prints behind the 1 is the offset, in hexadecimal
UNKNOWN = "unknown"  # the category that the viewer wants to see where there are any; it colours by them
SHOWN = 4  # tensors of one buffer that are named at most
PROTOCOL = 4  # of pickle: the viewer in a browser reads 2 to 4, and of their opcodes some


def snapshot(steps: Sequence[Step]) -> Entry:
    """The snapshot: dicts, lists, texts and numbers. A step's place is the number of its device."""
    devices = [_Device(number, step) for number, step in enumerate(steps)]
    return {
        "segments": [d.segment() for d in devices],
        "device_traces": [list(d.entries()) for d in devices],
        "allocator_settings": {},
        "external_annotations": [],
    }


def pickled(steps: Sequence[Step]) -> bytes:
    """The snapshot as a file."""
    return pickle.dumps(snapshot(steps), protocol=PROTOCOL)


class _Device:
    def __init__(self, number: int, step: Step) -> None:
        self.number, self.step, self.schedule, self.trace = number, step, step.schedule, step.trace
        ops = self.schedule.program.ops
        read = {t: op.layer for op in reversed(ops) for t in op.reads}
        self.layer = read | {t: op.layer for op in reversed(ops) for t in op.writes}  # of the first op that writes it

    def entries(self) -> Iterator[Entry]:
        """The events in order: the arena comes with all that lives across steps, then buffers come and go."""
        arena = self._entry("segment_alloc", 0, self.schedule.arena, 0.0)
        yield {**arena, "frames": self._frames(None), "category": UNKNOWN}
        for b in self.schedule.buffers:
            if b.persistent:
                yield self._of("alloc", b, 0.0)
        for i, at in self.trace.moments:
            x = self.schedule.instructions[i]
            if isinstance(x, Alloc):
                yield self._of("alloc", x.buffer, at, i)
            elif isinstance(x, Free):
                yield self._of("free_requested", x.buffer, at, i)
                yield self._of("free_completed", x.buffer, at, i)

    def segment(self) -> Entry:
        """The arena when the step has ended: what lives across steps, and between it nothing."""
        persistent = sorted((b for b in self.schedule.buffers if b.persistent), key=self.schedule.offset.__getitem__)
        blocks: list[Entry] = []
        top = 0
        for b in persistent:
            at = self.schedule.offset[b]
            blocks += self._gap(top, at)
            top = at + aligned(b.nbytes)
            blocks.append(self._block(at, top - at, b.nbytes, "active_allocated", self._frames(b)))
        blocks += self._gap(top, self.schedule.arena)
        active = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
        return {
            "device": self.number, "address": BASE, "total_size": self.schedule.arena, "allocated_size": active,
            "active_size": active, "requested_size": sum(b.nbytes for b in persistent), "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": self._frames(None), "blocks": blocks,
        }  # fmt: skip

    def _gap(self, begin: int, end: int) -> list[Entry]:
        return [self._block(begin, end - begin, 0, "inactive", [])] if end > begin else []

    def _block(self, at: int, size: int, requested: int, state: str, frames: list[Entry]) -> Entry:
        return {"address": BASE + at, "size": size, "requested_size": requested, "state": state, "frames": frames}

    def _of(self, action: str, b: Buffer, at: float, index: int | None = None) -> Entry:
        entry = self._entry(action, self.schedule.offset[b], aligned(b.nbytes), at)
        return {**entry, "frames": self._frames(b, index), "category": b.residencies[0].tensor.role.value}

    def _entry(self, action: str, offset: int, size: int, at: float) -> Entry:
        micros = round(at * 1e6)
        return {"action": action, "addr": BASE + offset, "size": size, "stream": 0, "time_us": micros}

    def _frames(self, b: Buffer | None, index: int | None = None) -> list[Entry]:
        """b: None for the arena itself. index: of the Alloc or Free; None: it came before the step"""
        program = self.schedule.program.name
        when = "before the step" if index is None else f"instruction of {program}"
        step = {"filename": f"{self.step.policy}, {self.step.how}", "line": index or 0, "name": when}
        if b is None:
            return [{"filename": "arena", "line": 0, "name": f"arena of {program}"}, step]
        tensors = list(dict.fromkeys(s.tensor for s in b.residencies))
        named = [
            {"filename": self.layer.get(t, ""), "line": 0, "name": f"{t!r} {t.dtype}, {t.role.value}"}
            for t in tensors[:SHOWN]
        ]
        if more := len(tensors) - len(named):
            named.append({"filename": "", "line": 0, "name": f"{more} more tensors, one after another"})
        return [*named, step]
