"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import bounded, frozen, image, lines, masked
from minidnn.onnx.ops.moves import padded, reshaped


@dataclass(frozen=True)
class Windows:
    """A node's windows along one axis of n elements, `count` of them. The first begins `before` elements before it."""

    n: int
    kernel: int
    stride: int
    before: int
    after: int
    up: bool

    @property
    def count(self) -> int:
        """Those that begin on the axis or in the padding before it; with `up` the last may reach over the padding."""
        room = self.n + self.before + self.after - self.kernel
        result = (-(-room // self.stride) if self.up else room // self.stride) + 1
        return result - 1 if self.up and (result - 1) * self.stride >= self.n + self.before else result

    def places(self, least: int, most: int) -> np.ndarray:
        """How many elements of each window lie at least <= place < most."""
        begin = np.arange(self.count) * self.stride - self.before
        return np.maximum(np.minimum(begin + self.kernel, most) - np.maximum(begin, least), 0)


def pool(r: Reader, node: Node) -> None:
    """A Pooling of Caffe's. Its windows begin where the node's do, and may reach over the image at the other side. An
    average then has another divisor, and a constant factor for each place."""
    (x, given), kernel = lifted(r, r.blob(node.inputs[0]), node.name), node.get("kernel_shape")
    if len(node.outputs) > 1 and node.outputs[1]:
        raise Refused("minidnn's Pooling has no top for its second output, the indices of the maxima")
    average = node.type == "AveragePool"
    counts_pad = bool(node.get("count_include_pad", 0)) if average else False
    up = bool(node.get("ceil_mode", 0)) and node.get("auto_pad", "NOTSET") == "NOTSET"
    axes = lines(node, given[2:], kernel)
    if any(a.dilation != 1 for a in axes):
        raise Refused(f"its dilations are {[a.dilation for a in axes]}; Caffe's Pooling has none")
    ways = [Windows(a.n, a.kernel, a.stride, a.before, a.after, up) for a in axes]
    ways = [Windows(1, 1, 1, 0, 0, False)] * (2 - len(ways)) + ways
    if any(w.count < 1 for w in ways):
        raise Refused(f"its windows of {kernel} do not fit into {given[2:]} with their padding")
    if any(max(w.before, w.after) >= w.kernel for w in ways):
        raise Refused("its padding is as wide as its windows or wider, so that one may hold nothing else")
    bounded(sum(w.count for w in ways))
    wanted = [w.places(-w.before, w.n + w.after) if counts_pad else w.places(0, w.n) for w in ways]
    mode = _round_mode(ways)
    if mode is None:
        x, ways = _bordered(r, x, ways, average, node.name)
        mode = _round_mode(ways)
    if mode is None:
        raise Refused(f"it has {[w.count for w in ways]} windows, which no Pooling of Caffe's has")
    fields: dict[str, Any] = {"pool": "AVE"} if average else {}
    fields |= square("kernel", [w.kernel for w in ways], None) | square("stride", [w.stride for w in ways], 1)
    fields |= square("pad", [w.before for w in ways], 0) | ({"round_mode": mode} if mode == "FLOOR" else {})
    counted = [w.places(-w.before, w.n + w.before) for w in ways]
    if average and any((a != b).any() for a, b in zip(wanted, counted, strict=True)):
        if not all(w.all() for w in wanted):
            raise Refused("one of its windows holds nothing but padding, which it does not count")
        factor = np.outer(*counted) / np.outer(*wanted)
        (x,) = r.layer("Pooling", [x], name=f"{node.name}_with_padding", pooling_param=fields)
        top = frozen(r, "Scale", x, factor.astype(np.float32), node.name)
    else:
        top = r.layer("Pooling", [x], name=node.name, pooling_param=fields)
    r.gives(node, [lowered(r, top[0], len(given), node.name)])


def _round_mode(ways: Sequence[Windows]) -> str | None:
    """The round_mode with which Caffe's Pooling has as many windows, and padding `before` at both sides."""
    if any(w.before >= w.kernel for w in ways):
        return None
    for mode, up in (("CEIL", True), ("FLOOR", False)):
        made = []
        for w in ways:
            room = w.n + 2 * w.before - w.kernel
            count = (-(-room // w.stride) if up else room // w.stride) + 1
            made.append(count - 1 if (count - 1) * w.stride >= w.n + w.before else count)
        if made == [w.count for w in ways]:
            return mode
    return None


def _bordered(r: Reader, x: str, ways: Sequence[Windows], average: bool, name: str) -> tuple[str, list[Windows]]:
    """The image in a border of zeros, or of -inf for a maximum; and the windows on it, which need no padding."""
    shape = r.shapes[x]
    before, after = [w.before for w in ways], [w.after for w in ways]
    x = padded(r, x, 2, before, after, f"{name}_padded")
    if not average:
        bounded(math.prod(r.shapes[x][2:]))
        inside = np.zeros(r.shapes[x][2:], bool)
        inside[before[0] : before[0] + shape[2], before[1] : before[1] + shape[3]] = True
        (x,) = masked(r, x, inside, -np.inf, f"{name}_border")
    return x, [Windows(w.n + w.before + w.after, w.kernel, w.stride, 0, 0, w.up) for w in ways]


def square(what: str, values: Sequence[int], plain: int | None) -> dict[str, int]:
    """The fields of a kernel, stride or pad of images; none if both are the default."""
    h, w = map(int, values)
    if h != w:
        return {f"{what}_h": h, f"{what}_w": w}
    return {"kernel_size" if what == "kernel" else what: h} if h != plain else {}


def lifted(r: Reader, x: str, name: str) -> tuple[str, tuple[int, ...]]:
    """(the blob with four axes, its own shape): rows (N, C, W) become images of one row."""
    shape = r.shapes[x]
    if len(shape) == 3:
        return reshaped(r, x, [shape[0], shape[1], 1, shape[2]], f"{name}_image"), shape
    return x, image(shape)


def lowered(r: Reader, x: str, axes: int, name: str) -> str:
    """The blob without its axis H, if the image is made of rows."""
    n, c, _, w = r.shapes[x]
    return reshaped(r, x, [n, c, w], f"{name}_row") if axes == 3 else x


def global_pool(r: Reader, node: Node) -> None:
    x, given = lifted(r, r.blob(node.inputs[0]), node.name)
    fields: dict[str, object] = {"pool": "AVE"} if node.type == "GlobalAveragePool" else {}
    (top,) = r.layer("Pooling", [x], name=node.name, pooling_param=fields | {"global_pooling": True})
    r.gives(node, [lowered(r, top, len(given), node.name)])


OPS = {
    "MaxPool": pool, "AveragePool": pool, "GlobalAveragePool": global_pool, "GlobalMaxPool": global_pool,
}  # fmt: skip
