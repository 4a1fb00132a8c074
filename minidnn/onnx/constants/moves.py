"""Operators that make arrays, and that move elements from one to another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minidnn.layers.base import Shape, text
from minidnn.onnx.constants.call import Call, Function
from minidnn.onnx.constants.elements import dtype_of
from minidnn.onnx.node import Refused
from minidnn.onnx.tensors import array

# ---- new arrays


def constant(c: Call) -> np.ndarray:
    """The value of a Constant, in one of its attributes."""
    (name,) = c.node.attributes
    value = c.attribute(name)
    if name == "value":
        result = array(value)
    elif name in ("value_float", "value_floats"):
        result = np.array(value, np.float32)
    elif name in ("value_int", "value_ints"):
        result = np.array(value, np.int64)
    else:
        raise Refused(f"its attribute {name} is not an array of numbers")
    c.spend(result.shape, result.dtype)
    return result


def filled(c: Call) -> np.ndarray:
    value = c.attribute("value")
    fill = np.zeros(1, np.float32) if value is None else array(value)
    if fill.size != 1:
        raise Refused(f"its value has shape {text(fill.shape)}; one number is needed")
    return np.full(c.spend(c.integers(0) or [], fill.dtype), fill.reshape(())[()], fill.dtype)


def sequence(c: Call) -> np.ndarray:
    """A Range: start, start + delta, ... below the limit."""
    start, limit, delta = (c.number(i) for i in range(3))
    if not delta or not all(map(np.isfinite, (start, limit, delta))):
        raise Refused(f"it counts from {start} to {limit} in steps of {delta}")
    dtype = c.x().dtype
    if dtype.kind in "iu":
        count = max(-((int(start) - int(limit)) // int(delta)), 0)
    else:
        count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
    c.spend([count], dtype, 2)
    return (np.arange(count) * delta + start).astype(dtype)


def diagonal(c: Call) -> np.ndarray:
    """An EyeLike."""
    shape = c.x().shape
    if len(shape) != 2:
        raise Refused(f"its input has shape {text(shape)}; a matrix is needed")
    dtype = dtype_of(c, "dtype", c.x().dtype)
    c.spend(shape, dtype)
    return np.eye(*shape, k=c.attribute("k", 0), dtype=dtype)


def one_hot(c: Call) -> np.ndarray:
    indices, depth, values = c.x(0), int(c.number(1)), c.x(2)
    if values.shape != (2,) or depth < 1:
        raise Refused(f"its depth is {depth}, and its values have shape {text(values.shape)}")
    axis = c.axis(c.attribute("axis", -1), indices.ndim + 1)
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    c.spend(shape, values.dtype, 2)
    at = np.where((indices >= -depth) & (indices < depth), indices % depth, depth)  # others have no hot place
    places = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.where(np.expand_dims(at, axis) == places, values[1], values[0])


# ---- other shapes


def shape_of(c: Call) -> np.ndarray:
    return np.array(c.x().shape[c.attribute("start", 0) : c.attribute("end")], np.int64)


def size(c: Call) -> np.ndarray:
    return np.array(c.x().size, np.int64)


def reshaped(c: Call) -> np.ndarray:
    x, to = c.x(), c.integers(1, "shape") or []
    if not c.attribute("allowzero", 0):
        if any(n == 0 and i >= x.ndim for i, n in enumerate(to)):
            raise Refused(f"its shape is {to}, where 0 means the axis of its input, of shape {text(x.shape)}")
        to = [x.shape[i] if n == 0 else n for i, n in enumerate(to)]
    return _shaped(c, x, to)


def _shaped(c: Call, x: np.ndarray, to: Sequence[int]) -> np.ndarray:
    """The array in another shape: a view, or a copy that the budget pays."""
    if min(to, default=0) < -1 or len(to) > 32:
        raise Refused(f"its shape is {list(to)}")
    if not x.flags.c_contiguous:
        c.spend(x.shape, x.dtype)
    return x.reshape(to)


def flattened(c: Call) -> np.ndarray:
    shape, axis = c.x().shape, c.attribute("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise Refused(f"axis {axis} does not exist in shape {text(shape)}")
    axis += len(shape) if axis < 0 else 0
    return _shaped(c, c.x(), [math.prod(shape[:axis]), math.prod(shape[axis:])])


def transposed(c: Call) -> np.ndarray:
    return c.x().transpose(c.attribute("perm"))


def squeezed(c: Call) -> np.ndarray:
    x, axes = c.x(), c.integers(1, "axes")
    return np.squeeze(x, None if axes is None else tuple(c.axis(a) for a in axes))


def unsqueezed(c: Call) -> np.ndarray:
    axes = c.integers(1, "axes") or []
    rank = c.x().ndim + len(axes)
    return np.expand_dims(c.x(), tuple(c.axis(a, rank) for a in axes))


def expanded(c: Call) -> np.ndarray:
    shape = np.broadcast_shapes(c.x().shape, tuple(c.integers(1) or []))
    return np.broadcast_to(c.x(), c.spend(shape, c.x().dtype))


def tiled(c: Call) -> np.ndarray:
    x, times = c.x(), c.integers(1) or []
    if len(times) != x.ndim:
        raise Refused(f"it repeats {len(times)} axes of shape {text(x.shape)}")
    c.spend([n * max(t, 0) for n, t in zip(x.shape, times, strict=True)], x.dtype)
    return np.tile(x, times)


def padded(c: Call) -> np.ndarray:
    x = c.x()
    pads, axes = c.integers(1, "pads") or [], c.integers(3)
    axes = list(range(x.ndim)) if axes is None else [c.axis(a) for a in axes]
    if len(pads) != 2 * len(axes):
        raise Refused(f"it has {len(pads)} pads for {len(axes)} axes")
    cut, sides = [slice(None)] * x.ndim, [(0, 0)] * x.ndim
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        cut[axis] = slice(max(-before, 0), x.shape[axis] - max(-after, 0))
        sides[axis] = (max(before, 0), max(after, 0))
    x = x[tuple(cut)]
    c.spend([n + a + b for n, (a, b) in zip(x.shape, sides, strict=True)], x.dtype, 2)
    mode = c.attribute("mode", "constant")
    if mode != "constant":
        if mode not in ("edge", "reflect", "wrap"):
            raise Refused(f"its mode is {mode!r}")
        return np.pad(x, sides, mode=mode)
    fill = c.number(2) if c.has(2) else c.attribute("value", 0)
    return np.pad(x, sides, constant_values=np.asarray(fill).astype(x.dtype))


# ---- parts of arrays


def concat(c: Call) -> np.ndarray:
    parts = c.given()
    axis = c.axis(c.attribute("axis", 1))
    if len({p.dtype for p in parts}) > 1:
        raise Refused(f"its inputs have the types {', '.join(sorted({str(p.dtype) for p in parts}))}")
    rest = [n for i, n in enumerate(parts[0].shape) if i != axis]
    c.spend([*rest, sum(p.shape[axis] if p.ndim > axis else 0 for p in parts)], parts[0].dtype)
    return np.concatenate(parts, axis)


def sliced(c: Call) -> np.ndarray:
    x, old = c.x(), c.node.version < 10
    starts, ends = (c.integers(i, name if old else "") or [] for i, name in ((1, "starts"), (2, "ends")))
    axes, steps = c.integers(3, "axes" if old else ""), c.integers(4)
    axes = list(range(len(starts))) if axes is None else axes
    places = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        axis = c.axis(axis)
        n = x.shape[axis]
        low, high = (0, n) if step > 0 else (-1, n - 1)
        start, end = (min(max(v + n if v < 0 else v, low), high) for v in (start, end))
        places[axis] = slice(start, None if end < 0 else end, step)
    return x[tuple(places)]


def split(c: Call) -> list[np.ndarray]:
    x, count = c.x(), len(c.node.outputs)
    axis, parts = c.axis(c.attribute("axis", 0)), c.attribute("split")
    if parts is None and c.has(1):
        parts = c.x(1).tolist()
    n = x.shape[axis]
    if parts is None:
        each = -(-n // (c.attribute("num_outputs") or count))
        parts = [max(min(each, n - each * i), 0) for i in range(count)]
    if len(parts) != count or sum(parts) != n or min(parts) < 0:
        raise Refused(f"its {count} parts are {parts} of an axis of {n}")
    ends = np.cumsum(parts).tolist()
    along = np.moveaxis(x, axis, 0)
    return [np.moveaxis(along[end - part : end], 0, axis) for end, part in zip(ends, parts, strict=True)]


def _within(index: np.ndarray, n: int) -> np.ndarray:
    """Indices from 0. Raises Refused if one is not within an axis of n."""
    if index.dtype.kind not in "iu":
        raise Refused(f"its indices have the type {index.dtype}; whole numbers are needed")
    if index.size and not (-n <= index.min() and index.max() < n):
        wrong = index.min() if index.min() < -n else index.max()
        raise Refused(f"its index {wrong} is out of an axis of {n}")
    return np.where(index < 0, index + n, index)


def gather(c: Call) -> np.ndarray:
    x, index = c.x(0), c.x(1)
    axis = c.axis(c.attribute("axis", 0))
    index = _within(index, x.shape[axis])
    c.spend([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]], x.dtype)
    return np.take(x, index, axis)


def gather_elements(c: Call) -> np.ndarray:
    x, index = c.x(0), c.x(1)
    axis = c.axis(c.attribute("axis", 0))
    c.spend(index.shape, x.dtype, 2)
    return x[_grid(index, axis, x.shape)]


def _grid(index: np.ndarray, axis: int, shape: Shape) -> tuple[np.ndarray, ...]:
    """The places that `index` says along an axis, as an index of all axes."""
    if index.ndim != len(shape) or any(
        n > most for i, (n, most) in enumerate(zip(index.shape, shape, strict=True)) if i != axis
    ):
        raise Refused(f"its indices have shape {text(index.shape)}, its data {text(shape)}")
    return tuple(_within(index, shape[axis]) if i == axis else at for i, at in enumerate(np.ogrid[_box(index)]))


def _box(index: np.ndarray) -> tuple[slice, ...]:
    return tuple(slice(n) for n in index.shape)


def gather_nd(c: Call) -> np.ndarray:
    x, index = c.x(0), c.x(1)
    if c.attribute("batch_dims", 0):
        raise Refused("it has batch_dims; minidnn computes it without")
    places = _places(index, x.shape)
    c.spend([*index.shape[:-1], *x.shape[index.shape[-1] :]], x.dtype)
    return np.asarray(x[places])


def _places(index: np.ndarray, shape: Shape) -> tuple[np.ndarray, ...]:
    """An index of the first axes, from vectors of places. Raises Refused if these are none."""
    if not index.ndim or not 0 < index.shape[-1] <= len(shape):
        raise Refused(f"its indices have shape {text(index.shape)}, its data {text(shape)}")
    return tuple(_within(index[..., i], n) for i, n in zip(range(index.shape[-1]), shape, strict=False))


def scatter_nd(c: Call) -> np.ndarray:
    x, index, updates = c.x(0), c.x(1), c.x(2)
    places = _places(index, x.shape)
    c.spend(x.shape, x.dtype, 2)
    _no_reduction(c)
    result = x.copy()
    result[places] = updates.reshape(*index.shape[:-1], *x.shape[index.shape[-1] :])
    return result


def scatter_elements(c: Call) -> np.ndarray:
    x, index, updates = c.x(0), c.x(1), c.x(2)
    axis = c.axis(c.attribute("axis", 0))
    if updates.shape != index.shape:
        raise Refused(f"its indices have shape {text(index.shape)}, its updates {text(updates.shape)}")
    c.spend(x.shape, x.dtype, 2)
    c.spend(index.shape, np.int64, 2)
    _no_reduction(c)
    result = x.copy()
    result[_grid(index, axis, x.shape)] = updates
    return result


def _no_reduction(c: Call) -> None:
    if (way := c.attribute("reduction", "none")) != "none":
        raise Refused(f"its reduction is {way}; minidnn computes it with none")


def triangle(c: Call) -> np.ndarray:
    x, k = c.x(), int(c.number(1)) if c.has(1) else 0
    c.spend(x.shape, x.dtype, 2)
    k = min(max(k, -x.shape[-2] - 1), x.shape[-1] + 1)
    return np.triu(x, k) if c.attribute("upper", 1) else np.tril(x, k)


def places(c: Call) -> np.ndarray:
    """A NonZero: the places of the elements that are not 0, an axis a row."""
    x = c.x()
    c.spend([x.ndim, int(np.count_nonzero(x))], np.int64, 2)
    return np.stack(np.nonzero(x)).astype(np.int64) if x.ndim else np.zeros((1, int(bool(x))), np.int64)


def same(c: Call) -> list[np.ndarray]:
    return [c.x()]


def chosen(c: Call) -> np.ndarray:
    """A Compress: the elements, or the slices along an axis, for which the condition holds."""
    condition, axis = c.x(1), c.attribute("axis")
    c.spend(c.x().shape, c.x().dtype)
    return np.compress(condition, c.x(), None if axis is None else c.axis(axis))


FOLDED: dict[str, Function] = {
    "Constant": constant, "ConstantOfShape": filled, "Range": sequence, "EyeLike": diagonal, "OneHot": one_hot,
    "Shape": shape_of, "Size": size, "Reshape": reshaped, "Flatten": flattened, "Transpose": transposed,
    "Squeeze": squeezed, "Unsqueeze": unsqueezed, "Expand": expanded, "Tile": tiled, "Pad": padded, "Concat": concat,
    "Slice": sliced, "Split": split, "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd,
    "ScatterND": scatter_nd, "ScatterElements": scatter_elements, "Scatter": scatter_elements, "Trilu": triangle,
    "NonZero": places, "Identity": same, "Compress": chosen,
}  # fmt: skip
