"""Rows of the layers that move elements."""

from __future__ import annotations

from tests.layers.bench import IMAGE, Row
from tests.layers.rows.spine import any_shape, sizes
from tests.support.peers import F, torch


def column(x, k, s, p, d, o):
    """Im2col's top from PyTorch's unfold, which has the same channels in the same order."""
    return F.unfold(x, k, dilation=d, padding=p, stride=s).view(len(x), -1, *o)


ROWS = {
    "class token": Row(
        "type: ClassToken, bottom: a, top: b", [(3, 4, 5)], [(3, 5, 5)],
        [
            "tile.forward: token -> tokens",
            "concat.forward: tokens x0 -> y0",
            "concat.backward: dy0 -> tokens.grad dx0",
            "tile.backward: tokens.grad -> dtoken",
        ],
        lambda x, p: torch.cat((p["token"].expand(3, -1, -1), x), 1), blobs=[(1, 1, 5)],
    ),
    "slice": Row(
        "type: Slice, bottom: a, top: [b, c], slice_param: {slice_point: 1}", [IMAGE], [(2, 1, 7, 5), (2, 3, 7, 5)],
        ["concat.backward: x0 -> y0 y1", "concat.forward: dy0 dy1 -> dx0"],
        lambda x, p: tuple(x.split([1, 3], 1)),
    ),
    "slice, in equal parts": Row(
        "type: Slice, bottom: a, top: [b, c, d], slice_param: {axis: 0}", [(6, 3)], [(2, 3)] * 3,
        ["concat.backward: x0 -> y0 y1 y2", "concat.forward: dy0 dy1 dy2 -> dx0"],
        lambda x, p: tuple(x.split(2)),
    ),
    "crop": Row(
        "type: Crop, bottom: [a, b], top: c, crop_param: {offset: [2, 1]}", [IMAGE, (9, 9, 4, 3)], [(2, 4, 4, 3)],
        ["crop.forward: x0 -> y0", "crop.backward: dy0 -> dx0"],
        lambda x, size, p: x[:, :, 2:6, 1:4], still=(1,),
    ),
    "crop, one offset for all axes": Row(
        "type: Crop, bottom: [a, b], top: c, crop_param: {axis: -3, offset: 1}", [IMAGE, (1, 2, 6, 4)], [(2, 2, 6, 4)],
        ["crop.forward: x0 -> y0", "crop.backward: dy0 -> dx0"],
        lambda x, size, p: x[:, 1:3, 1:7, 1:5], still=(1,),
    ),
    "pad": Row(
        "type: Pad, bottom: a, top: b, pad_param: {before: [2, 0], after: 1}", [IMAGE], [(2, 4, 10, 6)],
        ["crop.backward: x0 -> y0", "crop.forward: dy0 -> dx0"],
        lambda x, p: F.pad(x, (0, 1, 2, 1)),
    ),
    "reshape": Row(
        "type: Reshape, bottom: a, top: b, reshape_param: {shape: {dim: [0, 2, -1, 5]}}", [IMAGE], [(2, 2, 14, 5)],
        ["flatten.forward: x0 -> y0", "flatten.backward: dy0 -> dx0"],
        lambda x, p: x.reshape(2, 2, 14, 5),
    ),
    "reshape of some axes": Row(
        "type: Reshape, bottom: a, top: b, reshape_param: {shape: {dim: [5, 7]}, axis: 2, num_axes: 2}",
        [IMAGE], [(2, 4, 5, 7)], ["flatten.forward: x0 -> y0", "flatten.backward: dy0 -> dx0"],
        lambda x, p: x.reshape(2, 4, 5, 7),
    ),
    "reshape, an axis behind the last": Row(
        "type: Reshape, bottom: a, top: b, reshape_param: {shape: {dim: 1}, axis: -1, num_axes: 0}",
        [(2, 3)], [(2, 3, 1)], ["flatten.forward: x0 -> y0", "flatten.backward: dy0 -> dx0"],
        lambda x, p: x[..., None],
    ),
    "permute": Row(
        "type: Permute, bottom: a, top: b, permute_param: {order: [0, 2, 3, 1]}", [IMAGE], [(2, 7, 5, 4)],
        ["permute.forward: x0 -> y0", "permute.backward: dy0 -> dx0"],
        lambda x, p: x.permute(0, 2, 3, 1),
    ),
    "permute, the rest follows": Row(
        "type: Permute, bottom: a, top: b, permute_param: {order: 2}", [IMAGE], [(7, 2, 4, 5)],
        ["permute.forward: x0 -> y0", "permute.backward: dy0 -> dx0"],
        lambda x, p: x.permute(2, 0, 1, 3),
    ),
    "roll": Row(
        "type: Roll, bottom: a, top: b, roll_param: {axis: -2, shift: -3}", [IMAGE], [IMAGE],
        ["roll.forward: x0 -> y0", "roll.forward: dy0 -> dx0"], lambda x, p: x.roll(-3, 2),
    ),
    "tile": Row(
        "type: Tile, bottom: a, top: b, tile_param: {tiles: 3}", [IMAGE], [(2, 12, 7, 5)],
        ["tile.forward: x0 -> y0", "tile.backward: dy0 -> dx0"],
        lambda x, p: x.tile(1, 3, 1, 1),
    ),
    "im2col": Row(
        "type: Im2col, bottom: a, top: b, convolution_param: {kernel_h: 3, kernel_w: 2, pad_h: 1, pad_w: 0, "
        "stride: 2, dilation: [1, 2]}",
        [IMAGE], [(2, 24, 4, 2)], ["im2col.forward: x0 -> y0", "im2col.backward: dy0 -> dx0"],
        lambda x, p: column(x, (3, 2), 2, (1, 0), (1, 2), (4, 2)),
    ),
    "batch reindex": Row(
        "type: BatchReindex, bottom: [a, b], top: c", [(3, 4, 2, 5), (7,)], [(7, 4, 2, 5)],
        ["batch_reindex.forward: x0 x1 -> y0", "batch_reindex.backward: x1 dy0 -> dx0"],
        lambda x, index, p: x[index.long()], labels=(1,),
    ),
    "silence": Row("type: Silence, bottom: [a, b]", [(2, 3), (4,)], [], [], torch=lambda x, y, p: (), still=(0, 1)),
}  # fmt: skip


# ---- any geometry


def cut(random):
    shape = any_shape(random)
    axis, n = int(random.integers(len(shape))), int(random.integers(1, 5))
    lengths = sizes(random, *[(1, 4)] * n) if random.integers(2) else sizes(random, (1, 4)) * n
    points = [sum(lengths[: i + 1]) for i in range(n - 1)]
    some = f", slice_point: {points}" if len(set(lengths)) > 1 else ""
    tops = ", ".join(f"t{i}" for i in range(n))
    text = f"type: Slice, bottom: a, top: [{tops}], slice_param: {{axis: {axis - len(shape)}{some}}}"
    return Row(text, [(*shape[:axis], sum(lengths), *shape[axis + 1 :])],
               torch=lambda x, p: tuple(x.split(lengths, axis)))  # fmt: skip


def crop(random):
    shape = any_shape(random)
    axis = int(random.integers(len(shape)))
    size = tuple(int(random.integers(1, n + 1)) for n in shape)
    offset = [int(random.integers(0, n - m + 1)) for n, m in zip(shape[axis:], size[axis:], strict=True)]
    text = f"type: Crop, bottom: [a, b], top: c, crop_param: {{axis: {axis}, offset: {offset}}}"
    box = tuple(slice(o, o + m) for o, m in zip([0] * axis + offset, shape[:axis] + size[axis:], strict=True))
    return Row(text, [shape, size], torch=lambda x, like, p: x[box], still=(1,))


def pad(random):
    shape = any_shape(random)
    axis = int(random.integers(len(shape)))
    before, after = (random.integers(0, 4, len(shape) - axis).tolist() for _ in "ab")
    text = f"type: Pad, bottom: a, top: b, pad_param: {{axis: {axis}, before: {before}, after: {after}}}"
    turned = [n for pair in zip(before[::-1], after[::-1], strict=True) for n in pair]
    return Row(text, [shape], torch=lambda x, p: F.pad(x, turned))


def reshape(random):
    shape = any_shape(random)
    first = int(random.integers(len(shape) + 1))
    end = int(random.integers(first, len(shape) + 1))
    factors = [f for n in shape[first:end] for f in ((2, n // 2) if n % 2 == 0 else (n,))]
    dims = [int(n) for n in random.permutation([1, *factors])]
    dims[int(random.integers(len(dims)))] = -1
    text = (
        f"type: Reshape, bottom: a, top: b, "
        f"reshape_param: {{axis: {first}, num_axes: {end - first}, shape: {{dim: {dims}}}}}"
    )
    return Row(text, [shape], torch=lambda x, p: x.reshape(*shape[:first], *dims, *shape[end:]))


def permute(random):
    shape = any_shape(random)
    order = [int(i) for i in random.permutation(len(shape))]
    given = order[: int(random.integers(len(shape) + 1))]
    whole = given + sorted(set(order) - set(given))
    text = f"type: Permute, bottom: a, top: b, permute_param: {{order: {given}}}"
    return Row(text, [shape], torch=lambda x, p: x.permute(whole))


def tile(random):
    shape, (n,) = any_shape(random), sizes(random, (1, 4))
    axis = int(random.integers(len(shape)))
    text = f"type: Tile, bottom: a, top: b, tile_param: {{axis: {axis}, tiles: {n}}}"
    times = [1] * len(shape)
    times[axis] = n
    return Row(text, [shape], torch=lambda x, p: x.tile(times))


def class_token(random):
    n, t, c = sizes(random, (1, 4), (1, 5), (1, 7))
    text = "type: ClassToken, bottom: a, top: b"
    return Row(text, [(n, t, c)], torch=lambda x, p: torch.cat((p["token"].expand(n, -1, -1), x), 1))


def im2col(random):
    k, s, d, p = (sizes(random, (1, most), (1, most)) for most in (4, 3, 2, 3))
    shape = (*sizes(random, (1, 3), (1, 5)),
             *(max(1, d[i] * (k[i] - 1) + 1 - 2 * p[i]) + int(random.integers(0, 6)) for i in range(2)))  # fmt: skip
    o = [(shape[2 + i] + 2 * p[i] - d[i] * (k[i] - 1) - 1) // s[i] + 1 for i in range(2)]
    text = (
        f"type: Im2col, bottom: a, top: b, convolution_param: {{kernel_size: [{k[0]}, {k[1]}], stride: [{s[0]}, "
        f"{s[1]}], pad: [{p[0]}, {p[1]}], dilation: [{d[0]}, {d[1]}]}}"
    )
    return Row(text, [shape], torch=lambda x, q: column(x, k, s, p, d, o))


def batch_reindex(random):
    shape, (n,) = any_shape(random), sizes(random, (1, 9))
    return Row("type: BatchReindex, bottom: [a, b], top: c", [shape, (n,)],
               torch=lambda x, index, p: x[index.long()], labels=(1,), classes=shape[0])  # fmt: skip


def roll(random):
    shape, shift = any_shape(random), int(random.integers(-9, 9))
    axis = int(random.integers(len(shape)))
    text = f"type: Roll, bottom: a, top: b, roll_param: {{axis: {axis}, shift: {shift}}}"
    return Row(text, [shape], torch=lambda x, p: x.roll(shift, axis))


RANDOM = {
    "Slice": cut,
    "Crop": crop,
    "Pad": pad,
    "Reshape": reshape,
    "Permute": permute,
    "Tile": tile,
    "Roll": roll,
    "ClassToken": class_token,
    "Im2col": im2col,
    "BatchReindex": batch_reindex,
}
