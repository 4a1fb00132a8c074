"""The proof that a schedule computes its program's values within its bytes, whatever the timing of the streams.

The proof follows values, not only bytes. Each write gets the number hash(op, algorithm, output, numbers read). The
program's own order gives the expected numbers, and every execution must read them. A copy moves a number between device
and host bytes. A write spoils every other number in the same bytes. When the step ends, each persistent tensor must
hold its final number at its fixed offset, and each output and host-resident tensor on the host. An op that the host
runs reads and writes numbers there.

Vector clocks over the streams show the order. Within a buffer, waits must order a write against any other access. At a
Free, all accesses of the buffer must precede compute. The next user of those bytes must come after these accesses: so
does compute, and a copy back must wait. Accesses before the buffer's last write precede that write. So it suffices to
remember, for each range of bytes, the last accesses when it was freed: n log n in all.

The proof checks the lowering, so it shares only the instruction types with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minidnn.memory.proof.places import stale, wrong_between, wrong_persistent, wrong_place, wrong_size
from minidnn.memory.proof.ring import Ring
from minidnn.memory.schedule import (
    ALIGNMENT,
    BLOCK,
    STREAMS,
    Alloc,
    Buffer,
    Compute,
    Fetch,
    Free,
    Offload,
    Prefetch,
    Residency,
    Schedule,
    StagingSlot,
    Stash,
    Stream,
    Wait,
    workspace_of,
)
from minidnn.program import Algorithm, Op, Program, Tensor

Number = Hashable
STREAM: dict[type, Stream] = {Offload: "out", Prefetch: "in", Stash: "store", Fetch: "load"}  # Compute: by its op
Clock = dict[Stream, int]  # for each stream, an instruction
Accesses = dict[
    Tensor, list[tuple[int, Stream, bool]]
]  # of a tensor's place off the device: instruction, its stream, write


class ScheduleError(Exception):
    """The schedule could compute other values, or use bytes that it does not own. The message names the instruction."""


def expected_numbers(
    program: Program, algorithm: Mapping[Op, Algorithm]
) -> tuple[dict[Op, tuple[Number, ...]], dict[Tensor, Number]]:
    """({op: the numbers it must read}, {tensor: its final number}), in the program's own order."""
    value: dict[Tensor, Number] = {
        t: ("start", t.name) for t in (*program.persistent, *program.inputs, *program.host_resident)
    }
    reads: dict[Op, tuple[Number, ...]] = {}
    for op in program.ops:
        numbers = reads[op] = tuple(value[t] for t in op.reads)
        for t in op.writes:
            value[t] = number_of_write(op, algorithm[op].name, t, numbers)
    return reads, value


def number_of_write(op: Op, algorithm: str, t: Tensor, reads: tuple[Number, ...]) -> Number:
    """The number of a tensor that an op writes."""
    return hash((op.name, algorithm, t.name, reads))


@dataclass(eq=False)
class _Bytes:
    """The state of one buffer while it is allocated: the numbers it holds, and its last accesses."""

    numbers: dict[Tensor, Number] = field(default_factory=dict)
    write: tuple[int, Stream] | None = None  # the last write: (instruction, stream)
    reads: dict[Stream, int] = field(default_factory=dict)  # {stream: its last read since that write}


class _Freed:
    """Ranges of arena bytes, each with the last instruction of each stream that used it before it was last freed.

    Freeing a range again replaces it, so that all queries together look at no more ranges than there are Frees.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ranges: list[tuple[int, int, Clock]] = []

    def over(self, lo: int, hi: int) -> Sequence[tuple[int, int, Clock]]:
        """The ranges that overlap [lo, hi)."""
        i = bisect_right(self.starts, lo) - 1
        if i < 0 or self.ranges[i][1] <= lo:
            i += 1
        return self.ranges[i : bisect_left(self.starts, hi)]

    def free(self, lo: int, hi: int, clock: Clock) -> None:
        old = self.over(lo, hi)
        new = [(lo, hi, clock)]
        if old:
            i = bisect_left(self.starts, old[0][0])
            if old[0][0] < lo:
                new.insert(0, (old[0][0], lo, old[0][2]))
            if old[-1][1] > hi:
                new.append((hi, old[-1][1], old[-1][2]))
        else:
            i = bisect_left(self.starts, lo)
        self.ranges[i : i + len(old)] = new
        self.starts[i : i + len(old)] = [r[0] for r in new]


class _Proof:
    """One walk over the instructions. Every method raises ScheduleError with the instruction's number."""

    def __init__(self, schedule: Schedule) -> None:
        self.s, self.i = schedule, 0
        program, plan = schedule.program, schedule.plan
        if never := next((op for op in program.ops if op not in plan.algorithm), None):
            raise ScheduleError(f"{program.name}: {never.name} never runs")
        self.expected, self.final = expected_numbers(program, plan.algorithm)
        self.clock: dict[Stream, Clock] = {s: dict.fromkeys(STREAMS, -1) for s in STREAMS}
        self.stamp: dict[int, tuple[Stream, Clock]] = {}
        self.held: dict[Buffer, _Bytes] = {}
        self.ranges: list[tuple[int, int, Buffer]] = []  # allocated now, by offset
        self.freed = _Freed()
        self.host: dict[Tensor, Number] = {t: ("start", t.name) for t in (*program.inputs, *program.host_resident)}
        self.host_access: Accesses = {}
        self.ring = Ring(schedule.ring)
        self.store: dict[Tensor, Number] = {}
        self.store_access: Accesses = {}
        self.owner = {id(residency): b for b in schedule.buffers for residency in b.residencies}

    def fail(self, message: str) -> ScheduleError:
        what = f"instruction {self.i}" if self.i < len(self.s.instructions) else "end of step"
        return ScheduleError(f"{self.s.program.name}: {what}: {message}")

    # -- bytes

    def take(self, b: Buffer) -> None:
        """Allocate a buffer: it must be aligned, lie within the arena, and overlap no live buffer."""
        lo = self.s.offset[b]
        hi = lo + b.nbytes
        if lo < 0 or lo % ALIGNMENT:
            raise self.fail(f"{b.label} lies at {lo}, not at a multiple of {ALIGNMENT}")
        if hi > self.s.arena:
            raise self.fail(f"{b.label} ends at {hi}, beyond the arena of {self.s.arena} bytes")
        if b in self.held:
            raise self.fail(f"{b.label} is allocated twice")
        for s in b.residencies:
            if s.tensor.nbytes > b.nbytes:
                raise self.fail(f"{s.tensor.name} needs {s.tensor.nbytes} bytes, its buffer has {b.nbytes}")
        i = bisect_left(self.ranges, lo, key=lambda r: r[0])
        for other in self.ranges[max(i - 1, 0) : i + 1]:
            if other[0] < hi and lo < other[1]:
                raise self.fail(
                    f"{b.label} [{lo}, {hi}) overlaps {other[2].label} [{other[0]}, {other[1]}), still live"
                )
        self.ranges.insert(i, (lo, hi, b))
        self.held[b] = _Bytes()

    def release(self, b: Buffer) -> None:
        """Free a buffer: compute must come after all accesses of it."""
        if b not in self.held:
            raise self.fail(f"{b.label} is freed but not allocated")
        bytes_ = self.held.pop(b)
        mine, last = self.clock["compute"], dict(bytes_.reads)
        if bytes_.write is not None:
            index, stream = bytes_.write
            last[stream] = max(index, last.get(stream, -1))
        for stream, index in last.items():
            if mine[stream] < index:
                raise self.fail(f"{b.label} is freed while instruction {index} ({stream}) may still use it")
        lo, hi = self.s.offset[b], self.s.offset[b] + b.nbytes
        del self.ranges[bisect_left(self.ranges, lo, key=lambda r: r[0])]
        self.freed.free(lo, hi, last or dict(mine))

    def access(self, residency: Residency, stream: Stream, write: bool) -> _Bytes:
        """The state of the residency's buffer. `stream` must come after all accesses that conflict with this one."""
        b = self.owner.get(id(residency))
        if b is None or b not in self.held:
            raise self.fail(f"{residency!r} is not on the device")
        bytes_, mine = self.held[b], self.clock[stream]
        if bytes_.write is None and stream != "compute":
            lo = self.s.offset[b]
            for _, _, then in self.freed.over(lo, lo + b.nbytes):
                if any(mine[s] < index for s, index in then.items()):
                    raise self.fail(f"{residency!r} takes bytes that their former user may still use")
        if bytes_.write is not None and mine[bytes_.write[1]] < bytes_.write[0]:
            raise self.fail(
                f"{residency!r} races with instruction {bytes_.write[0]} ({bytes_.write[1]}), which writes it"
            )
        if write:
            for s, index in bytes_.reads.items():
                if mine[s] < index:
                    raise self.fail(f"{residency!r} is overwritten while instruction {index} ({s}) may still read it")
        return bytes_

    def accessed(self, bytes_: _Bytes, stream: Stream, write: bool) -> None:
        """Note the access of the current instruction."""
        if write:
            bytes_.write, bytes_.reads = (self.i, stream), {}
        else:
            bytes_.reads[stream] = self.i

    def order(self, place: Accesses, t: Tensor, stream: Stream, write: bool) -> None:
        """`stream` must come after all accesses to the tensor's place on the host, or in the store, that conflict with
        this one."""
        for index, other, wrote in place.get(t, ()):
            if (write or wrote) and self.clock[stream][other] < index:
                what = "host's copy" if place is self.host_access else "store's copy"
                raise self.fail(f"the {what} of {t.name} races with instruction {index} ({other})")
        place.setdefault(t, []).append((self.i, stream, write))

    # -- instructions

    def stream(self, x: Compute | Offload | Prefetch | Stash | Fetch) -> Stream:
        """The stream that this instruction must be on."""
        if isinstance(x, Compute):
            return "net" if x.op.on_net else "host" if x.op in self.s.plan.host_ops else "compute"
        return STREAM[type(x)]

    def issue(self, stream: Stream) -> None:
        self.clock[stream][stream] = self.i
        self.stamp[self.i] = (stream, dict(self.clock[stream]))

    def wait(self, x: Wait) -> None:
        if x.on not in self.stamp:
            raise self.fail(f"{x.stream} waits for instruction {x.on}, which is not issued before it")
        mine, theirs = self.clock[x.stream], self.stamp[x.on][1]
        for s in STREAMS:
            mine[s] = max(mine[s], theirs[s])

    def offload(self, x: Offload) -> None:
        t = x.residency.tensor
        bytes_ = self.access(x.residency, "out", write=False)
        if t not in bytes_.numbers:
            raise self.fail(f"{t.name} is copied out, but its bytes do not hold it")
        if x.staging_slot is None and t not in self.s.host_offset and t not in self.s.on_peer:
            raise self.fail(f"{t.name} has no place on the host")
        self.issue("out")
        if x.staging_slot is not None:
            self.into_ring(x.staging_slot, t, bytes_.numbers[t], "out")
        else:
            self.order(self.host_access, t, "out", write=True)
            self.host[t] = bytes_.numbers[t]
        self.accessed(bytes_, "out", write=False)

    def prefetch(self, x: Prefetch) -> None:
        t = x.residency.tensor
        bytes_ = self.access(x.residency, "in", write=True)
        if x.staging_slot is None and t not in self.host:
            raise self.fail(f"{t.name} is copied in, but the host has never had it")
        self.issue("in")
        if x.staging_slot is not None:
            bytes_.numbers = {t: self.from_ring(x.staging_slot, t, "in")}
        else:
            self.order(self.host_access, t, "in", write=False)
            bytes_.numbers = {t: self.host[t]}
        self.accessed(bytes_, "in", write=True)

    def into_ring(self, slot: StagingSlot, t: Tensor, number: Number, stream: Stream) -> None:
        wrong = self.ring.write(slot, number, self.i, stream, self.clock[stream])
        if wrong or slot.tensor != t:
            raise self.fail(wrong or f"{t.name} is copied into the staging slot of {slot.tensor.name}")

    def from_ring(self, slot: StagingSlot, t: Tensor, stream: Stream) -> Number:
        number, wrong = self.ring.read(slot, self.i, stream, self.clock[stream])
        if wrong or slot.tensor != t:
            raise self.fail(wrong or f"{t.name} is copied from the staging slot of {slot.tensor.name}")
        return number

    def stash(self, x: Stash) -> None:
        t = self.behind(x.staging_slot)
        self.issue("store")
        self.order(self.store_access, t, "store", write=True)
        self.store[t] = self.from_ring(x.staging_slot, t, "store")

    def fetch(self, x: Fetch) -> None:
        t = self.behind(x.staging_slot)
        if t not in self.store:
            raise self.fail(f"{t.name} is fetched, but the store has never had it")
        self.issue("load")
        self.order(self.store_access, t, "load", write=False)
        self.into_ring(x.staging_slot, t, self.store[t], "load")

    def behind(self, slot: StagingSlot) -> Tensor:
        """The staging slot's tensor. It must have a place in the store; for one on the disk the staging slot must be of
        whole blocks."""
        t = slot.tensor
        if t not in self.s.store_offset and t not in self.s.disk_offset:
            raise self.fail(f"{t.name} has no place in the store")
        if t in self.s.disk_offset and (slot.at % BLOCK or slot.nbytes % BLOCK):
            raise self.fail(f"{t.name} lies on the disk, and its staging slot is not of blocks of {BLOCK} bytes")
        return t

    def by_host(self, x: Compute) -> None:
        """An op that the host runs: all its tensors are on the host."""
        op, want = x.op, self.expected[x.op]
        if x.reads or x.writes or x.workspace is not None:
            raise self.fail(f"{op.name}, which the host runs, is given bytes of the device")
        if x.algorithm.workspace:
            raise self.fail(f"{op.name} needs {x.algorithm.workspace} bytes of workspace, and the host has none")
        if x.algorithm != self.s.plan.algorithm[op]:
            raise self.fail(f"{op.name} runs {x.algorithm.name}, the plan says {self.s.plan.algorithm[op].name}")
        if x.run and any(t in op.reads for t in op.writes):
            raise self.fail(f"{op.name} updates in place and must run once, this is run {x.run}")
        if homeless := next((t for t in op.tensors if t not in self.s.host_offset), None):
            raise self.fail(f"{op.name}, which the host runs, has no place on the host for {homeless.name}")
        self.issue("host")
        for t, number in zip(op.reads, want, strict=True):
            self.order(self.host_access, t, "host", write=False)
            if self.host.get(t) != number:
                raise self.fail(f"{op.name} reads {t.name} on the host, which does not hold its value in program order")
        for t in op.writes:
            self.order(self.host_access, t, "host", write=True)
            self.host[t] = number_of_write(op, x.algorithm.name, t, want)

    def compute(self, x: Compute) -> None:
        op = x.op
        want = self.expected[op]
        if len(x.reads) != len(op.reads) or len(x.writes) != len(op.writes):
            raise self.fail(f"{op.name} is given more or fewer tensors than it reads and writes")
        for t, residency, number in zip(op.reads, x.reads, want, strict=True):
            bytes_ = self.access(residency, x.stream, write=False)
            if residency.tensor != t or t not in bytes_.numbers:
                raise self.fail(f"{op.name} reads {t.name}, but its bytes hold {_names(bytes_)}")
            if bytes_.numbers[t] != number:
                raise self.fail(f"{op.name} reads {t.name}, which does not hold the value it has in program order")
        if x.run and any(t in op.reads for t in op.writes):
            raise self.fail(f"{op.name} updates in place and must run once, this is run {x.run}")
        writes: dict[Buffer, Tensor | None] = {}
        readers = {self.owner[id(residency)]: t for t, residency in zip(op.reads, x.reads, strict=True)}
        for t, residency in zip(op.writes, x.writes, strict=True):
            self.access(residency, x.stream, write=True)
            b = self.owner[id(residency)]
            if residency.tensor != t:
                raise self.fail(f"{op.name} writes {residency.tensor.name} instead of {t.name}")
            if t in op.reads and readers.get(b) != t:
                raise self.fail(f"{op.name} updates {t.name} in place, but reads and writes different bytes")
            if b in writes:
                raise self.fail(
                    f"{op.name} writes {t.name} and {getattr(writes[b], 'name', 'its workspace')} over each other"
                )
            read = readers.get(b)
            if (
                read is not None
                and read != t
                and not all(
                    (r, t) in op.inplace for r, s in zip(op.reads, x.reads, strict=True) if self.owner[id(s)] is b
                )
            ):
                raise self.fail(f"{op.name} writes {t.name} over {read.name}, which its kernel does not permit")
            writes[b] = t
        if x.workspace is not None:
            self.access(x.workspace, x.stream, write=True)
            b = self.owner[id(x.workspace)]
            if b in writes or b in readers:
                raise self.fail(f"the workspace of {op.name} overlaps a tensor that the op uses")
            if x.workspace.tensor != workspace_of(op, x.algorithm):
                raise self.fail(f"{op.name} is given the workspace {x.workspace.tensor.name}")
            writes[b] = None
        if x.algorithm.workspace and x.workspace is None:
            raise self.fail(f"{op.name} needs {x.algorithm.workspace} bytes of workspace and has none")
        if x.algorithm != self.s.plan.algorithm[op]:
            raise self.fail(f"{op.name} runs {x.algorithm.name}, the plan says {self.s.plan.algorithm[op].name}")
        self.issue(x.stream)
        for residency in x.reads:
            self.accessed(self.held[self.owner[id(residency)]], x.stream, write=False)
        for b, written in writes.items():
            bytes_ = self.held[b]
            bytes_.numbers = {} if written is None else {written: number_of_write(op, x.algorithm.name, written, want)}
            self.accessed(bytes_, x.stream, write=True)

    # -- the whole

    def run(self) -> None:
        program, done = self.s.program, {op: 0 for op in self.s.program.ops}
        for b in self.s.buffers:
            if b.persistent:
                self.take(b)
                self.held[b].numbers = {s.tensor: ("start", s.tensor.name) for s in b.residencies}
        for i, x in enumerate(self.s.instructions):
            self.i = i
            if not isinstance(x, (Alloc, Free, Wait)) and x.stream != (own := self.stream(x)):
                raise self.fail(f"it is on the stream {x.stream}, not on {own}")
            if isinstance(x, Alloc):
                self.take(x.buffer)
            elif isinstance(x, Free):
                if x.buffer.persistent:
                    raise self.fail(f"{x.buffer.label} lives across steps and is freed")
                self.release(x.buffer)
            elif isinstance(x, Wait):
                self.wait(x)
            elif isinstance(x, Offload):
                self.offload(x)
            elif isinstance(x, Prefetch):
                self.prefetch(x)
            elif isinstance(x, Stash):
                self.stash(x)
            elif isinstance(x, Fetch):
                self.fetch(x)
            else:
                if x.run != done.get(x.op):
                    raise self.fail(f"{x.op.name} has the run number {x.run}, expected {done.get(x.op)}")
                done[x.op] += 1
                (self.by_host if x.op in self.s.plan.host_ops else self.compute)(x)
        self.i = len(self.s.instructions)
        for op, runs in done.items():
            if not runs:
                raise self.fail(f"{op.name} never ran")
        persistent = {s.tensor: b for b in self.s.buffers if b.persistent for s in b.residencies}
        for t in program.persistent:
            buffer = persistent.get(t)
            if buffer is None or self.held[buffer].numbers.get(t) != self.final[t]:
                raise self.fail(f"{t.name} does not hold its final value at its fixed offset")
        for t in program.outputs:
            if self.host.get(t) != self.final[t]:
                raise self.fail(f"the host does not have the final value of output {t.name}")
        for t in program.host_resident:
            if self.host[t] != self.final[t]:
                raise self.fail(f"the host does not have the final value of {t.name}, which lives there")
        for t in program.inputs:
            if self.host[t] != ("start", t.name):  # the next step may run on the same inputs
                raise self.fail(f"input {t.name} is overwritten on the host")
        for b in self.held:
            if not b.persistent:
                raise self.fail(f"{b.label} is never freed")


def verify(schedule: Schedule, budget: int | None = None) -> None:
    """Raise ScheduleError, naming the instruction, unless the schedule is right and takes at most `budget` bytes."""
    if budget is not None and schedule.arena > budget:
        raise ScheduleError(f"{schedule.program.name}: the arena is {schedule.arena} bytes, the budget {budget}")
    if wrong := wrong_size(schedule) or wrong_place(schedule) or wrong_persistent(schedule):
        raise ScheduleError(f"{schedule.program.name}: {wrong}")
    _Proof(schedule).run()


def verify_all(schedules: Iterable[Schedule], budget: int | None = None) -> None:
    """`verify` for programs that run in one arena, in any order: none may touch bytes that only another carries, or
    read a weight of which other ranks have newer parts."""
    schedules = list(schedules)
    for schedule in schedules:
        verify(schedule, budget)
    if wrong := wrong_between(schedules) or stale(s.program for s in schedules):
        raise ScheduleError(wrong)


def _names(bytes_: _Bytes) -> str:
    return ", ".join(t.name for t in bytes_.numbers) or "nothing"
