"""Rows of products, normalization of rows, embedding, sums of rows and their largest elements."""

from __future__ import annotations

import math

import numpy as np

from tests.layers.bench import IMAGE, Row
from tests.layers.rows.spine import any_shape, sizes
from tests.support.peers import F, torch


def instance_norm(x, across=False, variance=True, eps=1e-9):
    axes = tuple(range(1 if across else min(2, x.dim()), x.dim()))
    if not axes:  # rows of one element
        return x - x
    away = x - x.mean(axes, keepdim=True)
    return away / (away.pow(2).mean(axes, keepdim=True).sqrt() + eps) if variance else away


def normalize(x, gamma, across=True, eps=1e-10):
    axes = tuple(range(1, x.dim() if across else 2))
    scaled = x / (x.pow(2).sum(axes, keepdim=True) + eps).sqrt()
    return scaled * gamma.view(1, -1, *[1] * (x.dim() - 2))


def attended(q, k, v, heads, kv_heads, causal=False, window=None, scale=None, bias=None):
    """Attention by whole matrices of scores; the last query's place is that of the last key. bias: (B, heads, T, S)."""
    q, k, v = (x.unflatten(2, (n, -1)).transpose(1, 2) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
    k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
    away = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2] - torch.arange(k.shape[2])
    hidden = (away < 0) & causal | (False if window is None else away.abs() >= window)
    if bias is not None:
        scores = scores + bias.repeat(len(q) // len(bias), 1, 1, 1)
    return (scores.masked_fill(hidden, -math.inf).softmax(3) @ v).transpose(1, 2).flatten(2)


def turned(x, heads, depth, base, interleaved=False):
    """Complex numbers, times those of length 1 whose angles grow with the place."""
    first = x[..., : heads * depth].unflatten(2, (heads, depth))
    pairs = first.unflatten(3, (-1, 2) if interleaved else (2, -1))
    pairs = pairs if interleaved else pairs.transpose(3, 4)
    angles = torch.arange(x.shape[1])[:, None].double() * base ** (-torch.arange(0, depth, 2).double() / depth)
    found = torch.view_as_real(
        torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones(()).double(), angles)[:, None]
    )
    found = found if interleaved else found.transpose(3, 4)
    return torch.cat([found.flatten(2), x[..., heads * depth :]], 2)


def largest(x, k, values, axis):
    """Caffe's ArgMax: of equal elements the last comes first."""
    if axis is None:
        rows = x.detach().flatten(1)
        found = sorted_back(rows, k, 1)
        both = [found.double(), rows.gather(1, found)][: 2 if values else 1]
        return torch.stack(both, 1).reshape(len(x), len(both), k, *[1] * (x.dim() - 3))
    found = sorted_back(x.detach(), k, axis)
    return x.detach().gather(axis, found) if values else found.double()


def sorted_back(x, k, axis):
    order = x.flip(axis).sort(dim=axis, descending=True, stable=True).indices
    return x.shape[axis] - 1 - order.narrow(axis, 0, k)


def reduced(x, operation, axis, coeff):
    rows = x.reshape(*x.shape[:axis], -1)
    found = {"SUM": rows.sum, "MEAN": rows.mean, "ASUM": rows.abs().sum, "SUMSQ": rows.pow(2).sum}[operation](-1)
    return coeff * found.reshape(x.shape[:axis] or (1,))


PRODUCT = [
    "inner_product.forward: x0 w b -> y0",
    "inner_product.backward_filter: x0 dy0 -> dw",
    "inner_product.backward_bias: dy0 -> db",
    "inner_product.backward_data: w dy0 -> dx0",
]
CHANNELS = [  # of images, each of whose lines is a row
    "flatten.forward: x0 -> x.rows",
    "inner_product.forward: x.rows w b -> y.rows",
    "flatten.forward: y.rows -> y0",
    "flatten.backward: dy0 -> dy.rows",
    "inner_product.backward_filter: x.rows dy.rows -> dw",
    "inner_product.backward_bias: dy.rows -> db",
    "inner_product.backward_data: w dy.rows -> dx.rows",
    "flatten.backward: dx.rows -> dx0",
]
AFFINE = [
    "row_norm.forward: x0 gamma beta -> y0 inverse mean",
    "row_norm.backward_filter: x0 dy0 inverse mean -> dgamma dbeta",
    "row_norm.backward_data: x0 dy0 inverse mean gamma -> dx0",
]
BY_GROUP = [
    "group_norm.forward: x0 gamma beta -> y0 inverse mean",
    "group_norm.backward: x0 dy0 inverse mean gamma -> gamma.sums beta.sums dx0",
    "scale.backward_bias: gamma.sums -> dgamma",
    "scale.backward_bias: beta.sums -> dbeta",
]
BARE = ["row_norm.forward: x0 -> y0 inverse", "row_norm.backward_data: y0 dy0 inverse -> dx0"]

ROWS = {
    "inner product of rows": Row(
        "type: InnerProduct, bottom: a, top: b, inner_product_param: {num_output: 3, axis: 2}",
        [(2, 5, 4)], [(2, 5, 3)], PRODUCT, lambda x, p: F.linear(x, p["w"], p["b"]), blobs=[(3, 4), (3,)],
        flops=2 * 10 * 3 * 4,
    ),
    "inner product of a whole batch": Row(
        "type: InnerProduct, bottom: a, top: b, inner_product_param: {num_output: 3, axis: 0}",
        [(2, 5, 4)], [(3,)], PRODUCT, lambda x, p: F.linear(x.flatten(), p["w"], p["b"]), blobs=[(3, 40), (3,)],
    ),
    "inner product of the lines of images": Row(
        "type: InnerProduct, bottom: a, top: b, inner_product_param: {num_output: 3, axis: -1}",
        [IMAGE], [(2, 4, 7, 3)], CHANNELS, lambda x, p: F.linear(x, p["w"], p["b"]), blobs=[(3, 5), (3,)],
    ),
    "inner product, transposed": Row(
        "type: InnerProduct, bottom: a, top: b, inner_product_param: {num_output: 3, axis: 2, transpose: true}",
        [(2, 5, 4)], [(2, 5, 3)],
        [
            "matmul.forward: x0 w b -> y0",
            "matmul.forward: x0 dy0 -> dw",
            "inner_product.backward_bias: dy0 -> db",
            "matmul.forward: dy0 w -> dx0",
        ],
        lambda x, p: x @ p["w"] + p["b"], blobs=[(4, 3), (3,)], flops=2 * 10 * 3 * 4,
    ),
    "inner product of images, transposed": Row(
        "type: InnerProduct, bottom: a, top: b, "
        "inner_product_param: {num_output: 3, transpose: true, bias_term: false}",
        [IMAGE], [(2, 3)],
        [
            "flatten.forward: x0 -> x.rows",
            "matmul.forward: x.rows w -> y0",
            "matmul.forward: x.rows dy0 -> dw",
            "matmul.forward: dy0 w -> dx.rows",
            "flatten.backward: dx.rows -> dx0",
        ],
        lambda x, p: x.flatten(1) @ p["w"], blobs=[(140, 3)],
    ),
    "matmul": Row(
        "type: MatMul, bottom: [a, b], top: c, matmul_param: {transpose_b: true, scale: 0.5}",
        [(2, 3, 4), (2, 5, 4)], [(2, 3, 5)],
        [
            "matmul.forward: x0 x1 -> y0",
            "matmul.forward: dy0 x1 -> dx0",
            "matmul.forward: dy0 x0 -> dx1",
        ],
        lambda a, b, p: 0.5 * a @ b.mT, flops=2 * 2 * 3 * 5 * 4,
    ),
    "matmul of images": Row(
        "type: MatMul, bottom: [a, b], top: c", [(2, 3, 4, 5), (2, 3, 5, 2)], [(2, 3, 4, 2)],
        [
            "flatten.forward: x0 -> x0.matrices",
            "flatten.forward: x1 -> x1.matrices",
            "matmul.forward: x0.matrices x1.matrices -> y.matrices",
            "flatten.forward: y.matrices -> y0",
            "flatten.backward: dy0 -> dy.matrices",
            "matmul.forward: dy.matrices x1.matrices -> dx0.matrices",
            "flatten.backward: dx0.matrices -> dx0",
            "matmul.forward: x0.matrices dy.matrices -> dx1.matrices",
            "flatten.backward: dx1.matrices -> dx1",
        ],
        lambda a, b, p: a @ b,
    ),
    "attention": Row(
        "type: Attention, bottom: [a, b, c], top: d, attention_param: {num_heads: 4, num_kv_heads: 2, causal: true}",
        [(2, 3, 20), (2, 5, 10), (2, 5, 10)], [(2, 3, 20)],
        [
            "attention.forward: x0 x1 x2 -> y0 lse",
            "attention.backward: x0 x1 x2 y0 lse dy0 -> dx0 dx1 dx2",
        ],
        lambda q, k, v, p: attended(q, k, v, 4, 2, causal=True), flops=4 * 2 * 4 * 5 * (3 + 4 + 5),
    ),
    "attention of one bottom": Row(
        "type: Attention, bottom: a, top: b, attention_param: {num_heads: 2, window: 2, scale: 0.3}",
        [(2, 5, 24)], [(2, 5, 8)],
        ["attention.forward: x0 -> y0 lse", "attention.backward: x0 y0 lse dy0 -> dx0"],
        lambda x, p: attended(*x.split(8, 2), 2, 2, window=2, scale=0.3), flops=4 * 2 * 2 * 4 * (5 + 2 * 4),
    ),
    "attention to parameters": Row(
        "type: Attention, bottom: [a, b, c], top: d, attention_param: {num_heads: 1}",
        [(1, 2, 3), (1, 4, 3), (1, 4, 3)], [(1, 2, 3)],
        ["attention.forward: x0 x1 x2 -> y0 lse", "attention.backward: x0 x1 x2 y0 lse dy0 -> dx1"],
        lambda q, k, v, p: attended(q, k, v, 1, 1), still=(0, 2),
    ),
    "attention with a bias": Row(
        "type: Attention, bottom: [a, b, c, d], top: e, attention_param: {num_heads: 4, num_kv_heads: 2}",
        [(2, 3, 20), (2, 5, 10), (2, 5, 10), (4, 3, 5)], [(2, 3, 20)],
        [
            "attention.forward: x0 x1 x2 x3 -> y0 lse",
            "attention.backward: x0 x1 x2 y0 lse dy0 x3 -> dx0 dx1 dx2 dx3",
        ],
        lambda q, k, v, b, p: attended(q, k, v, 4, 2, bias=b[None]), flops=4 * 2 * 4 * 5 * 3 * 5,
    ),
    "attention of one bottom, with a bias of windows that all heads share": Row(
        "type: Attention, bottom: [a, b], top: c, attention_param: {num_heads: 2, causal: true}",
        [(6, 5, 24), (3, 1, 5, 5)], [(6, 5, 8)],
        [
            "flatten.forward: x1 -> bias.rows",
            "attention.forward: x0 bias.rows -> y0 lse",
            "attention.backward: x0 y0 lse dy0 bias.rows -> dx0 dbias.rows",
            "flatten.backward: dbias.rows -> dx1",
        ],
        lambda x, b, p: attended(*x.split(8, 2), 2, 2, causal=True, bias=b),
    ),
    "attention with a bias of windows and heads that stays still": Row(
        "type: Attention, bottom: [a, b], top: c, attention_param: {num_heads: 2}",
        [(6, 5, 24), (4, 5, 5)], [(6, 5, 8)],
        ["attention.forward: x0 x1 -> y0 lse", "attention.backward: x0 y0 lse dy0 x1 -> dx0"],
        lambda x, b, p: attended(*x.split(8, 2), 2, 2, bias=b.unflatten(0, (2, 2))), still=(1,),
    ),
    "attention of still tensors, with a bias": Row(
        "type: Attention, bottom: [a, b], top: c, attention_param: {num_heads: 2, window: 2}",
        [(6, 5, 24), (5, 5)], [(6, 5, 8)],
        ["attention.forward: x0 x1 -> y0 lse", "attention.backward: x0 y0 lse dy0 x1 -> dx1"],
        lambda x, b, p: attended(*x.split(8, 2), 2, 2, window=2, bias=b[None, None]), still=(0,),
    ),
    "rotary embedding": Row(
        "type: RotaryEmbedding, bottom: a, top: b, rotary_embedding_param: {num_heads: 2, head_dim: 4, base: 100}",
        [(2, 5, 11)], [(2, 5, 11)], ["rotary.forward: x0 -> y0", "rotary.backward: dy0 -> dx0"],
        lambda x, p: turned(x, 2, 4, 100.0),
    ),
    "layer norm": Row(
        "type: LayerNorm, bottom: a, top: b", [(2, 3, 5)], [(2, 3, 5)], AFFINE,
        lambda x, p: F.layer_norm(x, (5,), p["gamma"], p["beta"]), blobs=[(5,), (5,)],
    ),
    "layer norm of images": Row(
        "type: LayerNorm, bottom: a, top: b, layer_norm_param: {axis: 1, eps: 0.01}", [IMAGE], [IMAGE], AFFINE,
        lambda x, p: F.layer_norm(x, x.shape[1:], p["gamma"][0], p["beta"][0], 0.01), blobs=[(4, 7, 5), (4, 7, 5)],
    ),
    "layer norm of channels": Row(
        "type: LayerNorm, bottom: a, top: b, layer_norm_param: {axis: 1, num_axes: 1}", [IMAGE], [IMAGE], AFFINE,
        lambda x, p: F.layer_norm(x.movedim(1, 3), (4,), p["gamma"], p["beta"]).movedim(3, 1), blobs=[(4,), (4,)],
    ),
    "group norm": Row(
        "type: GroupNorm, bottom: a, top: b, group_norm_param: {num_groups: 2, eps: 0.01}", [IMAGE], [IMAGE], BY_GROUP,
        lambda x, p: F.group_norm(x, 2, p["gamma"], p["beta"], 0.01), blobs=[(4,), (4,)],
    ),
    "group norm of sequences": Row(
        "type: GroupNorm, bottom: a, top: b, group_norm_param: {num_groups: 3, affine: false}", [(2, 6, 5)],
        [(2, 6, 5)],
        [
            "group_norm.forward: x0 -> y0 inverse mean",
            "group_norm.backward: x0 dy0 inverse mean -> gamma.sums beta.sums dx0",
        ],
        lambda x, p: F.group_norm(x, 3),
    ),
    "instance norm": Row(
        "type: InstanceNorm, bottom: a, top: b", [IMAGE], [IMAGE], BY_GROUP,
        lambda x, p: F.instance_norm(x, weight=p["gamma"], bias=p["beta"]), blobs=[(4,), (4,)],
    ),
    "layer norm without gamma and beta": Row(
        "type: LayerNorm, bottom: a, top: b, layer_norm_param: {affine: false, axis: 2}", [IMAGE], [IMAGE], BARE,
        lambda x, p: F.layer_norm(x, (7, 5)),
    ),
    "rms norm": Row(
        "type: RMSNorm, bottom: a, top: b, rms_norm_param: {eps: 0.01}", [(2, 3, 5)], [(2, 3, 5)], BARE,
        lambda x, p: F.rms_norm(x, (5,), eps=0.01),
    ),
    "mvn": Row(
        "type: MVN, bottom: a, top: b, mvn_param: {eps: 0.1}", [IMAGE], [IMAGE], BARE,
        lambda x, p: instance_norm(x, eps=0.1),
    ),
    "mvn across channels, without the variance": Row(
        "type: MVN, bottom: a, top: b, mvn_param: {across_channels: true, normalize_variance: false}", [IMAGE], [IMAGE],
        ["row_norm.forward: x0 -> y0", "row_norm.backward_data: dy0 -> dx0"],
        lambda x, p: instance_norm(x, True, False),
    ),
    "normalize each place": Row(
        "type: Normalize, bottom: a, top: b, norm_param: {across_spatial: false, channel_shared: false, eps: 0.1, "
        "scale_filler: {value: 20}}", [IMAGE], [IMAGE],
        [
            "row_norm.forward: x0 -> normalized inverse",
            "broadcast.multiply: normalized gamma -> y0",
            "broadcast.sum_products: normalized dy0 -> dgamma",
            "broadcast.multiply: dy0 gamma -> normalized.grad",
            "row_norm.backward_data: normalized normalized.grad inverse -> dx0",
        ],
        lambda x, p: normalize(x, p["gamma"], False, 0.1), blobs=[(4,)],
    ),
    "normalize a sample": Row(
        "type: Normalize, bottom: a, top: b", [IMAGE], [IMAGE],
        [
            "row_norm.forward: x0 -> normalized inverse",
            "broadcast.multiply: normalized gamma -> y0",
            "broadcast.sum_products: normalized dy0 -> dgamma",
            "broadcast.multiply: dy0 gamma -> normalized.grad",
            "row_norm.backward_data: normalized normalized.grad inverse -> dx0",
        ],
        lambda x, p: normalize(x, p["gamma"]), blobs=[(1,)],
    ),
    "embed": Row(
        "type: Embed, bottom: a, top: b, embed_param: {num_output: 4, input_dim: 6}", [(2, 5)], [(2, 5, 4)],
        [
            "batch_reindex.forward: w x0 -> chosen",
            "broadcast.add: chosen b -> y0",
            "batch_reindex.backward: x0 dy0 -> dw",
            "inner_product.backward_bias: dy0 -> db",
        ],
        lambda x, p: F.embedding(x.long(), p["w"]) + p["b"], labels=(0,), classes=6, blobs=[(6, 4), (4,)],
    ),
    "embed to images": Row(
        "type: Embed, bottom: a, top: b, embed_param: {num_output: 4, input_dim: 6, bias_term: false}",
        [(2, 5, 3)], [(2, 5, 3, 4)],
        [
            "batch_reindex.forward: w x0 -> y.rows",
            "flatten.forward: y.rows -> y0",
            "flatten.backward: dy0 -> dy.rows",
            "batch_reindex.backward: x0 dy.rows -> dw",
        ],
        lambda x, p: F.embedding(x.long(), p["w"]), labels=(0,), classes=6,
    ),
    "reduction": Row(
        "type: Reduction, bottom: a, top: b, reduction_param: {operation: SUMSQ, axis: 1, coeff: 0.5}", [IMAGE], [(2,)],
        ["reduction.forward: x0 -> y0", "reduction.backward: x0 dy0 -> dx0"],
        lambda x, p: reduced(x, "SUMSQ", 1, 0.5),
    ),
    "reduction to one number": Row(
        "type: Reduction, bottom: a, top: b, reduction_param: {operation: MEAN}", [IMAGE], [(1,)],
        ["reduction.forward: x0 -> y0", "reduction.backward: dy0 -> dx0"],
        lambda x, p: x.mean().view(1),
    ),
    "reduction of the lines of images": Row(
        "type: Reduction, bottom: a, top: b, reduction_param: {operation: ASUM, axis: -1}", [IMAGE], [(2, 4, 7)],
        [
            "reduction.forward: x0 -> y.rows",
            "flatten.forward: y.rows -> y0",
            "flatten.backward: dy0 -> dy.rows",
            "reduction.backward: x0 dy.rows -> dx0",
        ],
        lambda x, p: reduced(x, "ASUM", 3, 1),
    ),
    "argmax": Row(
        "type: ArgMax, bottom: a, top: b, argmax_param: {top_k: 3, out_max_val: true}", [(2, 9)], [(2, 2, 3)],
        ["argmax.forward: x0 -> y0"], lambda x, p: largest(x, 3, True, None), still=(0,),
    ),
    "argmax of images": Row(
        "type: ArgMax, bottom: a, top: b, argmax_param: {top_k: 3, out_max_val: true}", [IMAGE], [(2, 2, 3, 1)],
        ["flatten.forward: x0 -> x.rows", "argmax.forward: x.rows -> y0"], lambda x, p: largest(x, 3, True, None),
        still=(0,),
    ),
    "argmax along an axis": Row(
        "type: ArgMax, bottom: a, top: b, argmax_param: {axis: 1}", [IMAGE], [(2, 1, 7, 5)],
        ["argmax.forward: x0 -> y0"], lambda x, p: largest(x, 1, False, 1), still=(0,),
        values=lambda v: {"x0": np.round(v["x0"])},
    ),
}  # fmt: skip


# ---- any geometry


def yes(random):
    return bool(random.integers(2))


def text_of(kind, field, bottoms="a", **values):
    numbers = ", ".join(f"{k}: {str(v).lower() if isinstance(v, bool) else v}" for k, v in values.items())
    return f"type: {kind}, bottom: {bottoms}, top: z, {field}: {{{numbers}}}"


def inner_product(random):
    shape, (o,) = any_shape(random), sizes(random, (1, 6))
    axis, transpose, bias = int(random.integers(len(shape))), yes(random), yes(random)

    def theirs(x, p):
        w = p["w"].reshape(math.prod(shape[axis:]), o) if transpose else p["w"].reshape(o, -1).T
        return x.flatten(axis) @ w + (p["b"] if bias else 0)

    given = dict(num_output=o, axis=axis, transpose=transpose, bias_term=bias)
    return Row(text_of("InnerProduct", "inner_product_param", **given), [shape], torch=theirs)


def matmul(random):
    lead, (m, k, n) = any_shape(random)[: int(random.integers(4))], sizes(random, (1, 9), (1, 9), (1, 9))
    turn, scale = (yes(random), yes(random)), round(float(random.normal()), 3)
    shapes = [(*lead, *(s[::-1] if t else s)) for s, t in zip([(m, k), (k, n)], turn, strict=True)]
    text = text_of("MatMul", "matmul_param", "[a, b]", transpose_a=turn[0], transpose_b=turn[1], scale=scale)
    return Row(text, shapes, torch=lambda a, b, p: scale * (a.mT if turn[0] else a) @ (b.mT if turn[1] else b))


def attention(random):
    n, kv_heads, group, d, queries, more = sizes(random, (1, 3), (1, 3), (1, 3), (1, 9), (1, 9), (0, 4))
    heads, causal, packed = kv_heads * group, yes(random), yes(random)
    keys, window = queries + (0 if packed else more), int(random.integers(1, 9)) if yes(random) else None
    widths = [heads * d, kv_heads * d, kv_heads * d]
    shapes = (
        [(n, queries, sum(widths))] if packed else [(n, queries if i == 0 else keys, w) for i, w in enumerate(widths)]
    )
    given = dict(num_heads=heads, num_kv_heads=kv_heads, causal=causal) | ({} if window is None else {"window": window})
    biased, lead = yes(random), [(1, 1), (1, heads), (n, 1), (n, heads)][random.integers(4)]
    ways = [(*lead, queries, keys)]  # of bias
    if lead[1] == heads:
        ways += [(lead[0] * heads, queries, keys)]
    if lead == (1, 1):
        ways += [(queries, keys)]
    shapes += [ways[random.integers(len(ways))]] * biased

    def theirs(*x):
        q, k, v = x[0].split(widths, 2) if packed else x[:3]
        bias = x[len(shapes) - 1].reshape(*lead, queries, keys) if biased else None
        return attended(q, k, v, heads, kv_heads, causal, window, bias=bias)

    bottoms = f"[{', '.join('abcd'[: len(shapes)])}]"
    return Row(text_of("Attention", "attention_param", bottoms, **given), shapes, torch=theirs)


def rotary(random):
    n, t, heads, half, rest = sizes(random, (1, 3), (1, 9), (1, 4), (1, 6), (0, 5))
    given = dict(
        num_heads=heads, head_dim=2 * half, base=round(float(random.uniform(2, 1e4)), 1), interleaved=yes(random)
    )
    text = text_of("RotaryEmbedding", "rotary_embedding_param", **given)
    shape = n, t, heads * 2 * half + rest
    return Row(text, [shape], torch=lambda x, p: turned(x, *given.values()))


def layer_norm(random):
    shape, affine, eps = any_shape(random), yes(random), float(random.choice([1e-5, 0.1]))
    axis, rank = int(random.integers(len(shape))), len(shape)
    count = int(random.integers(1, rank - axis + 1))
    if rank == 4 and axis <= 1 < axis + count < 4:  # these axes of images are no rows
        count = 1 if axis == 1 else 4
    inner, behind = shape[axis : axis + count], [*range(rank - count, rank)]

    def theirs(x, p):
        rows = x.movedim([*range(axis, axis + count)], behind)
        scale = (p[k].reshape(inner) for k in ("gamma", "beta")) if affine else ()
        return F.layer_norm(rows, inner, *scale, eps=eps).movedim(behind, [*range(axis, axis + count)])

    given = dict(axis=axis, affine=affine, eps=eps, num_axes=count if axis + count < rank or yes(random) else -1)
    return Row(text_of("LayerNorm", "layer_norm_param", **given), [shape], torch=theirs)


def group_norm(random):
    shape, eps, c = any_shape(random), float(random.choice([1e-5, 0.1])), int(random.integers(1, 4))
    groups = int(random.integers(1, 4))
    shape = (shape[0], c * groups, *shape[2:]) if len(shape) > 2 else (shape[0], 2 * groups)
    affine = yes(random)
    text = text_of("GroupNorm", "group_norm_param", num_groups=groups, eps=eps, affine=affine)
    return Row(text, [shape], torch=lambda x, p: F.group_norm(x, groups, p.get("gamma"), p.get("beta"), eps))


def instance_normed(random):
    shape = (*any_shape(random), *sizes(random, (2, 5), (1, 4)))[:4]
    text = text_of("InstanceNorm", "instance_norm_param", affine=yes(random))
    return Row(text, [shape], torch=lambda x, p: F.group_norm(x, shape[1], p.get("gamma"), p.get("beta")))


def rms_norm(random):
    shape, eps = any_shape(random), float(random.choice([1e-5, 0.1]))
    axis = int(random.integers(len(shape)))
    text = text_of("RMSNorm", "rms_norm_param", axis=axis, eps=eps)
    return Row(text, [shape], torch=lambda x, p: F.rms_norm(x, shape[axis:], eps=eps))


def mvn(random):
    shape, across, variance, eps = any_shape(random), yes(random), yes(random), float(random.choice([1e-9, 0.1]))
    shape = (*shape[:-1], shape[-1] + 1)
    given = dict(across_channels=across, normalize_variance=variance, eps=eps)
    if len(shape) == 2 and not across:  # rows of one element have no deviation, of which PyTorch's derivative is NaN
        across, given["across_channels"] = True, True
    text = text_of("MVN", "mvn_param", **given)
    return Row(text, [shape], torch=lambda x, p: instance_norm(x, across, variance, eps))


def normalized(random):
    shape, across, shared, eps = any_shape(random), yes(random), yes(random), float(random.choice([1e-10, 0.1]))
    text = text_of("Normalize", "norm_param", across_spatial=across, channel_shared=shared, eps=eps)
    return Row(text, [shape], torch=lambda x, p: normalize(x, p["gamma"], across, eps))


def embed(random):
    shape, (o, dim), bias = any_shape(random)[: int(random.integers(1, 4))], sizes(random, (1, 6), (1, 9)), yes(random)
    return Row(
        text_of("Embed", "embed_param", num_output=o, input_dim=dim, bias_term=bias), [shape], labels=(0,), classes=dim,
        torch=lambda x, p: F.embedding(x.long(), p["w"]) + (p["b"] if bias else 0),
    )  # fmt: skip


def reduction(random):
    shape, operation, coeff = any_shape(random), random.choice(["SUM", "ASUM", "SUMSQ", "MEAN"]), random.normal()
    axis = int(random.integers(len(shape)))
    text = text_of("Reduction", "reduction_param", operation=operation, axis=axis, coeff=coeff)
    return Row(text, [shape], torch=lambda x, p: reduced(x, operation, axis, coeff))


def argmax(random):
    shape, values = any_shape(random), yes(random)
    axis = int(random.integers(len(shape))) if yes(random) else None
    k = int(random.integers(1, (math.prod(shape[1:]) if axis is None else shape[axis]) + 1))
    given = dict(top_k=k, out_max_val=values) | ({} if axis is None else {"axis": axis})
    return Row(
        text_of("ArgMax", "argmax_param", **given), [shape], torch=lambda x, p: largest(x, k, values, axis), still=(0,),
        values=lambda v: {"x0": np.round(v["x0"])},
    )  # fmt: skip


RANDOM = {
    "InnerProduct": inner_product,
    "MatMul": matmul,
    "Attention": attention,
    "RotaryEmbedding": rotary,
    "LayerNorm": layer_norm,
    "GroupNorm": group_norm,
    "InstanceNorm": instance_normed,
    "RMSNorm": rms_norm,
    "MVN": mvn,
    "Normalize": normalized,
    "Embed": embed,
    "Reduction": reduction,
    "ArgMax": argmax,
}
