"""A schedule: the instructions of a step on its streams, and the place of every byte.

There are three: compute, out and in. With a store there are also store and load, among several ranks `net`, and `host`
if the host runs ops.

A Residency is one uninterrupted time of a tensor on the device. It begins with a write or a copy back, and ends after
the last access or with an offload. Residencies that share bytes (in-place results, slots) form a Buffer. Each Buffer
gets one offset.

A schedule prints like a disassembly, and golden tests compare that text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from minidnn.costs import Peer, Staging
from minidnn.memory.plan import OffloadInterval, Plan, Point
from minidnn.program import Algorithm, Op, Program, Role, Tensor
from minidnn.sizes import text
from minidnn.visible import visible

Stream = Literal["compute", "out", "in", "store", "load", "net", "host"]
STREAMS: tuple[Stream, ...] = ("compute", "out", "in", "store", "load", "net", "host")
BY_HOST: tuple[Stream, ...] = ("store", "load", "host")  # those that the host runs, whatever the device
NAMED = 8  # residencies that a label names at most
HEADER = 64  # bytes before a tensor's values in the store (memory/execution/compression.py)
ALIGNMENT = 256  # bytes; cuDNN, oneDNN and coalesced access want it, and it is cudaMalloc's granularity
BLOCK = 4096  # bytes; what a disk writes and reads directly is a multiple of it, in memory and on the disk


@dataclass(eq=False)
class Residency:
    """One residency of one tensor over the half-open interval [lo, hi) of points."""

    tensor: Tensor
    n: int  # the n-th residency of its tensor, from 0
    lo: Point
    hi: Point
    arrives: OffloadInterval | None = None  # the offload interval that brought it; None: a write began it
    leaves: OffloadInterval | None = None
    buffer: Buffer = field(init=False, repr=False)

    def __repr__(self) -> str:
        return f"{self.tensor.name}#{self.n}" if self.n else self.tensor.name


@dataclass(eq=False)
class Buffer:
    """Bytes at one offset over [lo, hi), used by one residency or by several that share them."""

    nbytes: int
    lo: Point
    hi: Point
    residencies: list[Residency] = field(default_factory=list)
    name: str = ""  # a slot's name
    persistent: bool = False  # of a persistent tensor: allocated before the step begins and after it ends (see `room`)

    @property
    def label(self) -> str:
        """The slot's name, or the names of the residencies; of more than NAMED residencies only the first two and the
        last."""
        names = list(dict.fromkeys(repr(s) for s in self.residencies))
        if len(names) > NAMED:
            names[2:-1] = [f"({len(names) - 3} more)"]
        return self.name or "=".join(names)

    def __repr__(self) -> str:
        return f"<{self.label} {self.nbytes} [{self.lo}, {self.hi})>"


@dataclass(frozen=True, eq=False)
class Alloc:
    """Roughly: from here on these bytes belong to `buffer`."""

    buffer: Buffer


@dataclass(frozen=True, eq=False)
class Free:
    """Roughly: compute is done with these bytes, and so is every copy that compute has waited for."""

    buffer: Buffer


@dataclass(frozen=True, eq=False)
class Compute:
    """Roughly: kernels[op](algorithm, *reads, *writes) on the compute stream; run > 0 is a recomputation.

    A communication between ranks (Op.on_net) is one, too, on the stream net. So is an op that the host runs, on the
    stream host (Plan.host_ops): kernels[op](algorithm, *host[reads], *host[writes]). It has no residencies."""

    op: Op
    run: int
    algorithm: Algorithm
    reads: tuple[Residency, ...]
    writes: tuple[Residency, ...]
    workspace: Residency | None
    stream: Stream = "compute"


@dataclass(frozen=True, eq=False)
class StagingSlot:
    """Bytes of the pinned ring that hold a tensor on its way to or from the host (memory/lowering/staging.py)."""

    tensor: Tensor
    at: int  # offset in the ring
    nbytes: int  # of the ring, at least the tensor's


@dataclass(frozen=True, eq=False)
class Offload:
    """Roughly: host[residency.tensor][:] = residency, on the out stream; with a staging slot, into the staging slot's
    part of the ring."""

    residency: Residency
    stream: Stream = "out"
    staging_slot: StagingSlot | None = None


@dataclass(frozen=True, eq=False)
class Prefetch:
    """Roughly: residency[:] = host[residency.tensor], on the in stream; with a staging slot, from the staging slot's
    part of the ring."""

    residency: Residency
    stream: Stream = "in"
    staging_slot: StagingSlot | None = None


@dataclass(frozen=True, eq=False)
class Stash:
    """Roughly: store[staging_slot.tensor] = ring[staging_slot], by the host: into ordinary memory, perhaps packed, or
    to a disk."""

    staging_slot: StagingSlot
    stream: Stream = "store"


@dataclass(frozen=True, eq=False)
class Fetch:
    """Roughly: ring[staging_slot] = store[staging_slot.tensor], by the host itself."""

    staging_slot: StagingSlot
    stream: Stream = "load"


@dataclass(frozen=True, eq=False)
class Wait:
    """Roughly: `stream` continues only after instruction number `on` has finished."""

    stream: Stream
    on: int


@dataclass(frozen=True)
class PeerPlace:
    """Where a tensor lies that has left for a peer (memory/lowering/peers.py)."""

    peer: Peer
    at: int  # offset in the peer's bytes


Instruction = Alloc | Free | Compute | Offload | Prefetch | Stash | Fetch | Wait


@dataclass(eq=False)
class Listing:
    """The result of the lowering: instructions and the buffers that they use, without offsets yet."""

    program: Program
    plan: Plan
    instructions: tuple[Instruction, ...]
    buffers: tuple[Buffer, ...]
    points: tuple[int, ...]  # instruction index of each execution's Compute
    ring: int = 0  # bytes of pinned memory; a tensor passes through it in a staging slot of its own
    staging: Staging | None = None
    disk_offset: Mapping[Tensor, int] = field(default_factory=dict)  # of the stashed tensors that lie on the disk
    on_peer: Mapping[Tensor, PeerPlace] = field(default_factory=dict)  # of the tensors that leave for a peer

    def curve(self, roles: frozenset[Role] | None = None) -> np.ndarray:
        """Exact bytes live at each execution, int64 (executions,); with `roles`, only of tensors with these roles.

        A shared buffer counts with the role of its first residency's tensor.
        """
        counted = (b for b in self.buffers if roles is None or b.residencies[0].tensor.role in roles)
        return live_bytes(counted, len(self.plan.order), lambda b: b.nbytes)

    def live(self, point: Point) -> list[Buffer]:
        """Buffers that are live at an execution, largest first."""
        return sorted((b for b in self.buffers if b.lo <= point < b.hi), key=lambda b: -b.nbytes)


@dataclass(eq=False)
class Schedule(Listing):
    """A listing with an offset in the arena for every buffer, and one on the host for every travelling tensor.

    Inputs have two places on the host, so that the next batch is written while this one is read. The second place lies
    `aligned(nbytes)` behind the first.
    """

    offset: Mapping[Buffer, int] = field(default_factory=dict)
    arena: int = 0  # bytes: the height of the placement
    placement: str = ""  # the heuristic that found it
    host_offset: Mapping[Tensor, int] = field(default_factory=dict)
    host_bytes: int = 0  # pinned bytes, without the ring
    # the first of these: fixed offsets of host-resident tensors, which all programs of a net share
    host_shared: int = 0
    store_offset: Mapping[Tensor, int] = field(default_factory=dict)  # of stashed tensors, in pageable memory
    store_bytes: int = 0
    disk_bytes: int = 0
    live_peak: int = 0  # largest exact sum of live bytes; no placement can be lower
    peak_point: Point = 0

    def __str__(self) -> str:
        return "\n".join(map(visible, listing(self)))

    def __repr__(self) -> str:
        count = f"{len(self.instructions)} instructions, {len(self.buffers)} buffers"
        return f"<schedule of {self.program.name}: {count}, arena {text(self.arena)}>"


@dataclass(frozen=True, eq=False)
class Arrangement:
    """The schedules of one net's programs (TRAIN, ACCUMULATE, TEST), for one arena and one part of the host's
    memory."""

    policy: str
    schedules: Mapping[str, Schedule]
    arena: int  # bytes: the largest arena of the schedules
    # bytes: the fixed offsets of host-resident tensors, then each program's own bytes, so that its inputs wait for no
    # other
    host: int
    # program; then the ring
    budget: int | None = None  # device bytes that the caller allows
    ring: int = 0  # pinned bytes at the end of `host`; the programs share it, since no two run at once
    store: int = 0  # pageable bytes, shared likewise
    disk: int = 0  # bytes of the disk for stashed tensors, shared likewise
    undo: int = 0  # bytes of the disk, behind these, that keep what a step changes as it was before it (tiers.py)

    @classmethod
    def of(cls, policy: str, schedules: Mapping[str, Schedule], budget: int | None) -> Arrangement:
        """The schedules with the bytes that they take together."""
        every = schedules.values()
        ring = max(s.ring for s in every)
        shared = max(s.host_shared for s in every)
        store, disk = max(s.store_bytes for s in every), max(s.disk_bytes for s in every)
        pinned = shared + sum(s.host_bytes - s.host_shared for s in every)
        host = aligned(pinned, BLOCK if disk else ALIGNMENT) + ring
        undo = aligned(sum(t.nbytes for t in changed(every)), BLOCK) if disk else 0
        return cls(policy, schedules, max(s.arena for s in every), host, budget, ring, store, disk, undo)

    def host_bases(self) -> dict[str, int]:
        """{program's name: how many bytes behind its `host_offset` its own places lie}; host-resident tensors lie at
        their offsets."""
        result, base = {}, 0
        for name, s in self.schedules.items():
            result[name], base = base, base + s.host_bytes - s.host_shared
        return result

    def __repr__(self) -> str:
        return f"<arrangement of {', '.join(self.schedules)} by {self.policy}: arena {text(self.arena)}>"

    @property
    def off_device(self) -> int:
        """Bytes of the host's memory, pinned and pageable; a host budget limits these."""
        return self.host + self.store

    @property
    def on_disk(self) -> int:
        """Bytes of the disk."""
        return self.disk + self.undo

    @property
    def on_peers(self) -> int:
        """Bytes of peers' memory; the programs share them, since no two run at once."""
        return max(sum(aligned(t.nbytes) for t in s.on_peer) for s in self.schedules.values())


def live_bytes(buffers: Iterable[Buffer], points: int, size: Callable[[Buffer], int]) -> np.ndarray:
    """The sum of the sizes of the buffers that are live at each point: int64 (points,)."""
    steps = np.zeros(points + 1, np.int64)
    for b in buffers:
        steps[b.lo] += size(b)
        steps[b.hi] -= size(b)
    return np.cumsum(steps)[:-1]


def live_peak(buffers: Iterable[Buffer], points: int, size: Callable[[Buffer], int]) -> tuple[int, int]:
    """The largest sum of live bytes, and the first point that has it; (0, 0) without points."""
    curve = live_bytes(buffers, points, size)
    point = int(np.argmax(curve)) if points else 0
    return int(curve[point]) if points else 0, point


def aligned(nbytes: int, to: int = ALIGNMENT) -> int:
    """`nbytes` rounded up to a multiple of `to`."""
    return -(-nbytes // to) * to


def room(program: Program, t: Tensor) -> int:
    """Bytes of a tensor's buffer on the device. A double-buffered input has two places, the second `aligned(nbytes)`
    behind the
    first: a step reads one while the next batch is copied to the other."""
    return 2 * aligned(t.nbytes) if t in program.double_buffered else t.nbytes


def changing(program: Program) -> tuple[Tensor, ...]:
    """The tensors that live from step to step and that a step of the program writes."""
    written = {t for op in program.ops for t in op.writes}
    return tuple(t for t in program.synchronous_inputs().lasting if t in written)


def changed(schedules: Iterable[Schedule]) -> tuple[Tensor, ...]:
    """The tensors that a step of any of these programs changes, each once."""
    return tuple(dict.fromkeys(t for s in schedules for t in changing(s.program)))


def stored_bound(t: Tensor, compress: bool) -> int:
    """Most bytes that a tensor can take in the store."""
    return t.nbytes + (HEADER if compress else 0)


def workspace_of(op: Op, algorithm: Algorithm) -> Tensor:
    """The op's workspace as a tensor of `algorithm.workspace` bytes."""
    return Tensor(f"{op.name}.workspace", (algorithm.workspace,), "uint8", Role.WORKSPACE)


def listing(schedule: Schedule) -> list[str]:
    """The schedule as text, like a disassembly: one line per instruction."""
    where = schedule.offset
    lines = [
        f"{schedule.program.name}: arena {text(schedule.arena)}, live peak {text(schedule.live_peak)}, "
        f"host {text(schedule.host_bytes)}, placement {schedule.placement}"
    ]
    if schedule.staging is not None:
        lines[0] += f", ring {text(schedule.ring)}, store {text(schedule.store_bytes)}"
        lines[0] += f", disk {text(schedule.disk_bytes)}" if schedule.disk_bytes else ""
    for b in sorted((b for b in schedule.buffers if b.persistent), key=where.__getitem__):
        lines.append(f"      home      {b.label}  @{where[b]}  {text(b.nbytes)}")
    for i, x in enumerate(schedule.instructions):
        if isinstance(x, (Alloc, Free)):
            verb = "alloc" if isinstance(x, Alloc) else "free"
            line = f"{verb:9} {x.buffer.label}  @{where[x.buffer]}  {text(x.buffer.nbytes)}"
        elif isinstance(x, Compute):
            run = f"#{x.run}" if x.run else ""
            space = f" + {text(x.algorithm.workspace)}" if x.algorithm.workspace else ""
            line = f"{x.stream:9} {x.op.name}{run}  [{x.algorithm.name}{space}]"
        elif isinstance(x, Wait):
            line = f"wait      {x.stream} on {x.on}"
        elif isinstance(x, (Stash, Fetch)):
            verb = "stash" if isinstance(x, Stash) else "fetch"
            line = (
                f"{verb:9} {x.staging_slot.tensor.name}  {text(x.staging_slot.tensor.nbytes)}  ring {x.staging_slot.at}"
            )
            on_disk = schedule.disk_offset.get(x.staging_slot.tensor)
            line += "" if on_disk is None else f"  disk {on_disk}"
        else:
            verb = "offload" if isinstance(x, Offload) else "prefetch"
            line = f"{verb:9} {x.residency!r}  {text(x.residency.tensor.nbytes)}"
            line += f"  ring {x.staging_slot.at}" if x.staging_slot is not None else ""
            peer = schedule.on_peer.get(x.residency.tensor)
            line += "" if peer is None else f"  {peer.peer.title} @{peer.at}"
        lines.append(f"{i:5} {line}")
    return lines
