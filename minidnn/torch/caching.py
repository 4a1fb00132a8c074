"""PyTorch's caching allocator of CUDA, as a model: which bytes it reserves for given lives of storages.

It knows the allocator's default settings, one stream, and no release of cached bytes before the memory is full; so what
is reserved only grows. Segments lie in the order of their reservation: on a GPU the driver chooses, which matters
only between free blocks of equal size.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from minidnn.torch.lives import Event

MIB = 1 << 20
GRANULE = 512  # requests are multiples of it
SMALL = MIB  # requests up to it come from the pool of small blocks
SMALL_SEGMENT = 2 * MIB
MEDIUM = 10 * MIB  # requests from it on have a segment of their own, a multiple of LARGE_GRANULE
MEDIUM_SEGMENT = 20 * MIB
LARGE_GRANULE = 2 * MIB


def rounded(nbytes: int, granule: int = GRANULE) -> int:
    return max(granule, -(-nbytes // granule) * granule)


def segment(nbytes: int) -> int:
    """The bytes that are reserved for a rounded request, if no cached block is large enough."""
    if nbytes <= SMALL:
        return SMALL_SEGMENT
    return MEDIUM_SEGMENT if nbytes < MEDIUM else rounded(nbytes, LARGE_GRANULE)


@dataclass(eq=False)
class _Block:
    """Bytes [start, start + nbytes) of a segment, and the blocks beside it there."""

    start: int
    nbytes: int
    small: bool
    before: _Block | None = None
    after: _Block | None = None
    free: bool = False


@dataclass
class CachingAllocator:
    """The state of the allocator: `reserved` bytes, of which `allocated` are in use."""

    reserved: int = 0
    allocated: int = 0
    _used: dict[int, _Block] = field(default_factory=dict)
    # of each pool (small or not) the free blocks by size and place
    _free: dict[bool, list[tuple[int, int, _Block]]] = field(default_factory=lambda: {True: [], False: []})

    def take(self, key: int, nbytes: int) -> None:
        """Allocate bytes under a key, which is not in use."""
        size = rounded(nbytes)
        block = self._best(size) or self._segment(size)
        rest = block.nbytes - size
        if rest >= GRANULE if block.small else rest > SMALL:
            self._split(block, size)
        self._used[key] = block
        self.allocated += block.nbytes

    def give_back(self, key: int) -> None:
        """Free what the key stands for. The bytes stay reserved."""
        block = self._used.pop(key)
        self.allocated -= block.nbytes
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._merge(block, other)
        self._release(block)

    def _best(self, size: int) -> _Block | None:
        """The smallest free block of the pool that is large enough; of several the first."""
        pool = self._free[size <= SMALL]
        at = bisect.bisect_left(pool, (size, -1))
        return self._claim(pool[at][2]) if at < len(pool) else None

    def _segment(self, size: int) -> _Block:
        block = _Block(self.reserved, segment(size), size <= SMALL)
        self.reserved += block.nbytes
        return block

    def _split(self, block: _Block, size: int) -> None:
        """Leave the block its first bytes; the others are free."""
        rest = _Block(block.start + size, block.nbytes - size, block.small, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.nbytes = rest, size
        self._release(rest)

    def _merge(self, block: _Block, other: _Block) -> None:
        """Add the free block beside it to the block."""
        self._claim(other)
        if other is block.before:
            block.start, block.before = other.start, other.before
            if other.before is not None:
                other.before.after = block
        else:
            block.after = other.after
            if other.after is not None:
                other.after.before = block
        block.nbytes += other.nbytes

    def _release(self, block: _Block) -> None:
        block.free = True
        bisect.insort(self._free[block.small], (block.nbytes, block.start, block))

    def _claim(self, block: _Block) -> _Block:
        """Take the block out of its pool's free ones."""
        pool = self._free[block.small]
        del pool[bisect.bisect_left(pool, (block.nbytes, block.start))]
        block.free = False
        return block


def reserved(events: Iterable[Event]) -> int:
    """The bytes that the allocator has reserved after these events."""
    allocator = CachingAllocator()
    for event in events:
        if event.nbytes > 0:
            allocator.take(event.storage, event.nbytes)
        else:
            allocator.give_back(event.storage)
    return allocator.reserved
