"""The two functions of CUDA that the allocator of planned addresses asks, on the host's memory."""

from __future__ import annotations

import ctypes
from typing import Any

from minidnn.torch.addresses import library as native


class Driver:
    """CUDA's memory, of so many bytes, from the host's malloc."""

    def __init__(self, nbytes: int) -> None:
        self.left, self.given = nbytes, dict[int, tuple[Any, int]]()
        self.take, self.give = native.TAKE(self._take), native.GIVE(self._give)

    def _take(self, to: Any, nbytes: int) -> int:
        if nbytes > self.left:
            return 2
        block = ctypes.create_string_buffer(nbytes + 512)
        at = -(-ctypes.addressof(block) // 512) * 512
        self.given[at] = block, nbytes
        self.left -= nbytes
        to[0] = at
        return 0

    def _give(self, at: int) -> int:
        self.left += self.given.pop(at)[1]
        return 0
