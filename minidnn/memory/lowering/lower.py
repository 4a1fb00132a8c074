"""The lowering: turns a complete Plan into a list of instructions on streams. It obeys; it never chooses.

The order of instructions at one point p is fixed:
  (1) copies out of residencies that began before p
  (2) waits for copies out, and Frees
  (3) Allocs for copies back, and those copies, the one first that is waited for first
  (4) copies out of residencies that came back in (3)
  (5) waits for arrivals
  (6) Allocs of writes and workspaces
  (7) Compute

A slot is never freed. Where a residency leaves a slot by an offload, (2) waits for the copy out all the same.

A communication between ranks takes the place of (7), on the stream net, and compute goes on. Compute waits for it
before an op that reads what it wrote, and before the bytes that it used are written or freed.

An op that the host runs takes the place of (7), too, on the stream host. The op waits for all that wrote its reads on
the host, and for all that has accessed its writes there. Copies in wait for the op.

The lowering keeps vector clocks and emits no wait that they already imply. It does not know offsets, so as far as it
can tell, each wait that it emits is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from minidnn.memory.plan import OffloadInterval, Plan, Point, Slot
from minidnn.memory.schedule import (
    STREAMS,
    Alloc,
    Buffer,
    Compute,
    Free,
    Instruction,
    Listing,
    Offload,
    Prefetch,
    Residency,
    Stream,
    Wait,
    room,
    workspace_of,
)
from minidnn.program import Op, Program, Tensor

# ---- residencies -------------------------------------------------------------------------------------


def residencies_of(program: Program, plan: Plan) -> list[Residency]:
    """Every residency of every tensor: its accesses in plan.order, cut by the plan's offload intervals."""
    end = len(plan.order)
    accesses: dict[Tensor, list[tuple[Point, bool]]] = defaultdict(list)  # (point, begins a new value)
    for t in program.persistent:
        accesses[t] = []
    for p, op in enumerate(plan.order):
        if op in plan.host_ops:
            continue
        reads = set(op.reads)
        for t in op.tensors:
            accesses[t].append((p, t not in reads))
        if plan.algorithm[op].workspace:
            accesses[workspace_of(op, plan.algorithm[op])].append((p, True))
    offloads: dict[Tensor, list[OffloadInterval]] = defaultdict(list)
    for offload in plan.offloads:
        offloads[offload.tensor].append(offload)
    persistent, outputs = set(program.persistent), set(program.outputs)
    residencies: list[Residency] = []
    for t, uses in accesses.items():
        own = sorted(offloads.get(t, ()), key=lambda offload: -1 if offload.free_at is None else offload.free_at)
        residencies += _residencies_of_one(t, uses, own, end, t in persistent, t in outputs, t in plan.hold, plan.order)
    return residencies


def _residencies_of_one(
    t: Tensor,
    uses: Sequence[tuple[Point, bool]],
    offloads: list[OffloadInterval],
    end: Point,
    persistent: bool,
    output: bool,
    hold: bool,
    order: Sequence[Op],
) -> list[Residency]:
    """The residencies of one tensor, in order of time. `uses`: its accesses as (point, begins a new value)."""
    done: list[Residency] = []
    current: Residency | None = None

    def begin(p: Point, offload: OffloadInterval | None = None) -> Residency:
        return Residency(t, len(done), p, p, arrives=offload)

    def leave(offload: OffloadInterval) -> Residency | None:
        """End the current residency by an offload. Returns the residency that begins where the offload interval comes
        back, if it does."""
        if current is None or offload.free_at is None or offload.free_at < current.lo:
            raise ValueError(
                f"an offload interval of {t.name} begins at point {offload.free_at}, where it is not on the device"
            )
        current.hi, current.leaves = max(offload.free_at, current.hi), offload
        done.append(current)
        return None if offload.prefetch_at is None else begin(offload.prefetch_at, offload)

    if offloads and offloads[0].free_at is None:
        first = offloads.pop(0)
        if first.prefetch_at is None:
            return []
        current = begin(first.prefetch_at, first)
    elif persistent or hold:
        current = begin(0)
    if hold and (len(offloads) > 1 or any(offload.prefetch_at is not None for offload in offloads)):
        raise ValueError(f"{t.name} is held for the whole step and cannot travel within it")
    for p, new in uses:
        while offloads and offloads[0].free_at is not None and offloads[0].free_at <= p:
            current = leave(offloads.pop(0))
        if new and current is not None and not (persistent or hold):
            done.append(current)
            current = None
        if current is None:
            if not new:
                raise ValueError(f"{order[p].name} at point {p} reads {t.name}, which is not on the device then")
            current = begin(p)
        current.hi = max(current.hi, p + 1)
    while offloads:
        current = leave(offloads.pop(0))
    if current is not None:
        if persistent or output or hold:
            current.hi = end
        done.append(current)
    if hold:
        done[0].lo = 0
        done[-1].hi = end
    return done


def group(program: Program, plan: Plan, residencies: Sequence[Residency]) -> list[Buffer]:
    """The buffers of these residencies. A buffer that residencies share lives from the first of them to the last, gaps
    included."""
    end = len(plan.order)
    share: dict[Tensor | tuple[Tensor, Point], Tensor | Slot] = {}
    for key, holder in plan.share.items():
        if isinstance(key, Op) and key not in plan.algorithm:
            raise ValueError(f"the workspace of {key.name} is to share bytes, but the op never runs")
        share[workspace_of(key, plan.algorithm[key]) if isinstance(key, Op) else key] = holder

    def target(s: Residency) -> Tensor | Slot | None:
        """Whose bytes the residency takes; None: bytes of its own."""
        if s.arrives is not None:
            return s.arrives.into  # a copy back goes where its offload interval says
        return share.get((s.tensor, s.lo)) or share.get(s.tensor)

    persistent = set(program.persistent)
    buffers: list[Buffer] = []
    slots: dict[Slot, Buffer] = {}
    latest: dict[Tensor, Buffer] = {}
    for s in sorted(residencies, key=lambda s: (s.lo, target(s) is not None)):
        to = target(s)
        if isinstance(to, Slot):
            if to not in slots:
                slots[to] = Buffer(to.nbytes, 0, end, name=to.name)
                buffers.append(slots[to])
            b = slots[to]
        elif to is not None:
            if to not in latest:
                raise ValueError(f"{s.tensor.name} is to share the bytes of {to.name}, which is not on the device yet")
            b = latest[to]
        else:
            b = Buffer(0, s.lo, s.hi, persistent=s.tensor in persistent and s.lo == 0 and s.hi == end)
            buffers.append(b)
        b.nbytes = max(b.nbytes, room(program, s.tensor))
        b.hi = max(b.hi, s.hi)
        b.residencies.append(s)
        s.buffer = latest[s.tensor] = b
    return [b for b in buffers if b.nbytes]


# ---- lowering ------------------------------------------------------------------------------------------


class Clocks:
    """Vector clocks of the streams: for each stream, the last instruction of every stream that it comes after."""

    def __init__(self) -> None:
        self.now: dict[Stream, dict[Stream, int]] = {s: dict.fromkeys(STREAMS, -1) for s in STREAMS}
        self.stamp: dict[int, dict[Stream, int]] = {}
        self.stream: dict[int, Stream] = {}

    def issue(self, index: int, stream: Stream) -> None:
        self.now[stream][stream] = index
        self.stamp[index] = dict(self.now[stream])
        self.stream[index] = stream

    def knows(self, stream: Stream, index: int) -> bool:
        """Whether `stream` already comes after instruction `index`."""
        return self.now[stream][self.stream[index]] >= index

    def wait(self, stream: Stream, index: int) -> None:
        mine, theirs = self.now[stream], self.stamp[index]
        for s in STREAMS:
            if theirs[s] > mine[s]:
                mine[s] = theirs[s]


class Lowering:
    """Emits instructions, and remembers those that later ones must wait for. Used once."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.clocks = Clocks()
        self.last_compute: int | None = None
        # the last instruction that wrote the residency: a Compute or a Prefetch
        self.written: dict[Residency, int] = {}
        self.received: dict[Residency, int] = {}  # the communication that wrote the residency
        self.copies: dict[Buffer, list[int]] = defaultdict(list)  # copies out of the buffer, and communications of it
        # the newest of these whose buffer was freed, or whose residency left a slot
        self.last_freed: dict[Stream, int] = {}
        self.host_write: dict[Tensor, int] = {}  # the last write of the tensor's place on the host
        self.host_reads: dict[Tensor, dict[Stream, int]] = defaultdict(dict)  # the last read since, by each stream

    def emit(self, x: Instruction) -> int:
        index = len(self.instructions)
        self.instructions.append(x)
        if isinstance(x, (Compute, Offload, Prefetch)):
            self.clocks.issue(index, x.stream)
        return index

    def wait(self, stream: Stream, on: int | None) -> None:
        if on is not None and not self.clocks.knows(stream, on):
            self.emit(Wait(stream, on))
            self.clocks.wait(stream, on)

    def offload(self, s: Residency) -> None:
        if s.leaves is not None and s.leaves.on_demand:
            self.wait("out", self.last_compute)
        self.wait("out", self.written.get(s))
        self.before_host_write("out", s.tensor)
        index = self.emit(Offload(s))
        self.copies[s.buffer].append(index)
        self.after_host_write(s.tensor, index)

    def before_host_write(self, stream: Stream, t: Tensor) -> None:
        """Make the stream wait for all that has accessed the tensor's place on the host."""
        for index in (self.host_write.get(t), *self.host_reads[t].values()):
            self.wait(stream, index)

    def after_host_write(self, t: Tensor, index: int) -> None:
        self.host_write[t] = index
        self.host_reads[t].clear()

    def prefetch(self, s: Residency) -> None:
        for index in self.former_users(s):
            self.wait("in", index)
        self.wait("in", self.host_write.get(s.tensor))
        for index in self.copies.pop(s.buffer, ()):  # copies out of the slot's former members
            self.wait("in", index)
        self.written[s] = self.host_reads[s.tensor]["in"] = self.emit(Prefetch(s))

    def former_users(self, s: Residency) -> Iterable[int | None]:
        """Instructions after which the bytes are free that a copy back or a communication takes.

        Compute or a copy out may have used the bytes before. Compute's last instruction may come before compute waited
        for that copy, and then does not imply that the copy has ended. Hence both."""
        return self.last_compute, *self.last_freed.values()

    def leave(self, b: Buffer) -> None:
        """A residency leaves a slot, which is not freed: make compute wait for the copies out as it would at a Free."""
        self.settle(self.copies.get(b, ()))

    def free(self, b: Buffer) -> None:
        self.settle(self.copies.pop(b, ()))
        self.emit(Free(b))

    def settle(self, copies: Sequence[int]) -> None:
        """Make compute wait for these copies out and communications."""
        for index in copies:
            self.wait("compute", index)
            stream = self.clocks.stream[index]
            self.last_freed[stream] = max(index, self.last_freed.get(stream, index))

    def communicate(self, x: Compute) -> int:
        for s in x.reads:
            self.wait("net", self.written.get(s))
        for s in x.writes:
            for index in (*self.former_users(s), *self.copies.pop(s.buffer, ())):
                self.wait("net", index)
        index = self.emit(x)
        for b in dict.fromkeys(s.buffer for s in (*x.reads, *x.writes)):
            self.copies[b].append(index)
        for s in x.writes:
            self.written[s] = self.received[s] = index
        return index

    def by_host(self, x: Compute) -> int:
        made = {self.host_write[t] for t in x.op.reads if t in self.host_write}
        for index in sorted(made, reverse=True):  # the newest first: it may imply the others
            self.wait("host", index)
        for t in x.op.writes:
            self.before_host_write("host", t)
        index = self.emit(x)
        for t in x.op.reads:
            self.host_reads[t]["host"] = index
        for t in x.op.writes:
            self.after_host_write(t, index)
        return index

    def compute(self, x: Compute) -> int:
        for s in x.reads:
            self.wait("compute", self.received.get(s))
        for s in (*x.writes, *((x.workspace,) if x.workspace else ())):
            for index in self.copies.pop(s.buffer, ()):  # never overwrite bytes that are still being copied out
                self.wait("compute", index)
        index = self.last_compute = self.emit(x)
        for s in x.writes:
            self.written[s] = index
        return index


def _arrival(s: Residency) -> Point:
    """The point at which compute waits for the residency's copy back."""
    assert s.arrives is not None and s.arrives.needed_at is not None
    return s.arrives.needed_at


def _check_host(program: Program, emitter: Lowering, op: Op, p: Point) -> None:
    """Raise ValueError if the host has never had what the op reads, or the op writes what lives on the device."""
    known = {*program.inputs, *program.host_resident, *emitter.host_write}
    if absent := next((t for t in op.reads if t not in known), None):
        raise ValueError(
            f"{op.name} at point {p}, which the host runs, reads {absent.name}, which is not on the host: let an "
            f"offload interval "
            "bring it there before, or let it live there"
        )
    persistent = set(program.persistent)
    if there := next((t for t in op.writes if t in persistent), None):
        raise ValueError(f"{op.name}, which the host runs, writes {there.name}, which lives on the device")


def lower(program: Program, plan: Plan) -> Listing:
    """The instructions of a complete plan, without offsets. Raises ValueError if the plan contradicts itself."""
    program = program.with_host_resident(plan.host_resident)
    residencies = residencies_of(program, plan)
    return issue(program, plan, residencies, group(program, plan, residencies), Lowering())


def issue(
    program: Program, plan: Plan, residencies: Sequence[Residency], buffers: Sequence[Buffer], emitter: Lowering
) -> Listing:
    """The instructions of a complete plan with these residencies and buffers. Raises ValueError like `lower`."""
    order, end = plan.order, len(plan.order)
    written: dict[Point, list[Buffer]] = defaultdict(list)
    fetched: dict[Point, list[Buffer]] = defaultdict(list)
    ends: dict[Point, list[Buffer]] = defaultdict(list)
    starts: dict[Point, list[Residency]] = defaultdict(list)
    comes: dict[Point, list[Residency]] = defaultdict(list)
    outs: dict[Point, list[Residency]] = defaultdict(list)
    arrivals: dict[Point, list[Residency]] = defaultdict(list)
    leaves: dict[Point, list[Residency]] = defaultdict(list)
    for b in buffers:
        if not b.persistent:
            (fetched if b.residencies[0].arrives and b.lo == b.residencies[0].lo else written)[b.lo].append(b)
            ends[b.hi].append(b)
    for s in residencies:
        if s.tensor.nbytes == 0:
            continue
        starts[s.lo].append(s)
        if s.leaves is not None and s.leaves.offload_at is not None:
            outs[s.leaves.offload_at].append(s)
            if s.buffer.name:
                leaves[s.hi].append(s)
        if s.arrives is not None:
            if s.arrives.needed_at is None:
                raise ValueError(
                    f"an offload interval of {s.tensor.name} comes back at {s.lo} but does not say when it arrives"
                )
            comes[s.lo if s.arrives.prefetch_at is None else s.arrives.prefetch_at].append(s)
            arrivals[s.arrives.needed_at].append(s)
    now: dict[Tensor, Residency] = {}
    runs: dict[Op, int] = defaultdict(int)
    points: list[int] = []
    for p in range(end + 1):
        for s in outs.get(p, ()):
            if s.lo < p:
                emitter.offload(s)
        for s in leaves.get(p, ()):
            emitter.leave(s.buffer)
        for b in ends.get(p, ()):
            emitter.free(b)
        if p == end:
            break
        for b in fetched.get(p, ()):
            emitter.emit(Alloc(b))
        for s in starts.get(p, ()):
            now[s.tensor] = s
        for s in sorted(comes.get(p, ()), key=_arrival):
            emitter.prefetch(s)
        for s in outs.get(p, ()):
            if s.lo == p:
                emitter.offload(s)
        for s in arrivals.get(p, ()):
            emitter.wait("compute", emitter.written.get(s))
        for b in written.get(p, ()):
            emitter.emit(Alloc(b))
        op = order[p]
        algorithm = plan.algorithm[op]
        if op in plan.host_ops:
            _check_host(program, emitter, op, p)
            points.append(emitter.by_host(Compute(op, runs[op], algorithm, (), (), None, "host")))
            runs[op] += 1
            continue
        workspace = now[workspace_of(op, algorithm)] if algorithm.workspace else None
        try:
            reads, writes = tuple(now[t] for t in op.reads), tuple(now[t] for t in op.writes)
        except KeyError as missing:
            raise ValueError(
                f"{op.name} at point {p} needs {missing.args[0].name}, which is not on the device"
            ) from None
        run = Compute(op, runs[op], algorithm, reads, writes, workspace, "net" if op.on_net else "compute")
        points.append(emitter.communicate(run) if op.on_net else emitter.compute(run))
        runs[op] += 1
    return Listing(program, plan, tuple(emitter.instructions), tuple(buffers), tuple(points))
