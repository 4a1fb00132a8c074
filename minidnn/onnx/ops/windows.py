"""Pooling, and images in another size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import even, image


def pool(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    size, kernel = image(r.shapes[x])[2:], node.get("kernel_shape")
    stride, dilation = node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    if set(dilation) != {1}:
        raise Refused(f"its dilations are {dilation}; Caffe's Pooling has none")
    if len(node.outputs) > 1 and node.outputs[1]:
        raise Refused("its second output, the indices of the maxima, is no top of minidnn's Pooling")
    pad = even(node, size, kernel, stride, dilation)
    average = node.type == "AveragePool"
    up = bool(node.get("ceil_mode", 0)) and node.get("auto_pad", "NOTSET") == "NOTSET"
    if average and not node.get("count_include_pad", 0) and _uncounted(size, kernel, stride, pad, up):
        raise Refused("it does not count padding (count_include_pad=0), and Caffe's AVE does")
    fields: dict[str, object] = {"pool": "AVE"} if average else {}
    for what, (h, w), plain in (("kernel", kernel, None), ("stride", stride, 1), ("pad", pad, 0)):
        square = "kernel_size" if what == "kernel" else what
        if h == w:
            fields |= {square: int(h)} if h != plain else {}
        else:
            fields |= {f"{what}_h": int(h), f"{what}_w": int(w)}
    down = [(n + 2 * p - k) // s + 1 for n, k, s, p in zip(size, kernel, stride, pad, strict=True)]
    rounded = [-(-(n + 2 * p - k) // s) + 1 for n, k, s, p in zip(size, kernel, stride, pad, strict=True)]
    if down != rounded and not up:
        fields["round_mode"] = "FLOOR"
    r.gives(node, r.layer("Pooling", [x], name=node.name, pooling_param=fields))


def _uncounted(size, kernel, stride, pad, up: bool) -> bool:
    """Whether some window holds padding, or hangs over the edge by rounding up."""
    return any(pad) or (up and any((n - k) % s for n, k, s in zip(size, kernel, stride, strict=True)))


def global_pool(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    image(r.shapes[x])
    fields: dict[str, object] = {"pool": "AVE"} if node.type == "GlobalAveragePool" else {}
    r.gives(node, r.layer("Pooling", [x], name=node.name, pooling_param=fields | {"global_pooling": True}))


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
