"""Operators that move elements and change none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from minidnn.errors import few
from minidnn.onnx.node import Node, Reader, Refused
from minidnn.onnx.ops.common import axis_of, bounded, image, masked, number
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
    """The node gives the blob in another shape."""
    r.gives(node, [reshaped(r, x, to, node.name)])


def reshaped(r: Reader, x: str, to: Sequence[int], name: str) -> str:
    """The blob in another shape: itself, a Flatten, or a Reshape."""
    shape = r.shapes[x]
    if tuple(to) == shape:
        return x
    if len(shape) > 1 and tuple(to) == (shape[0], int(np.prod(shape[1:]))):
        return r.layer("Flatten", [x], name=name)[0]
    message = {"shape": {"dim": [int(n) for n in to]}}
    return r.layer("Reshape", [x], name=name, reshape_param=message)[0]


def expanded(r: Reader, x: str, shape: Sequence[int], name: str) -> str:
    """The blob broadcast with this shape, as NumPy does it: by a Reshape and Tiles. Raises Refused if it cannot be."""
    try:
        whole = np.broadcast_shapes(r.shapes[x], tuple(shape))
    except ValueError:
        raise Refused(f"shapes {r.shapes[x]} and {tuple(shape)} cannot be broadcast to one") from None
    x = reshaped(r, x, [1] * (len(whole) - len(r.shapes[x])) + list(r.shapes[x]), f"{name}_axes")
    for axis, n in enumerate(whole):
        if r.shapes[x][axis] != n:
            (x,) = r.layer("Tile", [x], name=f"{name}_tiled", tile_param={"axis": axis, "tiles": int(n)})
    return x


def expand(r: Reader, node: Node) -> None:
    to = [int(n) for n in r.constant(node.inputs[1], "shape").reshape(-1)]
    r.gives(node, [expanded(r, r.blob(node.inputs[0]), to, node.name)])


def reshape(r: Reader, node: Node) -> None:
    x = node.inputs[0]
    to = [int(n) for n in r.constant(node.inputs[1], "shape")]
    shape = r.shape(x)
    allowed = bool(node.get("allowzero", 0))
    if 0 in to and allowed:
        raise Refused(f"its shape {to} has no elements (allowzero=1)")
    if 0 in to:
        to = [shape[i] if n == 0 else n for i, n in enumerate(to)]
    if -1 in to:
        rest = math.prod(n for n in to if n != -1)
        to = [math.prod(shape) // max(rest, 1) if n == -1 else n for n in to]
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
    new = {axis_of(a, (1,) * rank) for a in axes}
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
    axes, steps = axes or list(range(len(starts))), steps or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = axis_of(axis, r.shapes[x])
        n = r.shapes[x][axis]
        if step < 1:
            raise Refused(f"its steps are {steps}; minidnn's Slice goes forward")
        start, end = (min(max(v + n if v < 0 else v, 0), n) for v in (start, end))
        if start >= end:
            raise Refused(f"it takes nothing of axis {axis}: from {start} to {end} of {n}")
        x = part(r, x, axis, start, end, node.name) if step == 1 else _stepped(r, x, axis, start, end, step, node.name)
    r.gives(node, [x])


def part(r: Reader, x: str, axis: int, start: int, end: int, name: str) -> str:
    """The elements start <= i < end along an axis: of a Slice whose other tops nobody reads."""
    points = [p for p in (start, end) if 0 < p < r.shapes[x][axis]]
    if not points:
        return x
    message = {"axis": axis, "slice_point": points}
    return r.layer("Slice", [x], tops=len(points) + 1, name=name, slice_param=message)[1 if start else 0]


def padded(r: Reader, x: str, axis: int, before: Sequence[int], after: Sequence[int], name: str) -> str:
    """The blob with zeros before and behind the axes from `axis` on; a negative number takes elements away."""
    for i, (b, a) in enumerate(zip(before, after, strict=True), axis):
        n = r.shapes[x][i]
        if b < 0 or a < 0:
            x = part(r, x, i, max(-b, 0), n - max(-a, 0), f"{name}_cut")
    rest = [0] * (len(r.shapes[x]) - axis - len(before))
    first, last = ([*(max(int(n), 0) for n in side), *rest] for side in (before, after))
    if not any(first) and not any(last):
        return x
    return r.layer("Pad", [x], name=name, pad_param={"axis": axis, "before": first, "after": last})[0]


def pad(r: Reader, node: Node) -> None:
    """Zeros or another constant around the elements; of other modes, parts of the elements themselves."""
    x, mode, value = r.blob(node.inputs[0]), node.get("mode", "constant"), node.get("value", 0.0)
    pads = node.get("pads") or node.get("paddings")
    if pads is None:
        pads = r.constant(node.input(1), "pads").reshape(-1).tolist()
        value = number(r, node.input(2), "constant_value") if node.input(2) else 0.0
    shape = r.shapes[x]
    axes = [axis_of(int(a), shape) for a in r.constant(node.input(3), "axes").reshape(-1)] if node.input(3) else None
    axes = list(range(len(shape))) if axes is None else axes
    if len(pads) != 2 * len(axes):
        raise Refused(f"it has {len(pads)} pads for {len(axes)} axes; two are needed for each")
    before, after = [0] * len(shape), [0] * len(shape)
    for axis, b, a in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        before[axis], after[axis] = int(b), int(a)
    if any(n + min(b, 0) + min(a, 0) < 1 for n, b, a in zip(shape, before, after, strict=True)):
        raise Refused(f"its pads {list(map(int, pads))} leave nothing of {shape}")
    if mode == "constant":
        r.gives(node, [_surrounded(r, x, before, after, value, node.name)])
        return
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        x = _continued(r, x, axis, b, a, mode, node.name)
    r.gives(node, [x])


def _surrounded(r: Reader, x: str, before: list[int], after: list[int], value: float, name: str) -> str:
    changed = [i for i in range(len(before)) if before[i] or after[i]]
    if not changed:
        return x
    first, end = changed[0], changed[-1] + 1
    y = padded(r, x, first, before[first:end], after[first:end], name if value == 0 else f"{name}_zeros")
    if value == 0 or not any(n > 0 for n in (*before, *after)):
        return y
    bounded(math.prod(r.shapes[y][first:end]))
    inside = np.zeros(r.shapes[y][first:end], bool)
    inside[tuple(slice(max(before[i], 0), r.shapes[y][i] - max(after[i], 0)) for i in range(first, end))] = True
    inside = inside.reshape(*inside.shape, *[1] * (len(before) - end))
    return masked(r, y, inside, value, name)[0]


def _continued(r: Reader, x: str, axis: int, before: int, after: int, mode: str, name: str) -> str:
    """The blob with elements of its own before and behind it: its edges, its mirror image, or its other end."""
    x = padded(r, x, axis, [min(before, 0)], [min(after, 0)], name)
    before, after, n = max(before, 0), max(after, 0), r.shapes[x][axis]
    if mode not in ("reflect", "edge", "wrap"):
        raise Refused(f"its mode is {mode}; minidnn pads with a constant, or by reflect, edge or wrap")
    if mode == "reflect" and max(before, after) >= n:
        raise Refused(f"it reflects {max(before, after)} of the {n} elements of axis {axis}; fewer than there are")
    if max(before, after) > PIECES * n:
        raise Refused(f"it adds {max(before, after)} elements to the {n} of axis {axis}; {PIECES * n} are the most")
    places = np.pad(np.arange(n), (before, after), mode=mode).tolist()  # type: ignore[call-overload]
    return taken(r, x, axis, places, name)


def _stepped(r: Reader, x: str, axis: int, start: int, end: int, step: int, name: str) -> str:
    """Every step-th of these elements: the first of each piece of `step`. The last piece may need zeros."""
    count = -(-(end - start) // step)
    x = part(r, x, axis, start, min(start + count * step, r.shapes[x][axis]), name)
    missing = count * step - r.shapes[x][axis]
    x = padded(r, x, axis, [0], [missing], f"{name}_padded")
    shape = r.shapes[x]
    x = reshaped(r, x, [*shape[:axis], count, step, *shape[axis + 1 :]], f"{name}_pieces")
    x = part(r, x, axis + 1, 0, 1, f"{name}_first")
    return reshaped(r, x, [*shape[:axis], count, *shape[axis + 1 :]], name)


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


PIECES = 32  # most pieces of an axis that a Gather joins


def gather(r: Reader, node: Node) -> None:
    """Rows of a table by indices that are an input: an Embed. Else constant places of an axis: parts of it, joined."""
    axis, index = axis_of(node.get("axis", 0), r.shape(node.inputs[0])), r.known(node.inputs[1])
    if index is None or (r.values and r.weight(node.inputs[0]) is not None and axis == 0):
        _rows(r, node, axis)
        return
    x = r.blob(node.inputs[0])
    shape = r.shape(node.inputs[0])
    places = [int(i) for i in index.reshape(-1)]
    if not places or any(not -shape[axis] <= i < shape[axis] for i in places):
        raise Refused(f"its places are {few([str(i) for i in places], 5)}; axis {axis} of {shape} has some from 0 on")
    x = taken(r, x, axis, [i % shape[axis] for i in places], node.name)
    shaped(r, node, x, [*shape[:axis], *index.shape, *shape[axis + 1 :]])


def gather_nd(r: Reader, node: Node) -> None:
    """Constant places of the first axis, as a Gather takes them."""
    index = r.constant(node.inputs[1], "index")
    x = r.blob(node.inputs[0])
    shape, n = r.shapes[x], r.shapes[x][0]
    if node.get("batch_dims", 0) or index.ndim < 1 or index.shape[-1] != 1 or not index.size:
        raise Refused(f"its index has shape {index.shape}; minidnn takes places of the first axis only, (..., 1)")
    places = [int(i) for i in index.reshape(-1)]
    if any(not -n <= i < n for i in places):
        raise Refused(f"its places are {few([str(i) for i in places], 5)}; axis 0 of {shape} has some from 0 on")
    x = taken(r, x, 0, [i % n for i in places], node.name)
    shaped(r, node, x, [*index.shape[:-1], *shape[1:]])


def _rows(r: Reader, node: Node, axis: int) -> None:
    table = r.needed(node.inputs[0], "table")
    if len(table.shape) != 2 or axis:
        raise Refused(f"it takes places of axis {axis} of {table.shape}; minidnn takes rows of a matrix")
    message = {"num_output": table.shape[1], "input_dim": table.shape[0], "bias_term": False}
    x = r.blob(node.inputs[1], whole=True)
    if table.trained and (odd := re.search(r"embedding\S* = \(%\w+, %\w+, (\d+)", node.note("fx_node"))):
        r.notes.append(f"row {odd[1]} of {table.name} is trained as the others are, though it is PyTorch's padding_idx")
    r.gives(node, r.layer("Embed", [x], [table], name=node.name, embed_param=message))


def taken(r: Reader, x: str, axis: int, places: Sequence[int], name: str) -> str:
    """The elements at these places of an axis: one of them again and again, or runs of neighbours, joined; of many
    runs, a product with a matrix of 0 and 1. Raises Refused if that is too large."""
    pieces = _runs(places)
    if len(places) > 1 and len(set(places)) == 1:
        x = part(r, x, axis, places[0], places[0] + 1, f"{name}_sliced")
        return r.layer("Tile", [x], name=name, tile_param={"axis": axis, "tiles": len(places)})[0]
    if len(pieces) > PIECES:
        return _chosen(r, x, axis, places, name)
    parts = [part(r, x, axis, a, b, f"{name}_sliced") for a, b in pieces]
    return parts[0] if len(parts) == 1 else r.layer("Concat", parts, name=name, concat_param={"axis": axis})[0]


def _chosen(r: Reader, x: str, axis: int, places: Sequence[int], name: str) -> str:
    shape = r.shapes[x]
    before, n, behind = count(shape[:axis]), shape[axis], count(shape[axis + 1 :])
    bounded(n * len(places))
    choice = np.zeros((len(places), n), np.float32)
    choice[np.arange(len(places)), places] = 1
    x = turned(r, reshaped(r, x, (before, n, behind), f"{name}_rows"), [1, 0, 2], f"{name}_first")
    dims = {"shape": {"dim": [len(places), n]}}
    (matrix,) = r.layer("Parameter", [], [choice], name=f"{name}_places", parameter_param=dims)
    (x,) = r.layer("MatMul", [matrix, reshaped(r, x, (n, before * behind), f"{name}_rows")], name=name)
    x = turned(r, reshaped(r, x, (len(places), before, behind), f"{name}_back"), [1, 0, 2], f"{name}_back")
    return reshaped(r, x, [*shape[:axis], len(places), *shape[axis + 1 :]], name)


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """(first, end) of the runs of neighbours that the places are."""
    result = [(places[0], places[0] + 1)]
    for place in places[1:]:
        if place == result[-1][1]:
            result[-1] = result[-1][0], place + 1
        else:
            result.append((place, place + 1))
    return result


def turned(r: Reader, x: str, order: Sequence[int], name: str) -> str:
    """The blob with its axes in another order."""
    if list(order) == sorted(order):
        return x
    return r.layer("Permute", [x], name=name, permute_param={"order": [int(a) for a in order]})[0]


def blocks(r: Reader, node: Node) -> None:
    """DepthToSpace and SpaceToDepth: channels that become squares of pixels, and the reverse."""
    x, size = r.blob(node.inputs[0]), int(node.get("blocksize"))
    n, c, h, w = image(r.shapes[x])
    depth = node.type == "DepthToSpace"
    channels_first = node.get("mode", "DCR") == "CRD"
    if size < 1 or (c % (size * size) if depth else (h % size or w % size)):
        raise Refused(f"blocks of {size} do not fit {r.shapes[x]}")
    if depth:
        cut = [n, c // size**2, size, size, h, w] if channels_first else [n, size, size, c // size**2, h, w]
        order = [0, 1, 4, 2, 5, 3] if channels_first else [0, 3, 4, 1, 5, 2]
        to = [n, c // size**2, h * size, w * size]
    else:
        cut = [n, c, h // size, size, w // size, size]
        order = [0, 1, 3, 5, 2, 4] if channels_first else [0, 3, 5, 1, 2, 4]
        to = [n, c * size**2, h // size, w // size]
    x = turned(r, reshaped(r, x, cut, f"{node.name}_cut"), order, f"{node.name}_turned")
    shaped(r, node, x, to)


OPS = {
    "Concat": concat, "Flatten": flatten, "Reshape": reshape, "Squeeze": squeeze, "Unsqueeze": squeeze,
    "Transpose": transpose, "Slice": slice_, "Split": split, "Tile": tile, "Gather": gather, "GatherND": gather_nd,
    "Expand": expand, "Pad": pad, "DepthToSpace": blocks, "SpaceToDepth": blocks,
    "SplitToSequence": split_to_sequence, "SequenceAt": sequence_at,
}  # fmt: skip
