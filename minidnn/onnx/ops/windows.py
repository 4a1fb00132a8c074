"""Pooling, and images in another size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.activations import frozen, masked
from minidnn.onnx.ops.common import image, lines
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
        raise Refused("its second output, the indices of the maxima, is no top of minidnn's Pooling")
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


def resize(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    n, c, h, w = image(r.shapes[x])
    named = ["", "scales"] if node.type == "Upsample" else ["", "roi", "scales", "sizes"]
    given = {what: r.known(node.input(i)) for i, what in enumerate(named) if what and node.input(i)}
    if node.get("axes"):
        raise Refused("it names axes; it must size all four")
    sizes, scales = given.get("sizes"), given.get("scales")
    if sizes is not None and sizes.size == 4:
        to = [int(v) for v in sizes]
    elif scales is not None and scales.size == 4:
        to = [int(np.floor(float(s) * d)) for s, d in zip(scales, (n, c, h, w), strict=True)]
    else:
        raise Refused("its sizes must be constants, for all four axes")
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refused("keep_aspect_ratio_policy must be stretch")
    if to[:2] != [n, c]:
        raise Refused(f"it sizes the batch or the channels: {(n, c)} become {tuple(to[:2])}")
    mode, place = node.get("mode", "nearest"), node.get("coordinate_transformation_mode", "half_pixel")
    grown = to[2] % h == 0 and to[3] % w == 0 and to[2] // h == to[3] // w
    exact = scales is None or all(float(s) == int(s) for s in scales)
    if node.type == "Upsample":
        place = "asymmetric"
    rounding = node.get("nearest_mode", "round_prefer_floor")
    if mode == "nearest" and grown and exact and _squares(place, rounding, to[2] // h):
        r.gives(node, r.layer("Upsample", [x], name=node.name, upsample_param={"scale": to[2] // h}))
    elif mode == "linear" and place == "align_corners" and (scales is None or _whole(scales, r.shapes[x])):
        r.gives(node, r.layer("Interp", [x], name=node.name, interp_param={"height": to[2], "width": to[3]}))
    else:
        raise Refused(
            f"mode {mode} with {place}: minidnn has nearest by one whole factor, and linear with align_corners"
        )


def _whole(scales: np.ndarray, shape: Sequence[int]) -> bool:
    """Whether the scales give whole lengths: others are rounded, and the corners then lie between pixels."""
    return all(float(s) * n == int(float(s) * n) for s, n in zip(scales, shape, strict=True))


def _squares(place: str, rounding: str, factor: int) -> bool:
    """Whether each pixel becomes a square of equal ones."""
    at = np.arange(factor * 4)
    if place == "half_pixel":
        source = (at + 0.5) / factor - 0.5
    elif place == "asymmetric":
        source = at / factor
    else:
        return False
    rounded = {
        "round_prefer_floor": np.ceil(source - 0.5), "round_prefer_ceil": np.floor(source + 0.5),
        "floor": np.floor(source), "ceil": np.ceil(source),
    }[rounding]  # fmt: skip
    return bool((np.clip(rounded, 0, 3) == at // factor).all())


OPS = {
    "MaxPool": pool, "AveragePool": pool, "GlobalAveragePool": global_pool, "GlobalMaxPool": global_pool,
    "Resize": resize, "Upsample": resize,
}  # fmt: skip
