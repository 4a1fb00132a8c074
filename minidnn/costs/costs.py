"""Costs: the one value that describes a device to planning and to the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from minidnn.errors import InvalidInput
from minidnn.program import Algorithm, Op

# Kinds whose kernels read some of their reads twice, and which: sums over them come before anything is written. (A
# BatchNorm that is not fused counts each tensor once. The papers' figures were made so.)
READ_TWICE = {f"batch_norm.backward_scale{relu}": (0, -1) for relu in ("", "_relu")}  # x, dy

MEMORY, ARITHMETIC = "memory", "arithmetic"
INTENSE = 10  # flops per byte: an op with more is bound by arithmetic
MOST_DRAG = 0.95


@dataclass(frozen=True)
class Choice:
    """One algorithm that an op may use, and the seconds that the op takes with it.

    drag: (copies out, copies in): seconds of the op's work that are lost per second of a copy; None: those of `Drag`
    """

    algorithm: Algorithm
    seconds: float
    drag: tuple[float, float] | None = None


@dataclass(frozen=True)
class Disk:
    """A disk behind the host's memory (memory/lowering/tiers.py): bytes per second of direct writes and reads.

    These defaults are assumed, for any NVMe drive of the last ten years; `minidnn devices --disk` measures them.
    """

    most: int | None = None  # bytes that may be used there; None: what the plan needs
    write_rate: float = 1e9
    read_rate: float = 1e9


@dataclass(frozen=True)
class Staging:
    """Host memory as a ring of pinned memory (memory/lowering/staging.py), or as memory that is pinned on demand
    (memory/execution/pinning.py), with ordinary memory behind it, and perhaps a disk behind both.

    One thread copies out of the ring, and one into it. The rates are the bytes of a tensor that each handles per
    second. They are assumed, for any CPU of the last ten years, and serve plans only; a step on a device takes its own
    time.
    """

    ring: int  # bytes; all tensors that travel at the same time must fit. 0: as many as lowering finds good
    on_demand: bool = field(default=False, kw_only=True)  # whether bytes are pinned on demand; then `ring` is 0
    compress: bool = False  # whether tensors are stored without their zeros (memory/execution/compression.py)
    copy_rate: float = 6e9
    pack_rate: float = 2e9
    unpack_rate: float = 2e9
    disk: Disk | None = None

    def stash_seconds(self, nbytes: int, to_disk: bool = False) -> float:
        """Seconds to bring so many bytes from the ring to ordinary memory, or to the disk."""
        if to_disk and self.disk is not None:
            return nbytes / self.disk.write_rate
        return nbytes / (self.pack_rate if self.compress else self.copy_rate)

    def fetch_seconds(self, nbytes: int, from_disk: bool = False) -> float:
        """Seconds to bring so many bytes back into the ring."""
        if from_disk and self.disk is not None:
            return nbytes / self.disk.read_rate
        return nbytes / (self.unpack_rate if self.compress else self.copy_rate)


@dataclass(frozen=True, eq=False)
class Peer:
    """Memory of another GPU or of another machine that tensors may leave for, instead of the host's: simulated alone
    (memory/lowering/peers.py)."""

    nbytes: int  # that tensors may take there
    bandwidth: float  # bytes per second, in each direction
    latency: float  # seconds before a copy's first byte
    title: str  # "NVLink 4"


@dataclass(frozen=True)
class Heuristic:
    """How a pool gives buffers their places in the arena, one after another (memory/packing/pool.py).

    fit:       the gap that a buffer takes: the "first" that is large enough, the "best" (tightest) or the "worst"
    two_ended: whether what forward leaves for backward lies at the other end of the pool
    order:     of the buffers: "start", as a step asks for them, or another one of memory/packing/greedy.py
    """

    fit: str = "best"
    two_ended: bool = False
    order: str = "start"


@dataclass(frozen=True)
class Drag:
    """The slowdown of ops by copies: seconds of work lost per second of a copy, as (out, in), for memory-bound ops and
    for compute-bound ops.

    Simultaneous copies in both directions cost the sum, but at most MOST_DRAG, so that an op never stops altogether.
    """

    memory: tuple[float, float]
    arithmetic: tuple[float, float]

    def __post_init__(self) -> None:
        for kind in (self.memory, self.arithmetic):
            if not all(0 <= part <= MOST_DRAG for part in kind):
                raise ValueError(f"a copy cannot take {max(kind, key=abs):.3g} of an op's work: 0 to {MOST_DRAG}")


BLOCKING = Drag(memory=(MOST_DRAG, MOST_DRAG), arithmetic=(MOST_DRAG, MOST_DRAG))  # copies and ops take turns


@dataclass(frozen=True, eq=False)
class Costs:
    """A device as policies and the simulator see it; they know nothing else about it.

    `choices(op)` lists the op's algorithms, one or more; the first is the default.
    """

    device: str
    memory: int  # bytes the device offers
    bandwidth_out: float  # bytes per second, device to host
    bandwidth_in: float  # bytes per second, host to device
    choices: Callable[[Op], tuple[Choice, ...]]
    latency: float = 0.0  # seconds before a copy's first byte
    own_memory: bool = False  # whether the arena lies in memory of the device's own, not in the host's
    origin: str = "given"  # "profile", "measured" or "estimated", for reports
    host: int | None = None  # bytes of the host's memory that a plan may take; None: any number
    staging: Staging | None = None  # None: each tensor that travels has a pinned place of its own on the host
    placement: Heuristic | None = None  # None: buffers lie as low as a search finds
    peers: tuple[Peer, ...] = ()  # the one first that is to be filled first
    drag: Drag | None = None  # of choices that do not say; None: copies do not slow them down
    # Seconds that a step may take longer than predicted, for each second of its copies: the error of their costs.
    doubt: float = 0.0
    # The part of its rate that a copy (out, in) keeps beside one the other way.
    duplex: tuple[float, float] = (1.0, 1.0)
    net_drag: float = 0.0  # seconds of an op's work that a second of a communication beside it takes away
    # Seconds of an op that the host runs on its own bytes; None: the host has no kernel that leaves the device's bits.
    by_host: Callable[[Op], float | None] = lambda op: None
    host_drag: float = 0.0  # seconds of an op's work that a second of such an op beside it takes away

    def seconds(self, op: Op, algorithm: Algorithm) -> float:
        """The seconds of the op with this algorithm. Raises KeyError if the op does not have it."""
        return self.choice(op, algorithm).seconds

    def choice(self, op: Op, algorithm: Algorithm) -> Choice:
        """The choice of this algorithm. Raises KeyError if the op does not have it."""
        for c in self.choices(op):
            if c.algorithm == algorithm:
                return c
        raise KeyError(f"{self.device} has no algorithm {algorithm.name} for {op.name}")

    @property
    def sustained(self) -> Costs:
        """These costs as a policy has to see them: a tensor that goes on to a disk travels no faster than the disk
        writes and reads, and one that may go to a peer no faster than the slowest peer's link. The simulator takes the
        copy and what the disk does apart, and for each peer its link."""
        disk = None if self.staging is None else self.staging.disk
        if disk is None and not self.peers:
            return self
        links = [peer.bandwidth for peer in self.peers]
        out = min(self.bandwidth_out, *links, *([] if disk is None else [disk.write_rate]))
        back = min(self.bandwidth_in, *links, *([] if disk is None else [disk.read_rate]))
        latency = max(self.latency, *(peer.latency for peer in self.peers)) if self.peers else self.latency
        return replace(self, bandwidth_out=out, bandwidth_in=back, latency=latency)

    def host_seconds(self, op: Op) -> float:
        """The seconds of an op that the host runs. Raises ValueError if it has no kernel that leaves the same bits."""
        if (seconds := self.by_host(op)) is None:
            raise ValueError(
                f"the host cannot run {op.name}: it has no kernel for {op.kind} of {op.reads[0].dtype} that leaves the "
                f"bits of {self.device}; leave the op on the device"
            )
        return seconds

    def dragged(self, op: Op, choice: Choice) -> tuple[float, float]:
        """(copies out, copies in): how many seconds of the op's work a second of such a copy beside it takes away."""
        if choice.drag is not None:
            return choice.drag
        if self.drag is None:
            return 0.0, 0.0
        return self.drag.arithmetic if bound_by(op) == ARITHMETIC else self.drag.memory

    def least_memory(self, op: Op) -> Algorithm:
        """The algorithm with the least workspace; of several, the fastest of these (the papers' "(m)")."""
        return min(self.choices(op), key=lambda c: (c.algorithm.workspace, c.seconds)).algorithm

    def fastest(self, op: Op) -> Algorithm:
        """The fastest algorithm; of several, the one with the least workspace (the papers' "(p)")."""
        return min(self.choices(op), key=lambda c: (c.seconds, c.algorithm.workspace)).algorithm


def bound_by(op: Op) -> str:
    """MEMORY or ARITHMETIC: what the op's seconds depend on, roughly."""
    return ARITHMETIC if op.flops > INTENSE * op.nbytes else MEMORY


def traffic(op: Op) -> int:
    """The least bytes that the op's kernels read and write."""
    return op.nbytes + sum(op.reads[i].nbytes for i in READ_TWICE.get(op.kind, ()))


def remembering(choose: Callable[[Op], tuple[Choice, ...]]) -> Callable[[Op], tuple[Choice, ...]]:
    """A function that calls `choose` once per op and remembers the result, since policies ask many times."""
    known: dict[Op, tuple[Choice, ...]] = {}

    def choices(op: Op) -> tuple[Choice, ...]:
        if op not in known:
            known[op] = choose(op)
        return known[op]

    return choices


def offered(costs: Costs, algorithms: Callable[[Op], Iterable[Algorithm]]) -> Costs:
    """The costs without the algorithms that `algorithms(op)` does not list any more. Their `choices` raises
    InvalidInput if none is left."""

    def choose(op: Op) -> tuple[Choice, ...]:
        listed = set(algorithms(op))
        if left := tuple(c for c in costs.choices(op) if c.algorithm in listed):
            return left
        raise InvalidInput(f"{costs.device} has refused every algorithm of {op.name} that the costs have")

    return replace(costs, choices=remembering(choose))
