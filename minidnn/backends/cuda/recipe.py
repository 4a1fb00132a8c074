"""A recipe is one way to compute an op on a GPU: its workspace, and the launches that do it, as plain values.

An argument that points into memory is symbolic: the op's i-th read or write, or a piece of the workspace. So one recipe
serves the GPU, the tests that run kernels on the CPU, and the check for races. Making one needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minidnn.backends.workspace import Space, Workspace
from minidnn.program import Algorithm, Op

BLOCK = 256  # threads of a block, unless a kernel says otherwise
FILLING = 1024  # blocks that keep all processors of the largest GPUs busy
MOST_BLOCKS = 1 << 16  # most blocks of a grid-stride kernel: more than any GPU runs at once


@dataclass(frozen=True)
class Read:
    """The address of the op's i-th read, plus so many bytes."""

    index: int
    offset: int = 0


@dataclass(frozen=True)
class Write:
    """The address of the op's i-th write, plus so many bytes."""

    index: int
    offset: int = 0


Pointer = Read | Write | Space
# A NumPy scalar has exactly the kernel's type: np.int32(3), np.int64(n), np.float32(0.5).
Argument = Pointer | np.generic


@dataclass(frozen=True)
class Launch:
    """One kernel of kernels/<source>.cu. `shared`: bytes of dynamic shared memory."""

    source: str
    kernel: str
    arguments: tuple[Argument, ...]
    grid: int
    block: int = BLOCK
    shared: int = 0


@dataclass(frozen=True)
class Execute:
    """One plan of a cuDNN graph (cudnn.py). `pack`: pairs of a tensor's uid in the graph and its address."""

    plan: Any
    pack: tuple[tuple[int, Pointer], ...]
    workspace: Space


@dataclass(frozen=True)
class Recipe:
    algorithm: Algorithm
    steps: tuple[Launch | Execute, ...]


STORAGE = {"float16": "fp16", "bfloat16": "bf16"}


def storage(op: Op) -> str:
    """The type that the op's kernels are compiled for, T in kernels/common.cuh. It is the op's one format of 16 bits,
    or float if all its tensors are float32."""
    return next((STORAGE[t.dtype] for t in op.tensors if t.dtype in STORAGE), "float")


class Scratch(Workspace):
    """The workspace of a recipe that is being made."""

    def recipe(self, name: str, *steps: Launch | Execute) -> Recipe:
        return Recipe(Algorithm(name, self.nbytes), steps)


def plain(*steps: Launch | Execute, name: str = "default") -> Recipe:
    """A recipe without a workspace."""
    return Recipe(Algorithm(name, 0), steps)


def over(n: int, block: int = BLOCK) -> int:
    """The blocks of a grid-stride kernel over n items: at least one, at most MOST_BLOCKS."""
    return max(1, min(-(-n // block), MOST_BLOCKS))


def by_fours(source: str, kernel: str, n: int, *arguments: Argument) -> Launch:
    """A grid-stride kernel over n elements that moves several at a time; its last parameter is n. A thread takes 16,
    or fewer if there are not enough for FILLING blocks."""
    return Launch(source, kernel, (*arguments, np.int64(n)), max(over(-(-n // 16)), min(over(-(-n // 4)), FILLING)))
