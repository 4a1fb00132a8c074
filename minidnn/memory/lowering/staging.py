"""Staging: tensors that leave the device pass through a small ring of pinned memory into a store of ordinary memory.

    device ──Offload──> ring ──Stash──> store (memory, perhaps compressed, or a disk)
    device <─Prefetch── ring <──Fetch── store

vDNN pins a place on the host for every tensor that leaves. Pinned memory is scarce, and vDNN++ names this as vDNN's
second bottleneck. Here only the ring is pinned, and its bytes are used again and again within a step. A *leg* is the
place of a tensor in the ring for one passage. This module chooses the bytes of every leg once, and from these follows
which stream waits for which. Copies between the ring and the store are instructions of two further streams, which the
host runs: Stashes of "store", Fetches of "load". So a disk may write and read at the same time. A Fetch waits for the
Stash of its tensor, and a second Stash for the Fetches of what the first one brought.

Legs are taken in a circle:

- An Offload takes the next bytes of the ring at once.
- A Fetch is placed as early as possible. It comes after the last Offload before its Prefetch. It also comes after every
  earlier Prefetch that reads the bytes that it takes.

So when an instruction needs bytes of the ring, all former users of these bytes come before it in the list. Hence no
stream can wait for ever.

A tensor that is still in the ring when it is needed comes from there, without a Fetch. A tensor that is never fetched
is not stashed. So a ring as large as all travelling tensors amounts to vDNN's pinned memory. Inputs, outputs, hosted
tensors and those of ops that the host runs keep their own pinned places.

Which of the stashed tensors lie in memory and which on a disk is decided behind this (memory/lowering/tiers.py). Where
there is a disk, legs begin and end at multiples of BLOCK, for direct writes and reads take whole blocks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field, replace

from minidnn.costs import Staging
from minidnn.memory.lowering.lower import Clocks
from minidnn.memory.lowering.ranges import Ranges
from minidnn.memory.schedule import (
    ALIGNMENT,
    BLOCK,
    Compute,
    Fetch,
    Instruction,
    Leg,
    Listing,
    Offload,
    Prefetch,
    Stash,
    Stream,
    Wait,
    aligned,
)
from minidnn.program import Tensor

LEGS = 4  # of the largest tensor, in a ring that nobody gave a size: one for each stream that the ring lies between


class RingTooSmall(ValueError):
    """A tensor does not fit into the ring. `needed`: the bytes of a ring that would do."""

    def __init__(self, tensor: Tensor, ring: int, needed: int) -> None:
        super().__init__(f"the ring has {ring} bytes, and {tensor.name}, which travels, takes {needed}")
        self.tensor, self.needed = tensor, needed


def staged(listing: Listing, staging: Staging) -> Listing:
    """The listing with its travelling tensors sent through a ring of at most `staging.ring` bytes.

    Raises RingTooSmall.
    """
    layout = _layout(listing, staging)
    made = _Emitter(layout)
    where: dict[int, int] = {}
    for i, x in enumerate(listing.instructions):
        where[i] = made.take(i, x, where)
    points = tuple(where[i] for i in listing.points)
    return replace(listing, instructions=tuple(made.instructions), points=points, ring=layout.top, staging=staging)


# ---- where legs lie


@dataclass(eq=False)
class _Layout:
    """Every leg, and which tensors are stashed and fetched: decided before any instruction is emitted."""

    legs: dict[int, Leg] = field(default_factory=dict)  # {index of an Offload or Prefetch: its leg}
    fetches: dict[int, list[Leg]] = field(default_factory=lambda: defaultdict(list))  # {index: legs fetched after it}
    stashed: set[Leg] = field(default_factory=set)  # legs that a Stash copies to the store
    fetched: dict[int, Leg] = field(default_factory=dict)  # {index of a Prefetch: the leg whose Fetch it waits for}
    top: int = 0  # bytes of the ring in use


class _Ring:
    """The legs that lie in the ring at one moment of a walk over the instructions."""

    def __init__(self, nbytes: int, grain: int) -> None:
        self.nbytes, self.grain, self.head, self.top = nbytes, grain, 0, 0
        self.legs: Ranges[Leg] = Ranges()
        self.intact: dict[Tensor, Leg] = {}  # legs whose bytes still hold the tensor
        self.awaited: dict[Leg, int] = {}  # {leg: number of copies back that have yet to read it}

    def take(self, t: Tensor) -> Leg | None:
        """A leg in the next bytes of the circle, or None while a copy back has yet to read some of them."""
        size = aligned(t.nbytes, self.grain)
        at = self.head if self.head + size <= self.nbytes else 0
        before = [leg for _, _, leg in self.legs.ranges[self.legs.over(at, at + size)]]
        if any(leg in self.awaited for leg in before):
            return None
        for leg in before:
            if self.intact.get(leg.tensor) is leg:
                del self.intact[leg.tensor]
        self.head, self.top = at + size, max(self.top, at + size)
        new = self.intact[t] = Leg(t, at, size)
        self.legs.put(at, at + size, new)
        return new


def _layout(listing: Listing, staging: Staging) -> _Layout:
    """Choose the legs of all copies but those of tensors with places of their own. Raises RingTooSmall."""
    program = listing.program
    own = {*program.inputs, *program.outputs, *program.hosted, *(t for op in listing.plan.beside for t in op.tensors)}
    copies = [
        (i, x)
        for i, x in enumerate(listing.instructions)
        if isinstance(x, (Offload, Prefetch)) and x.stay.tensor not in own
    ]
    grain = ALIGNMENT if staging.disk is None else BLOCK
    largest = max((x.stay.tensor for _, x in copies), key=lambda t: t.nbytes, default=None)
    most = 0 if largest is None else aligned(largest.nbytes, grain)
    nbytes = staging.ring or LEGS * most
    if largest is not None and most > nbytes:
        raise RingTooSmall(largest, nbytes, most)
    layout, ring = _Layout(), _Ring(nbytes, grain)
    out: dict[Tensor, Leg] = {}  # the leg by which each tensor left last
    coming: deque[tuple[int, Tensor]] = deque()  # copies back before the next copy out that have no leg yet
    k = 0
    while k < len(copies):
        i, x = copies[k]
        if isinstance(x, Offload):
            leg = ring.take(x.stay.tensor)
            assert leg is not None, "all copies back before a copy out have been issued"
            layout.legs[i] = out[x.stay.tensor] = leg
            until = next((n for n in range(k + 1, len(copies)) if isinstance(copies[n][1], Offload)), len(copies))
            coming = deque((j, y.stay.tensor) for j, y in copies[k + 1 : until])
        elif i in layout.legs:
            ring.awaited[layout.legs[i]] -= 1
            if not ring.awaited[layout.legs[i]]:
                del ring.awaited[layout.legs[i]]
        while coming and _provide(layout, ring, out, i, *coming[0]):
            coming.popleft()
        k += 1
    layout.top = ring.top
    return layout


def _provide(layout: _Layout, ring: _Ring, out: dict[Tensor, Leg], now: int, prefetch: int, t: Tensor) -> bool:
    """Give the copy back `prefetch` a leg after instruction `now`. False: the ring has no room yet."""
    if t not in out:  # it has never left, which the proof will report
        return True
    leg = ring.intact.get(t)
    if leg is None:
        leg = ring.take(t)
        if leg is None:
            return False
        layout.stashed.add(out[t])
        layout.fetches[now].append(leg)
        layout.fetched[prefetch] = leg
    layout.legs[prefetch] = leg
    ring.awaited[leg] = ring.awaited.get(leg, 0) + 1
    return True


# ---- instructions


class _Emitter:
    """Emits the listing's instructions again, with Stashes, Fetches and the waits that the ring needs."""

    def __init__(self, layout: _Layout) -> None:
        self.layout = layout
        self.instructions: list[Instruction] = []
        self.clocks = Clocks()
        self.users: Ranges[list[int]] = Ranges()  # instructions that used these bytes since a leg took them
        self.held: dict[Stream, list[int]] = {"out": [], "in": []}  # waits of a copy stream, kept until its next copy
        self.fetch: dict[Leg, int] = {}  # {leg: index of its Fetch}
        self.stash: dict[Tensor, int] = {}  # {tensor: index of its last Stash}
        self.fetched: dict[Tensor, int] = {}  # {tensor: index of its last Fetch}

    def emit(self, x: Instruction) -> int:
        index = len(self.instructions)
        self.instructions.append(x)
        if isinstance(x, (Compute, Offload, Prefetch, Stash, Fetch)):
            self.clocks.issue(index, x.stream)
        return index

    def wait(self, stream: Stream, on: int) -> None:
        if not self.clocks.knows(stream, on):
            self.emit(Wait(stream, on))
            self.clocks.wait(stream, on)

    def take(self, i: int, x: Instruction, where: dict[int, int]) -> int:
        """Emit the listing's instruction i.

        Returns its new index, or -1 for a Wait. `where`: {old index: new index}.
        """
        if isinstance(x, Wait):
            on = where[x.on]
            if x.stream in self.held:
                self.held[x.stream].append(on)
            else:
                self.wait(x.stream, on)
            return -1
        if not isinstance(x, (Offload, Prefetch)):
            return self.emit(x)
        leg = self.layout.legs.get(i)
        if leg is not None and isinstance(x, Offload):
            self.write(leg, "out")
        elif i in self.layout.fetched:
            self.wait("in", self.fetch[self.layout.fetched[i]])
        for on in self.held[x.stream]:
            self.wait(x.stream, on)
        self.held[x.stream].clear()
        index = self.emit(x if leg is None else replace(x, leg=leg))
        if leg is not None:
            self.access(leg, index)
        if isinstance(x, Offload) and leg in self.layout.stashed:
            self.wait("store", index)
            if leg.tensor in self.fetched:
                self.wait("store", self.fetched[leg.tensor])
            self.stash[leg.tensor] = self.emit(Stash(leg))
            self.access(leg, self.stash[leg.tensor])
        for coming in self.layout.fetches.get(i, ()):
            self.write(coming, "load")
            self.wait("load", self.stash[coming.tensor])
            self.fetch[coming] = self.fetched[coming.tensor] = self.emit(Fetch(coming))
            self.access(coming, self.fetch[coming])
        return index

    def write(self, leg: Leg, stream: Stream) -> None:
        """Give these bytes of the ring to the leg. `stream` waits for all instructions that have accessed them."""
        lo, hi = leg.at, leg.at + leg.nbytes
        for _, _, indices in self.users.ranges[self.users.over(lo, hi)]:
            for index in reversed(indices):
                self.wait(stream, index)
        self.users.put(lo, hi, [])

    def access(self, leg: Leg, index: int) -> None:
        """Note that instruction `index` accesses the leg."""
        for _, _, indices in self.users.ranges[self.users.over(leg.at, leg.at + 1)]:
            indices.append(index)
