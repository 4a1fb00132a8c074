"""Rows of the layers that the first networks need: products, windows, normalization, joins, the softmax loss."""

from __future__ import annotations

import zlib

from minidnn.backends.philox import keep_mask
from minidnn.layers import FACTS
from tests.layers.bench import IMAGE, Row
from tests.support.peers import F, torch


def lrn_within(x, p, n=3, alpha=0.3, beta=0.6):
    return x * (1 + alpha * F.avg_pool2d(x * x, n, 1, n // 2)) ** -beta


def dropout(x, p):
    keep = keep_mask(tuple(x.shape), 0.25, 5, 7, zlib.crc32(b"it"))
    return x * torch.from_numpy(keep) / 0.75


def skipping(x, ratio, together):
    """torchvision's stochastic_depth, with our numbers."""
    shape = (1 if together else len(x), *[1] * (x.dim() - 1))
    return x * torch.from_numpy(keep_mask(shape, ratio, 5, 7, zlib.crc32(b"it"))) / (1 - ratio)


SKIPPING = [
    "dropout.factors: iteration -> factors",
    "broadcast.multiply: x0 factors -> y0",
    "broadcast.multiply: dy0 factors -> dx0",
]


def running(x, p):
    mean, variance = (p[k].view(1, -1, 1, 1) / p["factor"] for k in ("mean_sum", "variance_sum"))
    return (x - mean) / torch.sqrt(variance + 1e-5)


def spatial_loss(x, label, p):
    return 0.5 * F.cross_entropy(x, label.long(), ignore_index=1, reduction="sum") / max((label != 1).sum(), 1)


WEIGHTED = (
    "convolution.forward: x0 w b -> y0;convolution.backward_filter: x0 dy0 -> dw;"
    "convolution.backward_bias: dy0 -> db;convolution.backward_data: w dy0 -> dx0"
)

ROWS = {
    "convolution": Row(
        "type: Convolution, bottom: a, top: b, convolution_param: {num_output: 6, kernel_size: 3, pad: 1, stride: 2}",
        [IMAGE], [(2, 6, 4, 3)], WEIGHTED.split(";"),
        lambda x, p: F.conv2d(x, p["w"], p["b"], 2, 1), blobs=[(6, 4, 3, 3), (6,)], flops=2 * 2 * 6 * 4 * 3 * 4 * 9,
    ),
    "convolution, grouped, dilated, not square": Row(
        "type: Convolution, bottom: a, top: b, convolution_param: {num_output: 6, kernel_h: 3, kernel_w: 1, pad_h: 2, "
        "pad_w: 0, stride_h: 1, stride_w: 2, dilation: 2, group: 2, bias_term: false}",
        [IMAGE], [(2, 6, 7, 3)],
        [
            "convolution.forward: x0 w -> y0",
            "convolution.backward_filter: x0 dy0 -> dw",
            "convolution.backward_data: w dy0 -> dx0",
        ],
        lambda x, p: F.conv2d(x, p["w"], None, (1, 2), (2, 0), 2, 2), blobs=[(6, 2, 3, 1)],
    ),
    "pooling max": Row(
        "type: Pooling, bottom: a, top: b, pooling_param: {kernel_size: 3, stride: 2, pad: 1}",
        [IMAGE], [(2, 4, 4, 3)], ["pooling.forward: x0 -> y0 index", "pooling.backward: index dy0 -> dx0"],
        lambda x, p: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    ),
    "pooling average": Row(
        "type: Pooling, bottom: a, top: b, pooling_param: {pool: AVE, kernel_size: 3, stride: 2, pad: 1}",
        [(2, 4, 8, 6)], [(2, 4, 5, 4)], ["pooling.forward: x0 -> y0", "pooling.backward: dy0 -> dx0"],
        lambda x, p: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    ),
    "pooling global": Row(
        "type: Pooling, bottom: a, top: b, pooling_param: {pool: AVE, global_pooling: true}",
        [IMAGE], [(2, 4, 1, 1)], ["pooling.forward: x0 -> y0", "pooling.backward: dy0 -> dx0"],
        lambda x, p: x.mean((2, 3), keepdim=True),
    ),
    "inner product of images": Row(
        "type: InnerProduct, bottom: a, top: b, inner_product_param: {num_output: 3}",
        [IMAGE], [(2, 3)], WEIGHTED.replace("convolution", "inner_product").split(";"),
        lambda x, p: F.linear(x.flatten(1), p["w"].flatten(1), p["b"]), blobs=[(3, 140), (3,)], flops=2 * 2 * 3 * 140,
    ),
    "inner product of vectors": Row(
        "type: InnerProduct, bottom: a, top: b, inner_product_param: {num_output: 3, bias_term: false}",
        [(2, 9)], [(2, 3)],
        [
            "inner_product.forward: x0 w -> y0",
            "inner_product.backward_filter: x0 dy0 -> dw",
            "inner_product.backward_data: w dy0 -> dx0",
        ],
        lambda x, p: F.linear(x, p["w"]), blobs=[(3, 9)],
    ),
    "relu": Row(
        "type: ReLU, bottom: a, top: a", [IMAGE], [IMAGE], ["relu.forward: x0 -> y0", "relu.backward: y0 dy0 -> dx0"],
        lambda x, p: F.relu(x),
    ),
    "relu, leaky": Row(
        "type: ReLU, bottom: a, top: a, relu_param: {negative_slope: 0.1}",
        [(2, 9)], [(2, 9)], ["relu.forward: x0 -> y0", "relu.backward: y0 dy0 -> dx0"],
        lambda x, p: F.leaky_relu(x, 0.1),
    ),
    "relu with a mask": Row(
        "type: ReLU, bottom: a, top: a, relu_param: {negative_slope: 0.1}",
        [IMAGE], [IMAGE], ["relu.forward: x0 -> y0 mask", "relu.backward: mask dy0 -> dx0"],
        lambda x, p: F.leaky_relu(x, 0.1), facts=FACTS["layrub"],
    ),
    "relu, whose y does not tell the sign of x": Row(
        "type: ReLU, bottom: a, top: b, relu_param: {negative_slope: -0.5}",
        [(2, 9)], [(2, 9)], ["relu.forward: x0 -> y0", "relu.backward: x0 y0 dy0 -> dx0"],
        lambda x, p: F.leaky_relu(x, -0.5),
    ),
    "lrn": Row(
        "type: LRN, bottom: a, top: b, lrn_param: {local_size: 3, alpha: 0.3, beta: 0.6, k: 2.0}",
        [IMAGE], [IMAGE], ["lrn.forward: x0 -> y0", "lrn.backward: x0 dy0 -> dx0"],
        lambda x, p: F.local_response_norm(x, 3, 0.3, 0.6, 2.0),
    ),
    "lrn within a channel": Row(
        "type: LRN, bottom: a, top: b, "
        "lrn_param: {local_size: 3, alpha: 0.3, beta: 0.6, k: 2.0, norm_region: WITHIN_CHANNEL}",
        [IMAGE], [IMAGE], ["lrn.forward: x0 -> y0", "lrn.backward: x0 dy0 -> dx0"],
        lrn_within,
    ),
    "batch norm": Row(
        "type: BatchNorm, bottom: a, top: a", [IMAGE], [IMAGE],
        [
            "batch_norm.forward: x0 -> y0 mean variance",
            "batch_norm.statistics: mean variance mean_sum variance_sum factor -> mean_sum variance_sum factor",
            "batch_norm.backward: x0 mean variance dy0 -> dx0",
        ],
        lambda x, p: F.batch_norm(x, None, None, training=True), blobs=[(4,), (4,), (1,)],
    ),
    "batch norm of vectors": Row(
        "type: BatchNorm, bottom: a, top: a, batch_norm_param: {eps: 0.01}", [(5, 4)], [(5, 4)],
        [
            "batch_norm.forward: x0 -> y0 mean variance",
            "batch_norm.statistics: mean variance mean_sum variance_sum factor -> mean_sum variance_sum factor",
            "batch_norm.backward: x0 mean variance dy0 -> dx0",
        ],
        lambda x, p: F.batch_norm(x, None, None, training=True, eps=0.01),
    ),
    "batch norm by running statistics": Row(
        "type: BatchNorm, bottom: a, top: a, batch_norm_param: {use_global_stats: true}", [IMAGE], [IMAGE],
        [
            "batch_norm.inference: x0 mean_sum variance_sum factor -> y0",
            "batch_norm.inference_backward: variance_sum factor dy0 -> dx0",
        ],
        running,
    ),
    "batch norm in TEST": Row(
        "type: BatchNorm, bottom: a, top: a", [IMAGE], [IMAGE],
        ["batch_norm.inference: x0 mean_sum variance_sum factor -> y0"], running, phase="TEST",
    ),
    "scale": Row(
        "type: Scale, bottom: a, top: a, scale_param: {bias_term: true}", [IMAGE], [IMAGE],
        [
            "scale.forward: x0 gamma beta -> y0",
            "scale.backward_filter: x0 dy0 -> dgamma",
            "scale.backward_bias: dy0 -> dbeta",
            "scale.backward_data: gamma dy0 -> dx0",
        ],
        lambda x, p: x * p["gamma"].view(1, -1, 1, 1) + p["beta"].view(1, -1, 1, 1), blobs=[(4,), (4,)],
    ),
    "dropout": Row(
        "type: Dropout, bottom: a, top: a, dropout_param: {dropout_ratio: 0.25}", [IMAGE], [IMAGE],
        ["dropout.forward: x0 iteration -> y0", "dropout.backward: dy0 iteration -> dx0"], dropout,
    ),
    "stochastic depth": Row(
        "type: StochasticDepth, bottom: a, top: a, stochastic_depth_param: {drop_ratio: 0.4}", [(6, 4, 3, 5)],
        [(6, 4, 3, 5)], SKIPPING, lambda x, p: skipping(x, 0.4, False),
    ),
    "stochastic depth of a batch": Row(
        "type: StochasticDepth, bottom: a, top: b, stochastic_depth_param: {drop_ratio: 0.2, mode: BATCH}",
        [(3, 5)], [(3, 5)], SKIPPING, lambda x, p: skipping(x, 0.2, True),
    ),
    "stochastic depth in TEST": Row(
        "type: StochasticDepth, bottom: a, top: a", [IMAGE], [IMAGE], ["identity.forward: x0 -> y0"],
        lambda x, p: x, phase="TEST",
    ),
    "dropout in TEST": Row(
        "type: Dropout, bottom: a, top: a", [IMAGE], [IMAGE], ["identity.forward: x0 -> y0"],
        lambda x, p: x, phase="TEST",
    ),
    "concat": Row(
        "type: Concat, bottom: [a, b, c], top: d", [(2, 1, 3, 3), (2, 4, 3, 3), (2, 2, 3, 3)], [(2, 7, 3, 3)],
        ["concat.forward: x0 x1 x2 -> y0", "concat.backward: dy0 -> dx0 dx1 dx2"],
        lambda x, y, z, p: torch.cat((x, y, z), 1),
    ),
    "concat along the last axis": Row(
        "type: Concat, bottom: [a, b], top: d, concat_param: {axis: -1}", [(2, 3, 4), (2, 3, 1)], [(2, 3, 5)],
        ["concat.forward: x0 x1 -> y0", "concat.backward: dy0 -> dx0 dx1"],
        lambda x, y, p: torch.cat((x, y), -1),
    ),
    "eltwise sum": Row(
        "type: Eltwise, bottom: [a, b], top: c", [IMAGE, IMAGE], [IMAGE], ["eltwise.forward: x0 x1 -> y0"],
        lambda x, y, p: x + y,
    ),
    "eltwise weighted sum": Row(
        "type: Eltwise, bottom: [a, b, c], top: d, eltwise_param: {coeff: [1, -1, 0.5]}",
        [(2, 3)] * 3, [(2, 3)],
        ["eltwise.forward: x0 x1 x2 -> y0", "eltwise.backward: dy0 -> dx1", "eltwise.backward: dy0 -> dx2"],
        lambda x, y, z, p: x - y + 0.5 * z,
    ),
    "eltwise product": Row(
        "type: Eltwise, bottom: [a, b, c], top: d, eltwise_param: {operation: PROD}",
        [(2, 3)] * 3, [(2, 3)],
        [
            "eltwise.forward: x0 x1 x2 -> y0",
            "eltwise.backward: x1 x2 dy0 -> dx0",
            "eltwise.backward: x0 x2 dy0 -> dx1",
            "eltwise.backward: x0 x1 dy0 -> dx2",
        ],
        lambda x, y, z, p: x * y * z,
    ),
    "eltwise maximum": Row(
        "type: Eltwise, bottom: [a, b], top: d, eltwise_param: {operation: MAX}",
        [(2, 3)] * 2, [(2, 3)],
        [
            "eltwise.forward: x0 x1 -> y0 which",
            "eltwise.backward: which dy0 -> dx0",
            "eltwise.backward: which dy0 -> dx1",
        ],
        lambda x, y, p: torch.maximum(x, y),
    ),
    "flatten": Row(
        "type: Flatten, bottom: a, top: b", [IMAGE], [(2, 140)],
        ["flatten.forward: x0 -> y0", "flatten.backward: dy0 -> dx0"],
        lambda x, p: x.flatten(1),
    ),
    "flatten of some axes": Row(
        "type: Flatten, bottom: a, top: b, flatten_param: {axis: 1, end_axis: -2}", [IMAGE], [(2, 28, 5)],
        ["flatten.forward: x0 -> y0", "flatten.backward: dy0 -> dx0"],
        lambda x, p: x.flatten(1, 2),
    ),
    "softmax": Row(
        "type: Softmax, bottom: a, top: a", [(3, 4)], [(3, 4)],
        ["softmax.forward: x0 -> y0", "softmax.backward: y0 dy0 -> dx0"],
        lambda x, p: F.softmax(x, 1),
    ),
    "softmax of images": Row(
        "type: Softmax, bottom: a, top: a, softmax_param: {axis: -3}", [IMAGE], [IMAGE],
        ["softmax.forward: x0 -> y0", "softmax.backward: y0 dy0 -> dx0"],
        lambda x, p: F.softmax(x, 1),
    ),
    "softmax loss": Row(
        "type: SoftmaxWithLoss, bottom: [a, label], top: loss", [(6, 3), (6,)], [(1,)],
        ["softmax_loss.forward: x0 x1 -> y0 prob", "softmax_loss.backward: prob x1 -> dx0"],
        lambda x, label, p: F.cross_entropy(x, label.long()).view(1), labels=(1,),
    ),
    "softmax loss, spatial, weighted, with labels that do not count": Row(
        "type: SoftmaxWithLoss, bottom: [a, label], top: [loss, prob], loss_weight: 0.5, "
        "loss_param: {ignore_label: 1}",
        [(2, 3, 4, 2), (2, 4, 2)], [(1,), (2, 3, 4, 2)],
        ["softmax_loss.forward: x0 x1 -> y0 y1", "softmax_loss.backward: y1 x1 -> dx0"],
        lambda x, label, p: 2 * spatial_loss(x, label, p).view(1), labels=(1,),
    ),
    "accuracy": Row(
        "type: Accuracy, bottom: [a, label], top: b, accuracy_param: {top_k: 2}", [(40, 3), (40,)], [(1,)],
        ["accuracy.forward: x0 x1 -> y0"],
        lambda x, label, p: (x.topk(2, 1).indices == label[:, None]).any(1).double().mean().view(1),
        labels=(1,), still=(0,),
    ),
}  # fmt: skip


# ---- any geometry


def sizes(random, *ranges):
    """A number of each range (least, most)."""
    return tuple(int(random.integers(least, most + 1)) for least, most in ranges)


def images(random):
    return sizes(random, (1, 3), (1, 6), (1, 9), (1, 9))


def any_shape(random, most=5):
    return sizes(random, *[(1, 5)] * int(random.integers(2, most + 1)))


def convolution(random):
    alone = bool(random.integers(2))  # each channel has a group of its own
    group, c, o = sizes(random, (1, 20), (1, 1), (1, 2)) if alone else sizes(random, (1, 3), (1, 3), (1, 3))
    k, s, d, p = (sizes(random, (1, most), (1, most)) for most in (4, 3, 2, 3))
    h, w = (max(1, d[i] * (k[i] - 1) + 1 - 2 * p[i]) + int(random.integers(0, 6)) for i in range(2))
    bias = bool(random.integers(2))
    text = (
        f"type: Convolution, bottom: a, top: b, convolution_param: {{num_output: {group * o}, group: {group}, "
        f"kernel_h: {k[0]}, kernel_w: {k[1]}, stride_h: {s[0]}, stride_w: {s[1]}, pad_h: {p[0]}, pad_w: {p[1]}, "
        f"dilation: [{d[0]}, {d[1]}], bias_term: {str(bias).lower()}}}"
    )
    return Row(text, [(2, group * c, h, w)], torch=lambda x, q: F.conv2d(x, q["w"], q.get("b"), s, p, d, group))


def pooling(random):
    k, (stride,) = int(random.integers(1, 5)), sizes(random, (1, 4))
    pad = int(random.integers(0, k // 2 + 1))
    stride = min(stride, k) if pad == 0 else stride
    shape = (*sizes(random, (1, 3), (1, 5)), *sizes(random, (k, k + 6), (k, k + 6)))
    way, floor = random.choice(["MAX", "AVE"]), bool(random.integers(2))
    text = (
        f"type: Pooling, bottom: a, top: b, pooling_param: {{pool: {way}, kernel_size: {k}, stride: {stride}, "
        f"pad: {pad}, round_mode: {'FLOOR' if floor else 'CEIL'}}}"
    )
    pool = F.max_pool2d if way == "MAX" else F.avg_pool2d
    return Row(text, [shape], torch=lambda x, p: pool(x, k, stride, pad, ceil_mode=not floor))


def relu(random):
    slope = float(random.choice([0.0, 0.25, -0.5]))
    text = f"type: ReLU, bottom: a, top: b, relu_param: {{negative_slope: {slope}}}"
    return Row(text, [any_shape(random)], torch=lambda x, p: F.leaky_relu(x, slope))


def lrn(random):
    n, alpha, beta = 2 * int(random.integers(0, 4)) + 1, random.uniform(0.1, 2), random.uniform(0.2, 1.5)
    within = bool(random.integers(2))
    region = "WITHIN_CHANNEL" if within else "ACROSS_CHANNELS"
    text = (
        f"type: LRN, bottom: a, top: b, lrn_param: {{local_size: {n}, alpha: {alpha}, beta: {beta}, k: 1.5, "
        f"norm_region: {region}}}"
    )
    if within:
        return Row(text, [images(random)], torch=lambda x, p: lrn_within(x, p, n, alpha, beta))
    return Row(text, [images(random)], torch=lambda x, p: F.local_response_norm(x, n, alpha, beta, 1.5))


def batch_norm(random):
    shape = (*sizes(random, (2, 4), (1, 6)), *sizes(random, (1, 5), (1, 5)))[: 2 + 2 * int(random.integers(2))]
    text = "type: BatchNorm, bottom: a, top: a"
    return Row(text, [shape], torch=lambda x, p: F.batch_norm(x, None, None, training=True))


def scale(random):
    shape, bias = any_shape(random), bool(random.integers(2))
    text = f"type: Scale, bottom: a, top: b, scale_param: {{bias_term: {str(bias).lower()}}}"
    across = (1, -1, *[1] * (len(shape) - 2))

    def theirs(x, p):
        return x * p["gamma"].view(across) + (p["beta"].view(across) if bias else 0)

    return Row(text, [shape], torch=theirs)


def dropped(random):
    ratio = float(random.uniform(0, 0.9))
    text = f"type: Dropout, bottom: a, top: b, dropout_param: {{dropout_ratio: {ratio}}}"

    def theirs(x, p):
        return x * torch.from_numpy(keep_mask(tuple(x.shape), ratio, 5, 7, zlib.crc32(b"it"))) / (1 - ratio)

    return Row(text, [any_shape(random)], torch=theirs)


def stochastic_depth(random):
    ratio, together = float(random.uniform(0, 0.9)), bool(random.integers(2))
    fields = f"drop_ratio: {ratio}, mode: {'BATCH' if together else 'ROW'}"
    text = f"type: StochasticDepth, bottom: a, top: b, stochastic_depth_param: {{{fields}}}"
    return Row(text, [any_shape(random)], torch=lambda x, p: skipping(x, ratio, together))


def concat(random):
    shape = any_shape(random)
    axis = int(random.integers(len(shape)))
    shapes = [(*shape[:axis], int(random.integers(1, 5)), *shape[axis + 1 :]) for _ in range(random.integers(1, 5))]
    names = ", ".join(f"b{i}" for i in range(len(shapes)))
    text = f"type: Concat, bottom: [{names}], top: d, concat_param: {{axis: {axis}}}"
    return Row(text, shapes, torch=lambda *x: torch.cat(x[:-1], axis))


def eltwise(random):
    shape, n, way = any_shape(random), int(random.integers(2, 5)), random.choice(["SUM", "PROD", "MAX"])
    coeff = [round(float(c), 3) for c in random.normal(size=n)]
    names, some = ", ".join(f"b{i}" for i in range(n)), f", coeff: {coeff}" if way == "SUM" else ""
    text = f"type: Eltwise, bottom: [{names}], top: d, eltwise_param: {{operation: {way}{some}}}"

    def theirs(*x):
        x = torch.stack(x[:-1])
        if way == "SUM":
            return (x * torch.tensor(coeff, dtype=torch.float64).view(-1, *[1] * len(shape))).sum(0)
        return x.prod(0) if way == "PROD" else x.max(0).values

    return Row(text, [shape] * n, torch=theirs)


def flatten(random):
    shape = any_shape(random)
    first, last = sorted(int(i) for i in random.integers(0, len(shape), 2))
    text = f"type: Flatten, bottom: a, top: b, flatten_param: {{axis: {first}, end_axis: {last}}}"
    return Row(text, [shape], torch=lambda x, p: x.flatten(first, last))


def softmax(random):
    shape = any_shape(random)
    axis = int(random.integers(len(shape)))
    return Row(f"type: Softmax, bottom: a, top: b, softmax_param: {{axis: {axis}}}", [shape],
               torch=lambda x, p: F.softmax(x, axis))  # fmt: skip


def softmax_loss(random):
    n, c, h, w = sizes(random, (1, 4), (3, 6), (1, 4), (1, 4))
    shapes = [[(n, c), (n,)], [(n, c, h, w), (n, h, w)]][int(random.integers(2))]
    text = "type: SoftmaxWithLoss, bottom: [a, label], top: loss, loss_weight: 0.5, loss_param: {ignore_label: 1}"
    return Row(text, shapes, torch=lambda x, label, p: 2 * spatial_loss(x, label, p).view(1), labels=(1,), classes=c)


def accuracy(random):
    n, c = sizes(random, (1, 40), (2, 9))
    k = int(random.integers(1, c + 1))
    text = f"type: Accuracy, bottom: [a, label], top: b, accuracy_param: {{top_k: {k}}}"

    def theirs(x, label, p):
        return (x.topk(k, 1).indices == label[:, None]).any(1).double().mean().view(1)

    return Row(text, [(n, c), (n,)], torch=theirs, labels=(1,), still=(0,), classes=c)


RANDOM = {
    "Convolution": convolution,
    "Pooling": pooling,
    "ReLU": relu,
    "LRN": lrn,
    "BatchNorm": batch_norm,
    "Scale": scale,
    "Dropout": dropped,
    "StochasticDepth": stochastic_depth,
    "Concat": concat,
    "Eltwise": eltwise,
    "Flatten": flatten,
    "Softmax": softmax,
    "SoftmaxWithLoss": softmax_loss,
    "Accuracy": accuracy,
}
