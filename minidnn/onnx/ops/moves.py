"""Operators that move elements and change none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import axis_of
from minidnn.onnx.weight import Weight, count


def concat(r: Reader, node: Node) -> None:
    blobs = [r.blob(n) for n in node.inputs if n not in r.constants or r.constants[n].size]
    axis = axis_of(node.get("axis"), r.shapes[blobs[0]])
    message = {"axis": axis} if axis != 1 else {}
    r.gives(node, r.layer("Concat", blobs, name=node.name, concat_param=message))


def viewed(r: Reader, node: Node, x: str, view: Callable[[Weight], Weight]) -> None:
    """The node's output is the value itself: the parameter as `view` turns it, or the blob."""
    if x in r.parameters:
        r.parameters[node.outputs[0]] = view(r.parameters[x])
    else:
        r.gives(node, [r.blob(x)])


def reordered(r: Reader, node: Node, x: str, to: Sequence[int]) -> None:
    """A value in another shape: a parameter stays one."""
    if x in r.parameters:
        r.parameters[node.outputs[0]] = r.parameters[x].reshaped(to)
    else:
        shaped(r, node, r.blob(x), to)


def flatten(r: Reader, node: Node) -> None:
    x = node.inputs[0]
    shape, axis = r.shape(x), node.get("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    reordered(r, node, x, [int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))])


def shaped(r: Reader, node: Node, x: str, to: Sequence[int]) -> None:
    """The blob in another shape: itself, a Flatten, or a Reshape."""
    shape = r.shapes[x]
    if tuple(to) == shape:
        r.gives(node, [x])
    elif tuple(to) == (shape[0], int(np.prod(shape[1:]))):
        r.gives(node, r.layer("Flatten", [x], name=node.name))
    else:
        r.gives(node, [r.in_shape(x, to, node.name)])


def reshape(r: Reader, node: Node) -> None:
    x = node.inputs[0]
    to = [int(n) for n in r.constant(node.inputs[1], "shape")]
    shape = r.shape(x)
    if 0 in to and not node.get("allowzero", 0):
        to = [shape[i] if n == 0 else n for i, n in enumerate(to)]
    if -1 in to:
        rest = int(np.prod([n for n in to if n != -1]))
        to = [int(np.prod(shape)) // rest if n == -1 else n for n in to]
    if count(to) != count(shape):
        raise Refused(f"its shape is {to}, and its input has shape {shape}")
    reordered(r, node, x, to)


def squeeze(r: Reader, node: Node) -> None:
    x = node.inputs[0]
    shape, axes = r.shape(x), _axes(r, node)
    if node.type == "Squeeze":
        gone = {axis_of(a, shape) for a in axes} if axes else {i for i, n in enumerate(shape) if n == 1}
        reordered(r, node, x, [n for i, n in enumerate(shape) if i not in gone])
        return
    rank = len(shape) + len(axes)
    new = {a % rank for a in axes}
    rest = iter(shape)
    reordered(r, node, x, [1 if i in new else next(rest) for i in range(rank)])


def _axes(r: Reader, node: Node) -> list[int]:
    if (given := node.get("axes")) is not None:
        return list(given)
    return [int(a) for a in r.constant(node.input(1), "axes").reshape(-1)] if node.input(1) else []


def transpose(r: Reader, node: Node) -> None:
    x = node.inputs[0]
    order = [int(a) for a in node.get("perm") or list(range(len(r.shape(x))))[::-1]]
    if order == sorted(order) or x in r.parameters:
        viewed(r, node, x, lambda w: w.transposed(order))
        return
    r.gives(node, r.layer("Permute", [r.blob(x)], name=node.name, permute_param={"order": order}))


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
    if 0 in parts:
        raise Refused(f"its parts are {parts}; none may be empty")
    if count == 1:
        r.gives(node, [x])
        return
    points = np.cumsum(parts)[:-1].tolist()
    message = {"axis": axis, "slice_point": points}
    r.gives(node, r.layer("Slice", [x], tops=count, name=node.name, slice_param=message))


def split_to_sequence(r: Reader, node: Node) -> None:
    """Parts of an axis, which SequenceAt nodes take one by one."""
    if node.outputs[0] in r.ends:
        raise Refused("its sequence is an output of the model, and minidnn's outputs are tensors")
    x = r.blob(node.inputs[0])
    shape, keep = r.shapes[x], bool(node.get("keepdims", 1)) or bool(node.input(1))
    axis = axis_of(node.get("axis", 0), shape)
    given = r.constant(node.input(1), "split") if node.input(1) else np.array(1)
    n, size = shape[axis], int(given.reshape(-1)[0])
    parts = [min(size, n - i) for i in range(0, n, size)] if given.ndim == 0 else [int(p) for p in given]
    message = {"axis": axis, "slice_point": np.cumsum(parts)[:-1].tolist()}
    tops = r.layer("Slice", [x], tops=len(parts), name=node.name, slice_param=message) if len(parts) > 1 else [x]
    short = [*shape[:axis], *shape[axis + 1 :]]
    r.sequences[node.outputs[0]] = tops if keep else [r.in_shape(t, short, node.name) for t in tops]


def sequence_at(r: Reader, node: Node) -> None:
    parts = r.sequences.get(node.inputs[0])
    if parts is None:
        raise Refused(f"its sequence {node.inputs[0]!r} is none of a SplitToSequence")
    place = int(r.constant(node.inputs[1], "position").reshape(()))
    if not -len(parts) <= place < len(parts):
        raise Refused(f"its position is {place}, of {len(parts)} parts")
    r.gives(node, [parts[place]])


def tile(r: Reader, node: Node) -> None:
    x = r.blob(node.inputs[0])
    for axis, times in enumerate(r.constant(node.inputs[1], "repeats").tolist()):
        if times > 1:
            (x,) = r.layer("Tile", [x], name=node.name, tile_param={"axis": axis, "tiles": int(times)})
    r.gives(node, [x])


def expand(r: Reader, node: Node) -> None:
    """A value along axes that it lacks, or in which it has the length 1: Tiles."""
    x = r.blob(node.inputs[0])
    to, shape = [int(n) for n in r.constant(node.inputs[1], "shape")], r.shape(node.inputs[0])
    rank = max(len(to), len(shape))
    shape, to = (1,) * (rank - len(shape)) + tuple(shape), [1] * (rank - len(to)) + to
    if any(1 not in (n, m) and n != m for n, m in zip(shape, to, strict=True)):
        raise Refused(f"its input of shape {shape} cannot become {tuple(to)}")
    x = r.in_shape(x, shape, f"{node.name}_axes")
    for axis, (n, m) in enumerate(zip(shape, to, strict=True)):
        if n == 1 and m > 1:
            (x,) = r.layer("Tile", [x], name=node.name, tile_param={"axis": axis, "tiles": m})
    r.gives(node, [x])


MOST = 2**26  # elements of a matrix that chooses rows


def gather(r: Reader, node: Node) -> None:
    """Rows of a table by indices that are an input: an Embed. Else constant places of an axis."""
    table, axis = r.weight(node.inputs[0]), axis_of(node.get("axis", 0), r.shape(node.inputs[0]))
    index = r.known(node.inputs[1])
    if index is not None:
        _places(r, node, index, axis)
        return
    table = table or r.needed(node.inputs[0], "table")
    if len(table.shape) != 2 or axis:
        raise Refused(f"it takes places of axis {axis} of {table.shape}; minidnn takes rows of a matrix")
    rows, columns = table.shape
    message = {"num_output": columns, "input_dim": rows, "bias_term": False}
    x = r.blob(node.inputs[1], whole=True)
    r.gives(node, r.layer("Embed", [x], [table], name=node.name, embed_param=message))


def _places(r: Reader, node: Node, index: np.ndarray, axis: int) -> None:
    """Constant places of an axis: a Slice, and a Tile if all are one; else a product with a matrix of 0 and 1."""
    x = r.blob(node.inputs[0])
    shape = r.shape(node.inputs[0])
    n, at = shape[axis], index.astype(np.int64).reshape(-1)
    if not at.size or at.min() < -n or at.max() >= n:
        raise Refused(f"it takes the places {at.tolist()[:5]} of an axis of {n}")
    at = at % n
    to = [*shape[:axis], *index.shape, *shape[axis + 1 :]]
    x = r.in_shape(x, (count(shape[:axis]), n, count(shape[axis + 1 :])), f"{node.name}_rows")
    first = int(at[0])
    if (at == first).all() or (at == np.arange(first, first + len(at))).all():
        length = 1 if (at == first).all() else len(at)
        points = [p for p in (first, first + length) if 0 < p < n]
        if points:
            message = {"axis": 1, "slice_point": points}
            x = r.layer("Slice", [x], tops=len(points) + 1, name=node.name, slice_param=message)[1 if first else 0]
        if length < len(at):
            (x,) = r.layer("Tile", [x], name=node.name, tile_param={"axis": 1, "tiles": len(at)})
    else:
        x = _chosen(r, node, x, at)
    r.gives(node, [r.in_shape(x, to or (1,), node.name)])


def _chosen(r: Reader, node: Node, x: str, at: np.ndarray) -> str:
    """The rows of axis 1, in this order."""
    before, n, behind = r.shapes[x]
    if n * len(at) > MOST:
        raise Refused(f"it takes {len(at)} constant places of {n}, and the matrix that chooses them is too large")
    choice = np.zeros((len(at), n), np.float32)
    choice[np.arange(len(at)), at] = 1
    (x,) = r.layer("Permute", [x], name=f"{node.name}_first", permute_param={"order": [1, 0, 2]})
    x = r.in_shape(x, (n, before * behind), f"{node.name}_first")
    dims = {"shape": {"dim": [len(at), n]}}
    (matrix,) = r.layer("Parameter", [], [choice], name=f"{node.name}_places", parameter_param=dims)
    (x,) = r.layer("MatMul", [matrix, x], name=node.name)
    x = r.in_shape(x, (len(at), before, behind), f"{node.name}_back")
    return r.layer("Permute", [x], name=f"{node.name}_back", permute_param={"order": [1, 0, 2]})[0]


OPS = {
    "Concat": concat, "Flatten": flatten, "Reshape": reshape, "Squeeze": squeeze, "Unsqueeze": squeeze,
    "Transpose": transpose, "Slice": slice_, "Split": split, "Tile": tile, "Expand": expand, "Gather": gather,
    "SplitToSequence": split_to_sequence, "SequenceAt": sequence_at,
}  # fmt: skip
