"""Jenkins' lookup3 hash, with which HDF5 sums its structures, and where such sums lie in a file."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_MASK = 0xFFFFFFFF
_MIXED = ((0, 2, 4), (1, 0, 6), (2, 1, 8), (0, 2, 16), (1, 0, 19), (2, 1, 4))
_LAST = ((2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24))


def _turned(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & _MASK


def lookup3(data: bytes) -> int:
    state = [(0xDEADBEEF + len(data)) & _MASK] * 3
    if not data:
        return state[2]
    words = struct.unpack(f"<{-(-len(data) // 12) * 3}I", data.ljust(-(-len(data) // 12) * 12, b"\0"))
    for at in range(0, len(words), 3):
        state = [(s + w) & _MASK for s, w in zip(state, words[at : at + 3], strict=True)]
        if at + 3 < len(words):
            for one, by, turn in _MIXED:
                state[one] = (state[one] - state[by] & _MASK) ^ _turned(state[by], turn)
                other = 3 - one - by
                state[by] = (state[by] + state[other]) & _MASK
    for one, by, turn in _LAST:
        state[one] = ((state[one] ^ state[by]) - _turned(state[by], turn)) & _MASK
    return state[2]


def summed(data: bytes, signatures: Sequence[bytes], most: int = 800) -> list[tuple[int, int]]:
    """(first, behind the last) of each structure with one of these signatures; its sum comes next."""
    result = []
    for signature in signatures:
        at = data.find(signature)
        while at >= 0:
            for end in range(at + 8, min(len(data) - 3, at + most)):
                if lookup3(data[at:end]) == int.from_bytes(data[end : end + 4], "little"):
                    result.append((at, end))
                    break
            at = data.find(signature, at + 1)
    return result
