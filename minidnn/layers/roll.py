"""Roll: moves its bottom's elements along an axis, in a circle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.layers.base import Shape, Site, positive_axis
from minidnn.layers.moving import Moving
from minidnn.program import Op, Pass


@dataclass(frozen=True)
class RollAttrs:
    axis: int
    shift: int  # from 0 to below the axis's length


class Roll(Moving):
    """Ours, like PyTorch's roll: each element moves `shift` positions along the axis. Elements that leave at one end
    enter at the other."""

    type = "Roll"
    field_name = "roll_param"
    needs = ("shift",)

    def attrs(self, shape: Shape, back: bool = False) -> RollAttrs:
        axis, shift = positive_axis(self.param.axis, shape), self.param.shift
        return RollAttrs(axis, (-shift if back else shift) % shape[axis])

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        positive_axis(self.param.axis, bottoms[0])
        return [bottoms[0]]

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        yield s.op("roll.forward", [x], [y], self.attrs(x.shape), flops=x.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), (dx,), a = s.arriving, s.bottom_gradients, self.attrs(s.x[0].shape, back=True)
        yield s.op("roll.forward", [dy], [dx], a, flops=dy.size, name="backward", during=Pass.BACKWARD)
