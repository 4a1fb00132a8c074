"""A factor or a constant that spans the axes [axis, axis + num_axes) of a bottom and is the same along the others.
Scale and Bias share this, with Caffe's rules for shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minidnn.layers.base import Shape, ShapeError, positive_axis, text


@dataclass(frozen=True)
class BroadcastAttrs:
    axis: int  # the first axis of the larger tensor that the smaller one spans


def spanned(param: Any, bottoms: Sequence[Shape]) -> tuple[int, Shape]:
    """(first axis, shape) of the factor or constant.

    It is the second bottom, if there is one; else the bottom's axes from `axis` on, num_axes of them, or all for -1. Of
    no axes it is one element, for all of the bottom. Raises ShapeError if it does not fit."""
    x = bottoms[0]
    if len(bottoms) == 1 and param.num_axes == 0:
        return 0, (1,)
    axis = positive_axis(param.axis, x)
    count = len(bottoms[1]) if len(bottoms) > 1 else len(x) - axis if param.num_axes < 0 else param.num_axes
    result = x[axis : axis + count]
    if len(result) < count:
        raise ShapeError(f"{count} axes from axis {axis} on are more than the {len(x)} axes of its bottom {text(x)}")
    if len(bottoms) > 1 and bottoms[1] != result:
        raise ShapeError(
            f"the second bottom is {text(bottoms[1])}, but the first, {text(x)}, has {text(result)} from axis {axis} on"
        )
    return axis, result
