"""The messages of layers that move elements, and change none."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from minidnn.schema.common import AXES, few_axes
from minidnn.schema.message import LARGEST, OURS, Int, Message, Positive, Repeated, Uint, field


class ReshapeShape(Message):
    """A shape as Reshape takes it: 0 copies the bottom's length, -1 is computed from the others."""

    dim: Repeated[Annotated[int, Field(ge=-1, le=LARGEST)]] = field(1, ())

    @field_validator("dim")
    @classmethod
    def _axes(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return few_axes(value)


class ConcatParameter(Message):
    axis: Int = field(2, 1)
    concat_dim: Int | None = field(1, None, old=True)


class SliceParameter(Message):
    axis: Int = field(3, 1)
    slice_point: Repeated[Positive] = field(2, ())
    slice_dim: Int | None = field(1, None, old=True)


class FlattenParameter(Message):
    axis: Int = field(1, 1)
    end_axis: Int = field(2, -1)


class ReshapeParameter(Message):
    shape: ReshapeShape = field(1, ReshapeShape())
    axis: Int = field(2, 0)
    num_axes: Annotated[int, Field(ge=-1, le=AXES)] = field(3, -1)


class PermuteParameter(Message):
    """SSD's. The axes that are not named follow in their order."""

    order: Repeated[Uint] = field(1, ())


class PadParameter(Message):
    """Ours: numbers of zeros, one for each axis from `axis` on, or one for all of these."""

    axis: Int = field(OURS, 2)
    before: Repeated[Uint] = field(OURS + 1, ())
    after: Repeated[Uint] = field(OURS + 2, ())


class TileParameter(Message):
    axis: Int = field(1, 1)
    tiles: Positive = field(2)


class RollParameter(Message):
    """Ours: how many places elements move along the axis, in a circle."""

    axis: Int = field(OURS, 1)
    shift: Int = field(OURS + 1)  # places, towards the end; negative: towards the begin
