"""Zero-value compression, without loss: one bit for each value says whether it is zero, and the others lie packed.

What ReLU leaves is half zeros or more. "Zero" means that all bits are: -0.0, denormals, negative values and every NaN
come back as they were. (The authors of vDNN++ keep what is greater than zero, which holds for ReLU's outputs only.)

In the store a tensor takes a header, then its bits, then what is not zero; where that would not be smaller, its bytes
as they are. So it never takes more than `stored_bound`, which is what is reserved for it: ordinary memory that is not
written to costs no page.
"""

from __future__ import annotations

import numpy as np

from minidnn.memory.schedule import HEADER

RAW = -1  # in the header's first eight bytes, where else a count of values is
BLOCK = 1 << 16  # values packed at once: a block's mask stays in the processor's cache
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def compress(source: np.ndarray, store: np.ndarray, itemsize: int) -> int:
    """Write `source` (uint8, of values of `itemsize` bytes) into `store` (uint8, at least HEADER bytes more), and
    return how many bytes it takes there."""
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
        # By positions, not by the mask itself: these come without a branch for each value, which halves do not predict.
        where = np.flatnonzero(there)
        np.take(block, where, out=packed[done : done + where.size], mode="clip")
        done += where.size
    return HEADER + bits + packed.nbytes


def decompress(store: np.ndarray, target: np.ndarray, itemsize: int) -> None:
    """Write to `target` (uint8) what was packed into `store`."""
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


def taken(store: np.ndarray, nbytes: int, itemsize: int) -> int:
    """Bytes that what was packed into `store` takes there; it has `nbytes` unpacked."""
    count = int(store[:8].view(np.int64)[0])
    return HEADER + (nbytes if count == RAW else _bits(nbytes // itemsize) + count * itemsize)


def _bits(values: int) -> int:
    """Bytes of the mask, so that what follows lies aligned."""
    return -(-values // 64) * 8
