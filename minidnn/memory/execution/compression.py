"""Lossless compression of zeros: one bit per value says whether the value is zero, and the other values lie packed.

Often half of a ReLU's outputs or more are zero. A value counts as zero only if all its bits are zero. So -0.0,
denormals, negative values and every NaN come back as they were. (The authors of vDNN++ keep the values greater than
zero, which is right for ReLU's outputs only.)

In the store a tensor takes a header, then the bits, then the packed values. If that would not be smaller, the tensor's
bytes are stored as they are. So it never takes more than `stored_bound`, and that much is reserved. Ordinary memory
that is never written to costs no page.
"""

from __future__ import annotations

import numpy as np

from minidnn.memory.schedule import HEADER

RAW = -1  # in the header's first eight bytes, instead of a count: the values are not packed
BLOCK = 1 << 16  # values packed at once: a block's mask stays in the processor's cache
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def compress(source: np.ndarray, store: np.ndarray, itemsize: int) -> int:
    """Write `source`, packed, into `store`. Returns the bytes that it takes there.

    source: uint8, values of `itemsize` bytes
    store:  uint8, at least HEADER bytes longer than `source`
    """
    values = source.view(WORDS[itemsize])
    bits = _bits(values.size)
    count = int(np.count_nonzero(values))
    header = store[:8].view(np.int64)
    if bits + source.nbytes * count // max(values.size, 1) >= source.nbytes:
        header[0] = RAW
        np.copyto(store[HEADER : HEADER + source.nbytes], source)
        return HEADER + source.nbytes
    header[0] = count
    mask = store[HEADER : HEADER + bits]
    packed = store[HEADER + bits : HEADER + bits + count * itemsize].view(WORDS[itemsize])
    done = 0
    for at in range(0, values.size, BLOCK):
        block = values[at : at + BLOCK]
        there = block != 0
        some = np.packbits(there)
        mask[at // 8 : at // 8 + some.size] = some
        # By positions, not by the mask: a mask costs a branch per value, hard to predict if half are zero.
        where = np.flatnonzero(there)
        np.take(block, where, out=packed[done : done + where.size], mode="clip")
        done += where.size
    return HEADER + bits + packed.nbytes


def decompress(store: np.ndarray, target: np.ndarray, itemsize: int) -> None:
    """Unpack `store`, as `compress` left it, into `target` (uint8)."""
    values = target.view(WORDS[itemsize])
    count = int(store[:8].view(np.int64)[0])
    if count == RAW:
        np.copyto(target, store[HEADER : HEADER + target.nbytes])
        return
    bits = _bits(values.size)
    mask = store[HEADER : HEADER + bits]
    packed = store[HEADER + bits : HEADER + bits + count * itemsize].view(WORDS[itemsize])
    done = 0
    for at in range(0, values.size, BLOCK):
        block = values[at : at + BLOCK]
        there = np.unpackbits(mask[at // 8 : -(-(at + block.size) // 8)], count=block.size).view(bool)
        where = np.flatnonzero(there)
        block.fill(0)
        block[where] = packed[done : done + where.size]
        done += where.size


def stored_bytes(store: np.ndarray, nbytes: int, itemsize: int) -> int:
    """Bytes that a tensor takes in `store`, as `compress` left it; unpacked it has `nbytes`."""
    count = int(store[:8].view(np.int64)[0])
    return HEADER + (nbytes if count == RAW else _bits(nbytes // itemsize) + count * itemsize)


def _bits(values: int) -> int:
    """Bytes of the mask, rounded up so that the packed values behind it lie aligned."""
    return -(-values // 64) * 8
