"""Reshape: gives its bottom another shape; the elements keep their order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from minidnn.layers.base import Shape, ShapeError, text
from minidnn.layers.flatten import Flatten
from minidnn.schema.common import AXES


class Reshape(Flatten):
    """Caffe's Reshape: `num_axes` axes from `axis` on become those of `shape`. A length of 0 copies the length of the
    bottom's axis at the same position. A length of -1 is inferred from the number of elements. The ops are those of
    Flatten."""

    type = "Reshape"
    field_name = "reshape_param"

    def replaced(self, shape: Shape) -> tuple[int, int]:
        """(first, end) of the axes that `shape` replaces, end excluded. Raises ShapeError."""
        p, n = self.param, len(shape)
        first = p.axis if p.axis >= 0 else n + p.axis + 1  # -1 is behind the last axis
        end = n if p.num_axes == -1 else first + p.num_axes
        if not 0 <= first <= n:
            raise ShapeError(f"axis {p.axis} is none of -{n + 1} .. {n}, those of the bottom {text(shape)} and its end")
        if end > n:
            raise ShapeError(
                f"num_axes {p.num_axes} from axis {first} on is beyond the {n} axes of the bottom {text(shape)}"
            )
        return first, end

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        (shape,), given = bottoms, list(self.param.shape.dim)
        first, end = self.replaced(shape)
        if given.count(-1) > 1:
            raise ShapeError(f"shape {given}: only one of its lengths can be -1")
        if 0 in given[len(shape) - first :]:
            raise ShapeError(
                f"shape {given} from axis {first} on: a 0 copies the length of an axis, and the bottom {text(shape)} "
                f"lacks it"
            )
        dims = [shape[first + i] if dim == 0 else dim for i, dim in enumerate(given)]
        made = [*shape[:first], *dims, *shape[end:]]
        if len(made) > AXES:
            raise ShapeError(f"the top would have {len(made)} axes, and {AXES} are the most")
        count, known = math.prod(shape), math.prod(n for n in made if n != -1)
        if count % known or (count != known and -1 not in made):
            left = "no multiple of that" if -1 in made else "not as many; a length of -1 takes what is left"
            raise ShapeError(
                f"shape {given} from axis {first} on makes {known} elements, and the bottom {text(shape)} has {count}, "
                f"{left}"
            )
        return [tuple(count // known if n == -1 else n for n in made)]
