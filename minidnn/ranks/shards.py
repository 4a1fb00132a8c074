"""How the elements of a tensor are divided among ranks.

A rank has a contiguous shard, in the order in which the elements lie. Shards begin at multiples of BLOCK elements, so
that sums over blocks are the same for any number of ranks. All ranks reserve equally many elements; those beyond a
rank's own are zeros.
"""

from __future__ import annotations

BLOCK = 4096  # elements
SHARD = ".shard"  # the end of a shard's name, which begins with that of its tensor


def blocks(size: int) -> int:
    """The blocks of so many elements, of which the last may be shorter."""
    return -(-size // BLOCK)


def length(size: int, ranks: int) -> int:
    """The elements that each rank reserves for its shard of a tensor of this size."""
    return min(size, -(-blocks(size) // ranks) * BLOCK)


def bounds(size: int, ranks: int, rank: int) -> tuple[int, int]:
    """The half-open range of the elements of this rank."""
    each = length(size, ranks)
    return min(rank * each, size), min((rank + 1) * each, size)
