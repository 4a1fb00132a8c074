"""A node that is computed now: its inputs, and the budget that its outputs come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidnn.layers.base import text
from minidnn.onnx.node import Node, Refused
from minidnn.onnx.tensors import AXES

LEAST = 256 << 20  # bytes that the constants of any file may take
TIMES = 8  # bytes of constants for each byte of a file


class Budget:
    """The bytes that all nodes of constants of a file may compute together; of slow ones each byte counts twice, or
    more often."""

    def __init__(self, size: int) -> None:
        """size: bytes of the file, with its external data"""
        self.all = self.left = LEAST + TIMES * size

    def spend(self, count: int, what: str) -> None:
        """Take so many bytes. Raises Refused if they are not left."""
        if count > self.left:
            raise Refused(
                f"{what} is too large to be computed as the file is read: it costs {count} bytes, and {self.left} are "
                f"left of {self.all}, for a file of this size; let it hold the result instead"
            )
        self.left -= count


class Call:
    """A node, the values of its inputs, and what functions ask about them."""

    def __init__(self, node: Node, inputs: Sequence[np.ndarray | None], budget: Budget) -> None:
        self.node, self.inputs, self.budget = node, list(inputs), budget

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def x(self, i: int = 0) -> np.ndarray:
        """The i-th input. Raises Refused if it is left out."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            raise Refused(f"its input {i} is left out")
        return value

    def given(self) -> list[np.ndarray]:
        """The inputs that are not left out."""
        return [x for x in self.inputs if x is not None]

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.node.get(name, default)

    def spend(self, shape: Sequence[int], dtype: Any, work: int = 1) -> tuple[int, ...]:
        """The shape of an output, whose bytes are taken from the budget. Raises Refused if no array has that shape.

        work: how many times the cost of a copy it takes to compute it"""
        result = tuple(map(int, shape))
        if len(result) > AXES or min(result, default=0) < 0:
            raise Refused(f"its output would have the shape {text(result)}")
        self.budget.spend(math.prod(result) * np.dtype(dtype).itemsize * max(1, work), f"its output of {text(result)}")
        return result

    def integers(self, i: int, name: str = "") -> list[int] | None:
        """The numbers of an input, or of the attribute that older versions have for it; None if there is neither."""
        if name and (said := self.attribute(name)) is not None:
            return [int(n) for n in (said if isinstance(said, list) else [said])]
        if not self.has(i):
            return None
        value = self.x(i)
        if value.dtype.kind not in "iu":
            raise Refused(f"its input {i} has the type {value.dtype}; whole numbers are needed")
        return [int(n) for n in value.reshape(-1)]

    def number(self, i: int) -> Any:
        """The one number of an input. Raises Refused if it has more, or none."""
        value = self.x(i)
        if value.size != 1:
            raise Refused(f"its input {i} has shape {text(value.shape)}; one number is needed")
        return value.reshape(())[()]

    def axis(self, value: int, rank: int | None = None) -> int:
        """The number from 0 of an axis. Raises Refused if there is none."""
        rank = self.x().ndim if rank is None else rank
        if not -rank <= value < rank:
            raise Refused(f"axis {value} does not exist among {rank}")
        return value % rank


Function = Callable[[Call], "np.ndarray | list[np.ndarray]"]
