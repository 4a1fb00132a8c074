"""Staging: tensors that leave the device pass through a small ring of pinned memory into a store of ordinary memory.

    device ──Offload──> ring ──Stash──> store (memory, perhaps compressed, or a disk)
    device <─Prefetch── ring <──Fetch── store

vDNN pins a place on the host for every tensor that leaves. Pinned memory is scarce, and vDNN++ names this as vDNN's
second bottleneck. Here only the ring is pinned, and its bytes are used again and again within a step. A *staging slot*
is the place of a tensor in the ring for one passage. This module chooses the bytes of every staging slot once, and from
these follows which stream waits for which. Copies between the ring and the store are instructions of two further
streams, which the host runs: Stashes of "store", Fetches of "load". So a disk may write and read at the same time. A
Fetch waits for the Stash of its tensor, and a second Stash for the Fetches of what the first one brought.

Staging slots are taken in a circle:

- An Offload takes the next bytes of the ring at once.
- A Fetch is placed as early as possible. It comes after the last Offload before its Prefetch. It also comes after every
  earlier Prefetch that reads the bytes that it takes.

So when an instruction needs bytes of the ring, all former users of these bytes come before it in the list. Hence no
stream can wait for ever.

A tensor that is still in the ring when it is needed comes from there, without a Fetch. A tensor that is never fetched
is not stashed. So a ring as large as all travelling tensors amounts to vDNN's pinned memory. Inputs, outputs,
host-resident tensors and those of ops that the host runs keep their own pinned places.

Bytes may also be pinned on demand, which needs to know the time of each copy (memory/execution/pinning.py).

Which of the stashed tensors lie in memory and which on a disk is decided behind this (memory/lowering/tiers.py). Where
there is a disk, staging slots begin and end at multiples of BLOCK, for direct writes and reads take whole blocks.
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
    Listing,
    Offload,
    Prefetch,
    StagingSlot,
    Stash,
    Stream,
    Wait,
    aligned,
)
from minidnn.program import Tensor

# of the largest tensor, in a ring that nobody gave a size: one for each stream that the ring lies between
STAGING_SLOTS = 4


class RingTooSmall(ValueError):
    """A tensor does not fit into the ring. `needed`: the bytes of a ring that would do."""

    def __init__(self, tensor: Tensor, ring: int, needed: int) -> None:
        super().__init__(f"the ring has {ring} bytes, and {tensor.name}, which travels, takes {needed}")
        self.tensor, self.needed = tensor, needed


def staged(listing: Listing, staging: Staging) -> Listing:
    """The listing with its travelling tensors sent through a ring of at most `staging.ring` bytes.

    Raises RingTooSmall.
    """
    return emitted(listing, _circle(listing, staging), staging)


def emitted(listing: Listing, layout: Layout, staging: Staging) -> Listing:
    """The listing with its travelling tensors sent through these staging slots."""
    made = _Emitter(layout)
    where: dict[int, int] = {}
    for i, x in enumerate(listing.instructions):
        where[i] = made.take(i, x, where)
    points = tuple(where[i] for i in listing.points)
    return replace(listing, instructions=tuple(made.instructions), points=points, ring=layout.top, staging=staging)


# ---- where staging slots lie


@dataclass(eq=False)
class Layout:
    """Every staging slot, and which tensors are stashed and fetched: decided before any instruction is emitted."""

    # {index of an Offload or Prefetch: its staging slot}
    staging_slots: dict[int, StagingSlot] = field(default_factory=dict)
    # {index: staging slots fetched after it}
    fetches: dict[int, list[StagingSlot]] = field(default_factory=lambda: defaultdict(list))
    stashed: set[StagingSlot] = field(default_factory=set)  # staging slots that a Stash copies to the store
    # {index of a Prefetch: the staging slot whose Fetch it waits for}
    fetched: dict[int, StagingSlot] = field(default_factory=dict)
    top: int = 0  # bytes of the ring in use


class _Ring:
    """The staging slots that lie in the ring at one moment of a walk over the instructions."""

    def __init__(self, nbytes: int, grain: int) -> None:
        self.nbytes, self.grain, self.head, self.top = nbytes, grain, 0, 0
        self.staging_slots: Ranges[StagingSlot] = Ranges()
        self.intact: dict[Tensor, StagingSlot] = {}  # staging slots whose bytes still hold the tensor
        self.awaited: dict[StagingSlot, int] = {}  # {staging slot: number of copies back that have yet to read it}

    def take(self, t: Tensor) -> StagingSlot | None:
        """A staging slot in the next bytes of the circle, or None while a copy back has yet to read some of them."""
        size = aligned(t.nbytes, self.grain)
        at = self.head if self.head + size <= self.nbytes else 0
        before = [slot for _, _, slot in self.staging_slots.ranges[self.staging_slots.over(at, at + size)]]
        if any(slot in self.awaited for slot in before):
            return None
        for slot in before:
            if self.intact.get(slot.tensor) is slot:
                del self.intact[slot.tensor]
        self.head, self.top = at + size, max(self.top, at + size)
        new = self.intact[t] = StagingSlot(t, at, size)
        self.staging_slots.put(at, at + size, new)
        return new


def travelling(listing: Listing) -> list[tuple[int, Offload | Prefetch]]:
    """(index, copy) of all copies but those of tensors with places of their own."""
    program = listing.program
    own = {
        *program.inputs,
        *program.outputs,
        *program.host_resident,
        *(t for op in listing.plan.host_ops for t in op.tensors),
        *listing.on_peer,
    }
    return [
        (i, x)
        for i, x in enumerate(listing.instructions)
        if isinstance(x, (Offload, Prefetch)) and x.residency.tensor not in own
    ]


def grain_of(staging: Staging) -> int:
    """Bytes: staging slots begin and end at multiples of it."""
    return ALIGNMENT if staging.disk is None else BLOCK


def _circle(listing: Listing, staging: Staging) -> Layout:
    """Choose the staging slots of all travelling copies. Raises RingTooSmall."""
    copies, grain = travelling(listing), grain_of(staging)
    largest = max((x.residency.tensor for _, x in copies), key=lambda t: t.nbytes, default=None)
    most = 0 if largest is None else aligned(largest.nbytes, grain)
    nbytes = staging.ring or STAGING_SLOTS * most
    if largest is not None and most > nbytes:
        raise RingTooSmall(largest, nbytes, most)
    layout, ring = Layout(), _Ring(nbytes, grain)
    out: dict[Tensor, StagingSlot] = {}  # the staging slot by which each tensor left last
    coming: deque[tuple[int, Tensor]] = deque()  # copies back before the next copy out that have no staging slot yet
    k = 0
    while k < len(copies):
        i, x = copies[k]
        if isinstance(x, Offload):
            slot = ring.take(x.residency.tensor)
            assert slot is not None, "all copies back before a copy out have been issued"
            layout.staging_slots[i] = out[x.residency.tensor] = slot
            until = next((n for n in range(k + 1, len(copies)) if isinstance(copies[n][1], Offload)), len(copies))
            coming = deque((j, y.residency.tensor) for j, y in copies[k + 1 : until])
        elif i in layout.staging_slots:
            ring.awaited[layout.staging_slots[i]] -= 1
            if not ring.awaited[layout.staging_slots[i]]:
                del ring.awaited[layout.staging_slots[i]]
        while coming and _provide(layout, ring, out, i, *coming[0]):
            coming.popleft()
        k += 1
    layout.top = ring.top
    return layout


def _provide(layout: Layout, ring: _Ring, out: dict[Tensor, StagingSlot], now: int, prefetch: int, t: Tensor) -> bool:
    """Give the copy back `prefetch` a staging slot after instruction `now`. False: the ring has no room yet."""
    if t not in out:  # it has never left, which the proof will report
        return True
    slot = ring.intact.get(t)
    if slot is None:
        slot = ring.take(t)
        if slot is None:
            return False
        layout.stashed.add(out[t])
        layout.fetches[now].append(slot)
        layout.fetched[prefetch] = slot
    layout.staging_slots[prefetch] = slot
    ring.awaited[slot] = ring.awaited.get(slot, 0) + 1
    return True


# ---- instructions


class _Emitter:
    """Emits the listing's instructions again, with Stashes, Fetches and the waits that the ring needs."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.instructions: list[Instruction] = []
        self.clocks = Clocks()
        self.users: Ranges[list[int]] = Ranges()  # instructions that used these bytes since a staging slot took them
        self.held: dict[Stream, list[int]] = {"out": [], "in": []}  # waits of a copy stream, kept until its next copy
        self.fetch: dict[StagingSlot, int] = {}  # {staging slot: index of its Fetch}
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
        slot = self.layout.staging_slots.get(i)
        if slot is not None and isinstance(x, Offload):
            self.write(slot, "out")
        elif i in self.layout.fetched:
            self.wait("in", self.fetch[self.layout.fetched[i]])
        for on in self.held[x.stream]:
            self.wait(x.stream, on)
        self.held[x.stream].clear()
        index = self.emit(x if slot is None else replace(x, staging_slot=slot))
        if slot is not None:
            self.access(slot, index)
        if isinstance(x, Offload) and slot in self.layout.stashed:
            self.wait("store", index)
            if slot.tensor in self.fetched:
                self.wait("store", self.fetched[slot.tensor])
            self.stash[slot.tensor] = self.emit(Stash(slot))
            self.access(slot, self.stash[slot.tensor])
        for coming in self.layout.fetches.get(i, ()):
            self.write(coming, "load")
            self.wait("load", self.stash[coming.tensor])
            self.fetch[coming] = self.fetched[coming.tensor] = self.emit(Fetch(coming))
            self.access(coming, self.fetch[coming])
        return index

    def write(self, slot: StagingSlot, stream: Stream) -> None:
        """Give these bytes of the ring to the staging slot. `stream` waits for all instructions that have accessed
        them."""
        lo, hi = slot.at, slot.at + slot.nbytes
        for _, _, indices in self.users.ranges[self.users.over(lo, hi)]:
            for index in reversed(indices):
                self.wait(stream, index)
        self.users.put(lo, hi, [])

    def access(self, slot: StagingSlot, index: int) -> None:
        """Note that instruction `index` accesses the staging slot."""
        for _, _, indices in self.users.ranges[self.users.over(slot.at, slot.at + 1)]:
            indices.append(index)
