"""Helpers of several operators: padding, axes, sizes of windows."""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.layers.base import Shape
from minidnn.onnx.node import Node, Refused


def pads(node: Node, size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]):
    """((top, left), (bottom, right)): the padding of a window's node, `auto_pad` included."""
    way = node.get("auto_pad", "NOTSET")
    if way == "NOTSET":
        given = node.get("pads") or [0] * 2 * len(kernel)
        return tuple(given[: len(kernel)]), tuple(given[len(kernel) :])
    if way == "VALID":
        return (0,) * len(kernel), (0,) * len(kernel)
    before, after = [], []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        less, more = total // 2, total - total // 2
        before.append(less if way == "SAME_UPPER" else more)
        after.append(more if way == "SAME_UPPER" else less)
    return tuple(before), tuple(after)


def even(node: Node, size, kernel, stride, dilation) -> tuple[int, ...]:
    """The padding, if it is the same on both sides. Raises Refused if it is not."""
    before, after = pads(node, size, kernel, stride, dilation)
    if before != after:
        raise Refused(f"it pads {before} before and {after} behind; minidnn's windows are padded alike on both sides")
    return before


def image(shape: Shape) -> Shape:
    """The shape. Raises Refused unless it is of images (N, C, H, W)."""
    if len(shape) != 4:
        raise Refused(f"its input has {len(shape)} axes; minidnn's windows slide over images of 4 (N, C, H, W)")
    return shape


def axis_of(axis: int, shape: Shape) -> int:
    """The number from 0 of an axis."""
    if not -len(shape) <= axis < len(shape):
        raise Refused(f"axis {axis} does not exist in shape {shape}")
    return axis % len(shape)


def place_of(index: int, length: int) -> int:
    """The number from 0 of a place along an axis."""
    if not -length <= index < length:
        raise Refused(f"its index {index} is out of an axis of {length}")
    return index % length
