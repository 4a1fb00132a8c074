"""Helpers of several operators: padding, axes, sizes of windows, constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidnn.layers.base import Shape
from minidnn.onnx.node import Node, Reader, Refused


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


@dataclass(frozen=True)
class Line:
    """What a node's windows do along one axis of n elements."""

    n: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int


def lines(node: Node, size: Sequence[int], kernel: Sequence[int]) -> list[Line]:
    """The windows along each axis of these sizes. Raises Refused if the node's numbers are not as many."""
    count = len(size)
    stride, dilation = node.get("strides") or [1] * count, node.get("dilations") or [1] * count
    if {len(kernel), len(stride), len(dilation)} != {count} or len(node.get("pads") or [0] * 2 * count) != 2 * count:
        raise Refused(f"it has kernels, strides, dilations or pads of other than the {count} axes of its windows")
    before, after = pads(node, size, kernel, stride, dilation)
    result = [Line(*map(int, each)) for each in zip(size, kernel, stride, dilation, before, after, strict=True)]
    if any(min(a.kernel, a.stride, a.dilation) < 1 for a in result) or any(min(a.before, a.after) < 0 for a in result):
        raise Refused("its kernels, strides and dilations must be positive, and its pads must not be negative")
    return result


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


def span(small: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, int] | None:
    """(first axis, number of axes) of `whole` that a value of shape `small` spans when it is broadcast; None if these
    axes are not contiguous, or if the value is longer."""
    full = (1,) * (len(whole) - len(small)) + tuple(small)
    if len(full) != len(whole) or any(a not in (1, b) for a, b in zip(full, whole, strict=True)):
        return None
    axes = [i for i, (a, b) in enumerate(zip(full, whole, strict=True)) if a == b and b != 1]
    if not axes or any(full[i] != whole[i] for i in range(axes[0], axes[-1] + 1)):
        return None
    return axes[0], axes[-1] - axes[0] + 1


def number(r: Reader, name: str, what: str) -> float:
    """The number that a constant holds. Raises Refused if it holds several, or is none."""
    value = r.constant(name, what)
    if value.size != 1:
        raise Refused(f"its {what} has shape {value.shape}; one number is needed")
    return float(value.reshape(()))


MOST = 1 << 26  # numbers of a constant that a handler makes


def bounded(count: int) -> None:
    """Raise Refused if a constant that the file does not hold would have so many numbers."""
    if count > MOST:
        raise Refused(f"it needs a constant of {count} numbers; {MOST} are the most")


def masked(r: Reader, x: str, holds: np.ndarray, other: np.ndarray | float, name: str) -> list[str]:
    """x where `holds`, else `other`; both are broadcast over x."""
    shape = r.shapes[x]
    bounded(holds.size)
    factor = np.where(holds, np.float32(1), np.float32(0))
    constant = np.where(holds, np.float32(0), np.asarray(other, np.float32))
    top = frozen(r, "Scale", x, factor, f"{name}_kept" if constant.any() else name)
    if constant.any():
        top = frozen(r, "Bias", top[0], constant, name)
    assert r.shapes[top[0]] == shape
    return top


def frozen(r: Reader, kind: str, x: str, value: np.ndarray, name: str) -> list[str]:
    """A frozen Scale or Bias of the axes from the first to the last along which the value differs."""
    shape = r.shapes[x]
    full = value.reshape((1,) * (len(shape) - value.ndim) + value.shape)
    axes = [i for i in range(full.ndim) if full.shape[i] != 1] or [len(shape) - 1]
    first, last = axes[0], axes[-1] + 1
    spanned = [length if first <= i < last else 1 for i, length in enumerate(shape)]
    bounded(math.prod(spanned))
    blob = np.broadcast_to(full, spanned).reshape(shape[first:last])
    fields: dict[str, Any] = {f"{kind.lower()}_param": {"axis": first, "num_axes": last - first}}
    return r.layer(kind, [x], [blob], name=name, **fields)
