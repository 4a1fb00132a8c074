"""A recipe is one way to compute an op on a GPU: its workspace, and the launches that do it, as plain values.

An argument that points into memory is symbolic: the op's i-th read or write, or a piece of the workspace. So one recipe
serves the GPU, the tests that run kernels on the CPU, and the check for races. Making one needs no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidnn.backends.workspace import Space, Workspace
from minidnn.errors import BadInput
from minidnn.program import Algorithm, Op
from minidnn.spoken import option

BLOCK = 256  # threads of a block, unless a kernel says otherwise
FILLING = 1024  # blocks that keep all processors of the largest GPUs busy
MOST_BLOCKS = 1 << 16  # most blocks of a grid-stride kernel: more than any GPU runs at once
# Kernels number a tensor's elements in 64 bits, and those of a row, a plane or an axis in 32. Some round up to a tile.
LARGEST = (1 << 31) - 1024


class TooLarge(BadInput, ValueError):
    """A row, a plane or an axis has more elements than a kernel counts. `size`: how many."""

    def __init__(self, size: int, why: str = "") -> None:
        super().__init__(why or f"{size} elements in a row; kernels count {LARGEST}")
        self.size = size

    def of(self, op: Op) -> TooLarge:
        """The same, with a message that names the layer, the number, and what would work."""
        shapes = ", ".join(f"{t.name} {'x'.join(map(str, t.shape))}" for t in op.tensors)
        return TooLarge(
            self.size,
            f"layer {op.layer}, {op.name}: a row, a plane or an axis of {shapes} has {self.size} elements, and the "
            f"cuda backend's kernels count {LARGEST} of them: shape the bottom so that they lie along more axes, or "
            f"use {option('device', 'cpu')}",
        )


def int32(n: int) -> np.int32:
    """A number as a kernel's int. Raises TooLarge if it is larger than LARGEST."""
    if n > LARGEST:
        raise TooLarge(n)
    return np.int32(n)


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
Scalar = Pointer | np.generic  # a NumPy scalar has exactly the kernel's type: int32(3), np.int64(n), np.float32(0.5)


@dataclass(frozen=True)
class Table:
    """A struct that a kernel takes by value: its arrays, one after the other, each with room for `most` entries.

    So the pointers to many tensors need no memory of the device, and a captured graph has them. Wider entries come
    first, so that C adds no padding between arrays. A kernel takes at most 4096 bytes of parameters."""

    most: int
    columns: tuple[tuple[Scalar, ...], ...]

    @property
    def pointers(self) -> Iterator[Pointer]:
        return (entry for column in self.columns for entry in column if isinstance(entry, Pointer))

    def packed(self, value: Callable[[Scalar], np.generic]) -> np.void:
        """The struct's bytes. `value`: the number of an entry, which for a pointer is its address."""
        arrays = []
        for column in self.columns:
            numbers = [value(entry) for entry in column]
            arrays.append(np.zeros(self.most, numbers[0].dtype))
            arrays[-1][: len(numbers)] = numbers
        result = b"".join(a.tobytes() for a in arrays)
        return np.void(result + bytes(-len(result) % 8))


Argument = Scalar | Table


@dataclass(frozen=True)
class Launch:
    """One kernel of kernels/<source>.cu. `shared`: bytes of dynamic shared memory."""

    source: str
    kernel: str
    arguments: tuple[Argument, ...]
    grid: int
    block: int = BLOCK
    shared: int = 0

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """All pointers among the arguments and in their tables, each once."""
        result: dict[Pointer, None] = {}
        for a in self.arguments:
            result |= dict.fromkeys(a.pointers if isinstance(a, Table) else [a] if isinstance(a, Pointer) else [])
        return tuple(result)

    def values(self, address: Callable[[Pointer], int]) -> list[np.generic]:
        """The arguments as a launch takes them: np.uint64 for a pointer, np.void for a table."""

        def value(a: Scalar) -> np.generic:
            return a if isinstance(a, np.generic) else np.uint64(address(a))

        return [a.packed(value) if isinstance(a, Table) else value(a) for a in self.arguments]

    def copies_in_place(self, address: Callable[[Pointer], int]) -> bool:
        """Whether it copies bytes to where they are, as a reshape in place does: then it need not be launched."""
        return (self.source, self.kernel) == ("elementwise", "copy") and len(set(map(address, self.pointers))) == 1


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


def divisor(by: int) -> tuple[np.uint32, np.uint32, np.uint32]:
    """The struct Divisor of kernels/common.cuh: a quotient a // by, for a below 2^31, is ((a * factor >> 32) + a) >>
    shift (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994)."""
    shift = (by - 1).bit_length()
    return np.uint32(by), np.uint32((((1 << shift) - by) << 32) // by + 1), np.uint32(shift)
