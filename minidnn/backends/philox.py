"""Philox4x32-10, a counter-based random generator, for dropout's masks.

It is by Salmon, Moraes, Dror and Shaw ("Parallel random numbers: as easy as 1, 2, 3", SC 2011). A block of four words
is a pure function of a counter and a key, so no state has to be stored.

Element i of a tensor, counted in logical C order whatever its layout, takes word i % 4 of
    philox(counter = (i//4 low, i//4 high, iteration low, layer key), key = (seed low, seed high)).
Dropout keeps the element if this word >= floor(ratio * 2^32).
"""

from __future__ import annotations

import numpy as np

M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = 0x9E3779B9, 0xBB67AE85
LOW, SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
ROUNDS = 10
WORK_ROWS = 6  # uint64 rows of scratch that `rounds` needs


def blocks_of(size: int) -> int:
    """Blocks of four words that cover `size` elements."""
    return -(-size // 4)


def rounds(work: np.ndarray, key: tuple[int, int]) -> None:
    """Philox's ten rounds, in place and without allocation. `work`: uint64 (6, blocks); rows 0 to 3 hold the counters
    before and the words after. `key`: its low and high 32 bits."""
    c0, c1, c2, c3, p0, p1 = work
    k0, k1 = key
    for _ in range(ROUNDS):
        np.multiply(c0, M0, out=p0)
        np.multiply(c2, M1, out=p1)
        np.right_shift(p1, SHIFT, out=c0)
        np.bitwise_xor(c0, c1, out=c0)
        np.bitwise_xor(c0, np.uint64(k0), out=c0)
        np.right_shift(p0, SHIFT, out=c2)
        np.bitwise_xor(c2, c3, out=c2)
        np.bitwise_xor(c2, np.uint64(k1), out=c2)
        np.bitwise_and(p1, LOW, out=c1)
        np.bitwise_and(p0, LOW, out=c3)
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF


def words(size: int, seed: int, iteration: int, key: int, first: int = 0) -> np.ndarray:
    """`size` words of the stream for this seed (64 bits), iteration and layer key: uint32 (size,).

    first: the block that they begin with"""
    block = np.arange(first, first + blocks_of(size), dtype=np.uint64)
    work = np.empty((WORK_ROWS, len(block)), np.uint64)
    work[0], work[1] = block & LOW, block >> SHIFT
    work[2], work[3] = iteration & 0xFFFFFFFF, key & 0xFFFFFFFF
    rounds(work, (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))
    return work[:4].T.reshape(-1)[:size].astype(np.uint32)


def threshold(ratio: float) -> int:
    """The smallest word that keeps its element: floor(ratio * 2^32)."""
    return int(ratio * 2**32)


def keep_mask(shape: tuple[int, ...], ratio: float, seed: int, iteration: int, key: int, first: int = 0) -> np.ndarray:
    """The elements that dropout keeps: bool of `shape`, True where kept. first: the block that they begin with"""
    return (words(int(np.prod(shape)), seed, iteration, key, first) >= threshold(ratio)).reshape(shape)
