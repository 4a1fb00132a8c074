"""Images in another size.

A whole factor of nearest pixels is an Upsample, and a linear one with corners aligned is an Interp. All others are a
product along each axis with a constant matrix: row j has the weights of the pixels that make pixel j.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import axis_of, image
from minidnn.onnx.ops.moves import turned

LARGEST = 1 << 24  # most numbers of such a matrix


def resize(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    shape = image(r.shapes[x])
    to, scales = _lengths(r, node, shape)
    if node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refused("keep_aspect_ratio_policy must be stretch")
    if to[:2] != list(shape[:2]):
        raise Refused(f"it sizes the batch or the channels: {shape[:2]} become {tuple(to[:2])}")
    mode, rounding = node.get("mode", "nearest"), node.get("nearest_mode", "round_prefer_floor")
    place = node.get("coordinate_transformation_mode", "half_pixel")
    if node.type == "Upsample":
        place, rounding = "asymmetric", "floor"
    a, exclude = float(node.get("cubic_coeff_a", -0.75)), bool(node.get("exclude_outside", 0))
    if max(to) > LARGEST:
        raise Refused(f"it makes {to[2]} x {to[3]} pixels; {LARGEST} in a line are the most")
    sources = [
        _places(n, m, scales[i] if scales else m / n, place)
        for i, (n, m) in enumerate(zip(shape[2:], to[2:], strict=True), 2)
    ]
    factor = to[2] // shape[2]
    if mode == "nearest" and to[2:] == [n * factor for n in shape[2:]] and _squares(sources, shape, rounding, factor):
        r.gives(node, r.layer("Upsample", [x], name=node.name, upsample_param={"scale": factor}))
    elif mode == "linear" and place == "align_corners":
        r.gives(node, r.layer("Interp", [x], name=node.name, interp_param={"height": to[2], "width": to[3]}))
    else:
        for axis in (3, 2):
            matrix = _matrix(shape[axis], sources[axis - 2], mode, rounding, a, exclude)
            x = _product(r, x, axis, matrix, node.name)
        r.gives(node, [x])


def _squares(sources: Sequence[np.ndarray], shape: Sequence[int], rounding: str, factor: int) -> bool:
    """Whether each pixel becomes a square of equal ones."""
    at = [np.clip(_rounded(s, rounding), 0, n - 1) for s, n in zip(sources, shape[2:], strict=True)]
    return all(np.array_equal(place, np.arange(len(place)) // factor) for place in at)


def _lengths(r: Reader, node: Node, shape: Sequence[int]) -> tuple[list[int], list[float]]:
    """(the lengths of all axes, their factors where the node gives these)."""
    named = ["", "scales"] if node.type == "Upsample" else ["", "roi", "scales", "sizes"]
    if node.version < 11 and node.type == "Resize":
        named = ["", "scales"]
    given = {what: r.known(node.input(i)) for i, what in enumerate(named) if what and node.input(i)}
    sizes, scales = given.get("sizes"), given.get("scales")
    if node.get("scales"):  # Upsample of version 7
        scales = np.asarray(node.get("scales"))
    axes = [axis_of(int(a), tuple(shape)) for a in node.get("axes") or range(len(shape))]
    if sizes is not None and sizes.size == len(axes):
        to = list(shape)
        for axis, n in zip(axes, sizes.reshape(-1), strict=True):
            to[axis] = int(n)
        return _positive(to), []
    if scales is None or scales.size != len(axes):
        raise Refused("its sizes must be constants, for all four axes or those that it names")
    factors = [1.0] * len(shape)
    for axis, s in zip(axes, scales.reshape(-1), strict=True):
        factors[axis] = float(s)
    if not all(math.isfinite(s) and 0 < s * n < 2**31 for s, n in zip(factors, shape, strict=True)):
        raise Refused(f"its scales {factors} give no image")
    return _positive([math.floor(s * n) for s, n in zip(factors, shape, strict=True)]), factors


def _positive(to: list[int]) -> list[int]:
    if min(to) < 1:
        raise Refused(f"its sizes {to} give no image")
    return to


def _matrix(n: int, source: np.ndarray, mode: str, rounding: str, a: float, exclude: bool) -> np.ndarray:
    """(m, n): the weights of n pixels in each of m, whose centres lie at `source` among them."""
    m = len(source)
    if m * n > LARGEST:
        raise Refused(
            f"a line of {n} pixels that becomes {m} needs a matrix of {m * n} numbers; {LARGEST} are the most"
        )
    if mode == "nearest":
        at, weights = _rounded(source, rounding)[:, None], np.ones((m, 1))
    elif mode in ("linear", "cubic"):
        first = np.floor(source)
        away = np.abs((source - first)[:, None] - (np.arange(2) if mode == "linear" else np.arange(-1, 3)))
        weights = 1 - away if mode == "linear" else _cubic(away, a)
        at = first[:, None] + (np.arange(2) if mode == "linear" else np.arange(-1, 3))
    else:
        raise Refused(f"its mode is {mode}; minidnn has nearest, linear and cubic")
    if exclude:
        weights = np.where((at >= 0) & (at < n), weights, 0)
        weights = weights / weights.sum(1, keepdims=True)
    result = np.zeros((m, n))
    np.add.at(result, (np.arange(m)[:, None], np.clip(at, 0, n - 1).astype(int)), weights)
    return result.astype(np.float32)


def _places(n: int, m: int, scale: float, place: str) -> np.ndarray:
    """Where the centres of m pixels lie among n pixels."""
    j = np.arange(m)
    if place == "half_pixel" or (place == "pytorch_half_pixel" and m > 1):
        return (j + 0.5) / scale - 0.5
    if place == "asymmetric":
        return j / scale
    if place == "pytorch_half_pixel":
        return np.zeros(m)
    if place == "half_pixel_symmetric":
        return (n / 2) * (1 - m / (n * scale)) + (j + 0.5) / scale - 0.5
    if place == "align_corners" and math.isclose(n * scale, m, rel_tol=1e-9):
        return j * ((n - 1) / (m - 1)) if m > 1 else np.zeros(m)
    raise Refused(
        f"its coordinate_transformation_mode is {place}, with a factor of {scale:g} for {n} pixels; minidnn has "
        "half_pixel, half_pixel_symmetric, pytorch_half_pixel, asymmetric, and align_corners by a factor that gives a "
        "whole number"
    )


def _rounded(source: np.ndarray, rounding: str) -> np.ndarray:
    ways = {
        "round_prefer_floor": np.ceil(source - 0.5), "round_prefer_ceil": np.floor(source + 0.5),
        "floor": np.floor(source), "ceil": np.ceil(source),
    }  # fmt: skip
    if rounding not in ways:
        raise Refused(f"its nearest_mode is {rounding}; it must be one of {', '.join(ways)}")
    return ways[rounding]


def _cubic(away: np.ndarray, a: float) -> np.ndarray:
    """The weights of pixels so far away, after Keys."""
    near = (a + 2) * away**3 - (a + 3) * away**2 + 1
    far = a * away**3 - 5 * a * away**2 + 8 * a * away - 4 * a
    return np.where(away <= 1, near, np.where(away < 2, far, 0))


def _product(r: Reader, x: str, axis: int, matrix: np.ndarray, name: str) -> str:
    """The blob with the vectors along an axis multiplied by a frozen matrix."""
    m, n = matrix.shape
    if m == n and np.array_equal(matrix, np.eye(n)):
        return x
    order = [i for i in range(4) if i != axis] + [axis]
    x = turned(r, x, order, f"{name}_turned")
    message = {"num_output": m, "bias_term": False, "axis": 3}
    (x,) = r.layer("InnerProduct", [x], [matrix], name=name, inner_product_param=message)
    return turned(r, x, [order.index(i) for i in range(4)], f"{name}_back")


OPS = {"Resize": resize, "Upsample": resize}
