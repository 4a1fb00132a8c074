"""Operators that move elements and change none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import axis_of, place_of


def concat(r: Reader, node: Node) -> None:
    blobs = [r.blob(n) for n in node.inputs]
    axis = axis_of(node.get("axis"), r.shapes[blobs[0]])
    message = {"axis": axis} if axis != 1 else {}
    r.gives(node, r.layer("Concat", blobs, name=node.name, concat_param=message))


def flatten(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    shape, axis = r.shapes[x], node.get("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    shaped(r, node, x, [int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))])


def shaped(r: Reader, node: Node, x: str, to: Sequence[int]) -> None:
    """The blob in another shape: itself, a Flatten, or a Reshape."""
    shape = r.shapes[x]
    if tuple(to) == shape:
        r.gives(node, [x])
    elif tuple(to) == (shape[0], int(np.prod(shape[1:]))):
        r.gives(node, r.layer("Flatten", [x], name=node.name))
    else:
        message = {"shape": {"dim": [int(n) for n in to]}}
        r.gives(node, r.layer("Reshape", [x], name=node.name, reshape_param=message))


def reshape(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    to = [int(n) for n in r.constant(node.inputs[1], "shape")]
    shape = r.shapes[x]
    if 0 in to and not node.get("allowzero", 0):
        to = [shape[i] if n == 0 else n for i, n in enumerate(to)]
    if -1 in to:
        rest = int(np.prod([n for n in to if n != -1]))
        to = [int(np.prod(shape)) // rest if n == -1 else n for n in to]
    shaped(r, node, x, to)


def squeeze(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    shape, axes = r.shapes[x], _axes(r, node)
    if node.type == "Squeeze":
        gone = {axis_of(a, shape) for a in axes} if axes else {i for i, n in enumerate(shape) if n == 1}
        shaped(r, node, x, [n for i, n in enumerate(shape) if i not in gone])
        return
    rank = len(shape) + len(axes)
    new = {axis_of(a, (1,) * rank) for a in axes}
    rest = iter(shape)
    shaped(r, node, x, [1 if i in new else next(rest) for i in range(rank)])


def _axes(r: Reader, node: Node) -> list[int]:
    if (given := node.get("axes")) is not None:
        return list(given)
    return [int(a) for a in r.constant(node.input(1), "axes").reshape(-1)] if node.input(1) else []


def transpose(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    order = node.get("perm") or list(range(len(r.shapes[x])))[::-1]
    if order == sorted(order):
        r.gives(node, [x])
        return
    r.gives(node, r.layer("Permute", [x], name=node.name, permute_param={"order": [int(a) for a in order]}))


def slice_(r: Reader, node: Node) -> None:
    """Slices of one axis after the other, each a Slice whose other tops nobody reads."""
    x = r.blob(node.inputs[0])
    if node.version < 10:
        starts, ends, axes, steps = node.get("starts"), node.get("ends"), node.get("axes"), None
    else:
        starts, ends = (r.constant(node.inputs[i], "places").tolist() for i in (1, 2))
        axes = r.constant(node.input(3), "axes").tolist() if node.input(3) else None
        steps = r.constant(node.input(4), "steps").tolist() if node.input(4) else None
    axes = axes or list(range(len(starts)))
    if steps and set(steps) != {1}:
        raise Refused(f"its steps are {steps}; minidnn's Slice takes neighbouring elements")
    for axis, start, end in zip(axes, starts, ends, strict=True):
        axis = axis_of(axis, r.shapes[x])
        n = r.shapes[x][axis]
        start, end = (min(max(v + n if v < 0 else v, 0), n) for v in (start, end))
        if start >= end:
            raise Refused(f"it takes nothing of axis {axis}: from {start} to {end} of {n}")
        points = [p for p in (start, end) if 0 < p < n]
        if points:
            message = {"axis": axis, "slice_point": points}
            tops = r.layer("Slice", [x], tops=len(points) + 1, name=node.name, slice_param=message)
            x = tops[1 if start else 0]
    r.gives(node, [x])


def split(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    shape = r.shapes[x]
    axis, count = axis_of(node.get("axis", 0), shape), len(node.outputs)
    parts = node.get("split")
    if parts is None and node.input(1):
        parts = [int(n) for n in r.constant(node.input(1), "split")]
    if parts is None:
        size = -(-shape[axis] // (node.get("num_outputs") or count))
        parts = [min(size, shape[axis] - size * i) for i in range(count)]
    if min(parts) < 1 or len(parts) != count or sum(parts) != shape[axis]:
        raise Refused(f"its {count} parts are {parts} of an axis of {shape[axis]}; none may be empty")
    if count == 1:
        r.gives(node, [x])
        return
    points = np.cumsum(parts)[:-1].tolist()
    message = {"axis": axis, "slice_point": points}
    r.gives(node, r.layer("Slice", [x], tops=count, name=node.name, slice_param=message))


def tile(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    for axis, times in enumerate(r.constant(node.inputs[1], "repeats").tolist()):
        if times > 1:
            (x,) = r.layer("Tile", [x], name=node.name, tile_param={"axis": axis, "tiles": int(times)})
    r.gives(node, [x])


def gather(r: Reader, node: Node) -> None:
    """Rows of a constant table by indices: an Embed. Else one constant place of an axis, which a Slice takes."""
    table = r.constants.get(node.inputs[0])
    axis = node.get("axis", 0)
    if table is not None and table.ndim == 2 and axis == 0:
        message = {"num_output": table.shape[1], "input_dim": table.shape[0], "bias_term": False}
        top = r.layer("Embed", [r.blob(node.inputs[1], whole=True)], [table], name=node.name, embed_param=message)
        r.gives(node, top)
        return
    index = r.constant(node.inputs[1], "index")
    x = r.blob(node.inputs[0])
    if index.ndim:
        raise Refused("it takes several places; minidnn takes one constant place, or rows of a constant table")
    shape = r.shapes[x]
    axis = axis_of(axis, shape)
    at = place_of(int(index), shape[axis])
    if shape[axis] > 1:
        points = [p for p in (at, at + 1) if 0 < p < shape[axis]]
        message = {"axis": axis, "slice_point": points}
        tops = r.layer("Slice", [x], tops=len(points) + 1, name=f"{node.name}_sliced", slice_param=message)
        x = tops[1 if at else 0]
    shaped(r, node, x, [n for i, n in enumerate(shape) if i != axis])


OPS = {
    "Concat": concat, "Flatten": flatten, "Reshape": reshape, "Squeeze": squeeze, "Unsqueeze": squeeze,
    "Transpose": transpose, "Slice": slice_, "Split": split, "Tile": tile, "Gather": gather,
}  # fmt: skip
