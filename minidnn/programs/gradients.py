"""Gradients that come in parts: of an activation with several consumers, of a weight that several layers read.

The parts are added as soon as there are two, in the order in which they come. That is the reverse order of the layers,
so the order of each sum is fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from minidnn.layers.facts import Facts
from minidnn.program import Op, Pass, Tensor

ADD = "gradient.add"


@dataclass(eq=False)
class _Sum:
    whole: Tensor  # the whole gradient
    parts: int = 0  # how many will come
    arrived: int = 0  # how many have come
    so_far: Tensor | None = None  # their sum


class Gradients:
    """The gradients of one program, by the tensor that each belongs to; their adds go to `emit`."""

    def __init__(self, facts: Facts, emit: Callable[[Op], object]) -> None:
        self._facts, self._emit = facts, emit
        self._sums: dict[Tensor, _Sum] = {}

    def expect(self, t: Tensor, whole: Tensor) -> None:
        """Expect one more part of t's gradient, which is `whole`."""
        self._sums.setdefault(t, _Sum(whole)).parts += 1

    def part(self, t: Tensor, by: str) -> Tensor:
        """A tensor for a part of t's gradient, the one of `by`: the whole gradient, if no other part will come."""
        one = self._sums[t]
        return one.whole if one.parts == 1 else replace(one.whole, name=f"{one.whole.name}.{by}")

    def of(self, t: Tensor) -> Tensor | None:
        """The sum of the parts that have come; None: none has."""
        return self._sums[t].so_far if t in self._sums else None

    def arrive(self, t: Tensor, part: Tensor, layer: str) -> bool:
        """Add a part to the sum of the earlier ones, if any; return whether the gradient is complete. The add belongs
        to the layer that wrote the part, and runs right after that layer's backward."""
        one = self._sums[t]
        before, one.so_far = one.so_far, part
        one.arrived += 1
        last = one.arrived == one.parts
        if before is not None:
            total = one.whole if last else replace(one.whole, name=f"{one.whole.name}.sum{one.arrived}")
            inplace = [(before, total), (part, total)]
            if self._facts.sum == "copy":  # the parts are added up in a tensor of its own
                inplace = [(before, total)] if one.arrived > 2 else []
            pairs = self._facts.pairs(ADD, dict.fromkeys(inplace))
            name, reads = f"{layer}.add_{total.name}", (before, part)
            self._emit(Op(name, ADD, layer, Pass.BACKWARD, reads, (total,), None, pairs, total.size))
            one.so_far = total
        return last
