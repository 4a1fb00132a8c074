"""Moves of elements into a shape that a layer's kernels take, and back.

Most kernels work on memory as it lies. But a 4-D tensor may lie in another order than that of its axes, with channels
innermost (backends/layout.py). A kernel that needs rows in the order of the axes then works on a copy of another shape.
An op makes it: flatten.forward or flatten.backward, as for a Flatten.
"""

from __future__ import annotations

from collections.abc import Iterable

from minidnn.layers.base import Shape, Site
from minidnn.program import Op, Role, Tensor


def other(s: Site, t: Tensor, shape: Shape, name: str, role: Role = Role.EXTRA) -> Tensor:
    """The layer's tensor `name` of this shape, for the elements of t; t itself if it has the shape."""
    return t if t.shape == shape else s.extra(name, shape, t.dtype, role)


def move(s: Site, source: Tensor, target: Tensor, verb: str = "forward") -> Iterable[Op]:
    """The op that copies the elements, in the order of the axes; none if both are one tensor.

    verb: "forward" or "backward", the pass that the op belongs to"""
    if source != target:
        name = target.name if target in s.extras.values() else source.name
        kind = f"flatten.{verb}"
        yield s.op(kind, [source], [target], flops=source.size, name=f"move_{name.removeprefix(f'{s.layer}.')}")
