"""One row per layer: shapes, the ops it lowers to with their declared reads, numeric gradients, PyTorch.

Kernels get nothing but an op's declared reads, so a backward that gives the right gradient proves that they suffice.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import pytest

from minidnn.backends.philox import keep_mask
from minidnn.layers import FACTS, LAYERS, Facts, ShapeError, Site
from minidnn.program import Tensor
from tests.support.graphs import layer
from tests.support.interpret import run_ops

try:
    import torch
    import torch.nn.functional as F
except ImportError:  # the extra `peer`: only test_equals_pytorch needs it
    torch = None

ITERATION = Tensor("iteration", (1,), "int64")
IMAGE = (2, 4, 7, 5)


class Bench:
    """A layer lowered alone, on bottoms x0, x1, ... with all gradients wanted."""

    def __init__(self, text, bottoms, phase="TRAIN", facts=None, labels=False):
        self.layer = layer(text, phase)
        self.shapes = self.layer.shapes(list(bottoms))
        x = [Tensor(f"x{i}", s, "int32" if labels and i else "float32") for i, s in enumerate(bottoms)]
        y = [Tensor(f"y{i}", s) for i, s in enumerate(self.shapes)]
        self.parameters = self.layer.parameters(list(bottoms))
        p = {q.name: Tensor(f"it.{q.name}", q.shape) for q in self.parameters}
        self.site = s = Site("it", phase == "TRAIN", facts or Facts(), x, y, p, iteration=ITERATION, seed=5)
        self.forward = list(self.layer.forward(s))
        s.survivor = list(y)
        s.dy = [None if self.layer.loss else Tensor(f"dy{i}", t.shape) for i, t in enumerate(y)]
        s.dx = [Tensor(f"dx{i}", t.shape) if t.dtype == "float32" else None for i, t in enumerate(x)]
        s.dp = {q.name: Tensor(f"d{q.name}", q.shape) if q.learnable else None for q in self.parameters}
        self.backward = list(self.layer.backward(s)) if phase == "TRAIN" and self.layer.type != "Accuracy" else []

    def listing(self):
        return [line(op) for op in (*self.forward, *self.backward)]

    def values(self, seed=0):
        random = np.random.default_rng(seed)
        s = self.site
        found = {t.name: random.standard_normal(t.shape) for t in (*s.x, *s.p.values(), *(t for t in s.dy if t))}
        for name in ("it.mean_sum", "it.variance_sum", "it.factor"):
            if name in found:
                found[name] = 0.5 + np.abs(found[name])
        for t in s.x:
            if t.dtype == "int32":
                found[t.name] = random.integers(0, 3, t.shape).astype(np.int32)
        return found | {"iteration": np.array([7])}


def line(op):
    reads, writes = (" ".join(t.name.removeprefix("it.") for t in side) for side in (op.reads, op.writes))
    return f"{op.kind}: {reads} -> {writes}"


@dataclass
class Row:
    text: str
    bottoms: list
    tops: list
    ops: list
    torch: object = None  # (x..., p dict) -> y, in PyTorch
    phase: str = "TRAIN"
    labels: bool = False
    blobs: list = field(default_factory=list)  # Caffe's blob shapes
    flops: int | None = None  # of the first op
    gradients: bool = True
    facts: Facts | None = None


def lrn_within(x, p, n=3, alpha=0.3, beta=0.6):
    return x * (1 + alpha * F.avg_pool2d(x * x, n, 1, n // 2)) ** -beta


def dropout(x, p):
    keep = keep_mask(tuple(x.shape), 0.25, 5, 7, zlib.crc32(b"it"))
    return x * torch.from_numpy(keep) / 0.75


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
        lambda x, label, p: F.cross_entropy(x, label.long()).view(1), labels=True,
    ),
    "softmax loss, spatial, weighted, with labels that do not count": Row(
        "type: SoftmaxWithLoss, bottom: [a, label], top: [loss, prob], loss_weight: 0.5, "
        "loss_param: {ignore_label: 1}",
        [(2, 3, 4, 2), (2, 4, 2)], [(1,), (2, 3, 4, 2)],
        ["softmax_loss.forward: x0 x1 -> y0 y1", "softmax_loss.backward: y1 x1 -> dx0"],
        lambda x, label, p: 2 * spatial_loss(x, label, p).view(1), labels=True,
    ),
    "accuracy": Row(
        "type: Accuracy, bottom: [a, label], top: b, accuracy_param: {top_k: 2}", [(40, 3), (40,)], [(1,)],
        ["accuracy.forward: x0 x1 -> y0"],
        lambda x, label, p: (x.topk(2, 1).indices == label[:, None]).any(1).double().mean().view(1), labels=True,
    ),
}  # fmt: skip
ALL = pytest.mark.parametrize("name", ROWS)


def bench(row):
    return Bench(row.text, row.bottoms, row.phase, row.facts, row.labels)


def test_every_type_has_a_row():
    assert set(LAYERS) == {layer(row.text).type for row in ROWS.values()} | {"Input", "Data"}


@ALL
def test_shapes_and_ops(name):
    row = ROWS[name]
    b = bench(row)
    assert b.shapes == row.tops
    assert b.listing() == row.ops
    if row.blobs:
        assert [q.blob_shape or q.shape for q in b.parameters] == row.blobs
    if row.flops:
        assert b.forward[0].flops == row.flops
    for op in (*b.forward, *b.backward):
        assert all(r in op.reads and w in op.writes and w.nbytes <= r.nbytes for r, w in op.inplace)
    if b.layer.in_place and row.phase == "TEST":
        assert b.forward[0].inplace == ((b.site.x[0], b.site.y[0]),)


def output(b, values):
    return run_ops(b.forward, values, "float64")


def gradient(b, held, t):
    """The gradient of a bottom or parameter, wherever the layer said it is."""
    s = b.site
    found = s.dx[s.x.index(t)] if t in s.x else s.dp[t.name.removeprefix("it.")]
    return held[found.name]


def learned(b):
    return [
        t for t in (*b.site.x, *b.site.p.values()) if t.dtype == "float32" and not t.name.endswith(("sum", "factor"))
    ]


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed (the extra `peer`)")
@ALL
def test_equals_pytorch(name):
    row = ROWS[name]
    b, values = bench(row), bench(row).values()
    held = output(b, values)
    x = [torch.tensor(values[t.name], requires_grad=t.dtype == "float32") for t in b.site.x]
    p = {n: torch.tensor(values[t.name], requires_grad=True) for n, t in b.site.p.items()}
    y = row.torch(*x, p)
    np.testing.assert_allclose(held["y0"], y.detach().numpy(), rtol=1e-10, atol=1e-10)
    if b.layer.type == "Accuracy" or row.phase == "TEST":
        return
    held = run_ops(b.backward, held, "float64")
    (y * (torch.tensor(values["dy0"]) if "dy0" in values else b.layer.loss_weight())).sum().backward()
    theirs = {f"x{i}": v.grad for i, v in enumerate(x)} | {f"it.{n}": v.grad for n, v in p.items()}
    for t in learned(b):
        np.testing.assert_allclose(gradient(b, held, t), theirs[t.name].numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if bench(row).backward or "sum" in n])
def test_numeric_gradient(name):
    """Central differences of sum(y * dy) at up to 12 places of each bottom and parameter."""
    b = bench(ROWS[name])
    values = b.values(1)
    held = run_ops(b.backward, output(b, values), "float64")
    places = np.random.default_rng(2)

    def objective(changed):
        out = output(b, changed)
        return (out["y0"] * values.get("dy0", b.layer.loss_weight())).sum()

    for t in learned(b):
        for i in places.choice(t.size, min(12, t.size), replace=False):
            sides = []
            for step in (1e-6, -1e-6):
                changed = values | {t.name: values[t.name].copy()}
                changed[t.name].flat[i] += step
                sides.append(objective(changed))
            numeric = (sides[0] - sides[1]) / 2e-6
            assert gradient(b, held, t).flat[i] == pytest.approx(numeric, rel=1e-5, abs=1e-7), f"{t.name}[{i}]"


# ---- Caffe's numbers where others differ, by hand

CEIL = [  # H, kernel, stride, pad -> outputs; Caffe rounds up, then leaves out a window that begins beyond H + pad
    (4, 2, 2, 0, 2),
    (5, 2, 2, 0, 3),  # the last window hangs over by one
    (224, 3, 2, 0, 112),  # AlexNet, GoogLeNet
    (112, 3, 2, 0, 56),
    (112, 3, 2, 1, 57),  # ResNet's pool1 as PyTorch writes it: one more in Caffe
    (7, 2, 2, 1, 4),
    (4, 2, 2, 1, 3),
    (3, 2, 2, 1, 2),
    (5, 3, 3, 1, 2),
    (6, 3, 3, 1, 3),
    (1, 2, 2, 1, 1),  # (1+2-2)/2 rounds up to 1: a second window would begin at 2 - 1 = 1 = H: left out
    (2, 3, 2, 0, 1),  # a kernel larger than its bottom, by less than a stride
    (4, 1, 3, 0, 2),
    (5, 1, 3, 0, 2),  # without padding Caffe itself would make 3, the third over nothing
]


@pytest.mark.parametrize("h, k, s, p, out", CEIL)
def test_pooling_rounds_as_caffe_does(h, k, s, p, out):
    made = layer(f"type: Pooling, bottom: a, top: b, pooling_param: {{kernel_size: {k}, stride: {s}, pad: {p}}}")
    assert made.shapes([(1, 1, h, h)]) == [(1, 1, out, out)]


def test_pooling_rounds_down_if_told():
    text = "type: Pooling, bottom: a, top: b, pooling_param: {kernel_size: 3, stride: 2, pad: 1, round_mode: FLOOR}"
    assert layer(text).shapes([(1, 1, 112, 112)]) == [(1, 1, 56, 56)]


def result(text, values, bottoms, **options):
    return run_ops(Bench(text, bottoms, **options).forward, values, "float64")["y0"]


def test_average_divides_by_the_window_clipped_to_the_padded_image():
    """H = W = 4, kernel 3, stride 2, pad 1 of ones: 3 windows a side begin at -1, 1, 3 and end at 2, 4, 5 (clipped
    to 5): 9, 9, 6 places count; 2, 3, 1 of a side's are inside."""
    text = "type: Pooling, bottom: a, top: b, pooling_param: {pool: AVE, kernel_size: 3, stride: 2, pad: 1}"
    y = result(text, {"x0": np.ones((1, 1, 4, 4))}, [(1, 1, 4, 4)])
    inside, size = np.array([2, 3, 1]), np.array([3, 3, 2])
    np.testing.assert_allclose(y[0, 0], np.outer(inside, inside) / np.outer(size, size))


def test_pooling_index_widens_with_the_window():
    def index(k):
        text = f"type: Pooling, bottom: a, top: b, pooling_param: {{kernel_size: {k}}}"
        return Bench(text, [(1, 1, 20, 20)]).forward[0].writes[1].dtype

    assert (index(16), index(17)) == ("uint8", "int32")


def test_lrn_divides_alpha_by_its_size():
    """Three channels of 1, 2, 3, local_size 3, alpha 3, beta 1, k 1: 1 + the sum of the neighbours' squares."""
    text = "type: LRN, bottom: a, top: b, lrn_param: {local_size: 3, alpha: 3.0, beta: 1.0}"
    y = result(text, {"x0": np.array([1.0, 2, 3]).reshape(1, 3, 1, 1)}, [(1, 3, 1, 1)])
    np.testing.assert_allclose(y.ravel(), [1 / 6, 2 / 15, 3 / 14])


def test_an_equal_score_counts_as_better():
    text = "type: Accuracy, bottom: [a, label], top: b"
    values = {"x0": np.array([[1.0, 1, 1], [0, 2, 1], [3, 0, 3]]), "x1": np.array([0, 1, 2], np.int32)}
    assert result(text, values, [(3, 3), (3,)], labels=True)[0] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "normalization, divisor",
    [
        ("normalization: VALID", 3), ("normalization: FULL", 4), ("normalization: BATCH_SIZE", 2),
        ("normalization: NONE", 1), ("normalize: false", 2), ("normalize: true", 3),
    ],
)  # fmt: skip
def test_what_a_loss_is_divided_by(normalization, divisor):
    """2 images of 2 places, 2 equal scores: log 2 for each of the 3 labels that count."""
    text = f"type: SoftmaxWithLoss, bottom: [a, l], top: b, loss_param: {{ignore_label: 9, {normalization}}}"
    values = {"x0": np.zeros((2, 2, 2)), "x1": np.array([[0, 1], [9, 1]], np.int32)}
    assert result(text, values, [(2, 2, 2), (2, 2)], labels=True)[0] == pytest.approx(3 * np.log(2) / divisor)


def test_running_statistics_by_hand():
    """Two batches of one channel: (1, 3), then (2, 6): means 2, 4; unbiased variances 2, 8; fraction 0.5."""
    text = "type: BatchNorm, bottom: a, top: a, batch_norm_param: {moving_average_fraction: 0.5}"
    b, sums = (
        Bench(text, [(2, 1)]),
        {"it.mean_sum": np.zeros(1), "it.variance_sum": np.zeros(1), "it.factor": np.zeros(1)},
    )
    for batch in ([1.0, 3.0], [2.0, 6.0]):
        held = run_ops(b.forward, sums | {"x0": np.array(batch).reshape(2, 1)}, "float64")
        sums = {name: held[name] for name in sums}
    assert [v[0] for v in sums.values()] == [0.5 * 2 + 4, 0.5 * 2 + 8, 0.5 * 1 + 1]
    y = result(text, sums | {"x0": np.zeros((2, 1))}, [(2, 1)], phase="TEST")
    np.testing.assert_allclose(y, -(5 / 1.5) / np.sqrt(9 / 1.5 + 1e-5) * np.ones((2, 1)))


# ---- facts, sources, errors


@pytest.mark.parametrize(
    "text, want",
    [
        ("type: Pooling, bottom: a, top: b, pooling_param: {kernel_size: 2, stride: 2}",
         ["pooling.forward: x0 -> y0", "pooling.backward: x0 dy0 -> dx0"]),
        ("type: LRN, bottom: a, top: b", ["lrn.forward: x0 -> y0", "lrn.backward: x0 y0 dy0 -> dx0"]),
        ("type: ReLU, bottom: a, top: a", ["relu.forward: x0 -> y0", "relu.backward: y0 dy0 -> dx0"]),
    ],
)  # fmt: skip
def test_facts_of_vdnn(text, want):
    b = Bench(text, [IMAGE], facts=FACTS["vdnn2016"])
    assert b.listing() == want


def test_other_facts():
    assert Bench("type: ReLU, bottom: a, top: a", [IMAGE], facts=Facts(relu="mask")).listing() == [
        "relu.forward: x0 -> y0 mask",
        "relu.backward: mask dy0 -> dx0",
    ]
    pool = Bench("type: Pooling, bottom: a, top: b, pooling_param: {kernel_size: 2}", [IMAGE], facts=Facts(pool="xy"))
    assert line(pool.backward[0]) == "pooling.backward: x0 y0 dy0 -> dx0"


def test_a_slope_that_does_not_keep_signs_has_no_use_for_a_mask():
    text = "type: ReLU, bottom: a, top: b, relu_param: {negative_slope: -0.5}"
    assert Bench(text, [IMAGE], facts=FACTS["layrub"]).listing()[1] == "relu.backward: x0 y0 dy0 -> dx0"


def test_which_facts_run():
    assert [name for name in ("default", "layrub") if FACTS[name].planning_only()] == []
    assert FACTS["vdnn2016"].planning_only() == "pool='x', lrn='xy'"


def test_only_what_is_wanted_is_computed():
    b = Bench("type: Convolution, bottom: a, top: b, convolution_param: {num_output: 6, kernel_size: 1}", [IMAGE])
    b.site.dx, b.site.dp = [None], {"w": None, "b": b.site.dp["b"]}
    assert [line(op) for op in b.layer.backward(b.site)] == ["convolution.backward_bias: dy0 -> db"]
    b = Bench("type: Concat, bottom: [a, b, c], top: d", [(2, 1), (2, 4), (2, 3)])
    b.site.dx[0] = None
    (op,) = b.layer.backward(b.site)
    assert line(op) == "concat.backward: dy0 -> dx1 dx2"
    assert op.attrs.starts == (1, 5)


def test_sources():
    data = layer("type: Data, top: [data, label], data_param: {source: x, batch_size: 5}", sample=(3, 9, 7))
    assert (data.shapes([]), data.dtypes([])) == ([(5, 3, 9, 7), (5,)], ["float32", "int32"])
    alone = layer("type: Data, top: data, data_param: {source: x, batch_size: 5}", sample=(3, 9, 7))
    assert (alone.shapes([]), alone.dtypes([])) == ([(5, 3, 9, 7)], ["float32"])
    two = layer("type: Input, top: [a, b], input_param: {shape: [{dim: [2, 3]}, {dim: 2}]}")
    assert two.shapes([]) == [(2, 3), (2,)]
    same = layer("type: Input, top: [a, b], input_param: {shape: {dim: [2, 3]}}")
    assert same.shapes([]) == [(2, 3), (2, 3)]


@pytest.mark.parametrize(
    "text, bottoms, message",
    [
        ("type: Convolution, bottom: a, top: b, convolution_param: {num_output: 4, kernel_size: 3}", [(2, 9)],
         r"4 axes \(N, C, H, W\), got 2x9"),
        ("type: Convolution, bottom: a, top: b, "
         "convolution_param: {num_output: 4, kernel_size: 5, dilation: 2, pad: 1}",
         [(2, 3, 6, 6)], r"window of 9 \(kernel 5, dilation 2\) does not fit into 6 \+ 2 x 1"),
        ("type: Convolution, bottom: a, top: b, convolution_param: {num_output: 4, kernel_size: 3, group: 2}",
         [(2, 3, 6, 6)], "group 2 does not divide the 3 channels"),
        ("type: Pooling, bottom: a, top: b, pooling_param: {kernel_size: 2, pad: 2}", [(2, 3, 6, 6)],
         "pad 2 must be less than kernel 2"),
        ("type: Pooling, bottom: a, top: b, pooling_param: {kernel_size: 7}", [(2, 3, 5, 5)],
         r"window of 7 does not fit into 5"),
        ("type: InnerProduct, bottom: a, top: b, inner_product_param: {num_output: 4}", [(2,)], "2 or more axes"),
        ("type: Concat, bottom: [a, b], top: c", [(2, 3, 4), (2, 3, 5)],
         r"axis 1 only; bottom 1 \(b\) is 2x3x5, bottom 0 \(a\) 2x3x4"),
        ("type: Concat, bottom: [a, b], top: c, concat_param: {axis: 3}", [(2, 3), (2, 3)], "axis 3 does not exist"),
        ("type: Eltwise, bottom: [a, b], top: c", [(2, 3), (2, 4)], r"bottom 1 \(b\) is 2x4, bottom 0 \(a\) 2x3"),
        ("type: Eltwise, bottom: [a, b], top: c, eltwise_param: {coeff: [1]}", [(2, 3), (2, 3)], "expected 2 coeff"),
        ("type: Flatten, bottom: a, top: c, flatten_param: {axis: 2, end_axis: 1}", [(2, 3, 4)], "comes before axis 2"),
        ("type: SoftmaxWithLoss, bottom: [a, l], top: c", [(2, 3), (3,)], r"need 2 labels, got 3"),
        ("type: Accuracy, bottom: [a, l], top: c, accuracy_param: {top_k: 5}", [(2, 3), (2,)], "top_k 5 exceeds the 3"),
        ("type: Input, top: [a, b, c], input_param: {shape: [{dim: 1}, {dim: 2}]}", [], "or 3 for 3 tops; got 2"),
        ("type: Input, top: a, input_param: {shape: {}}", [], "whose first dim is the batch, got one without"),
    ],
)  # fmt: skip
def test_errors_name_the_numbers(text, bottoms, message):
    with pytest.raises(ShapeError, match=message):
        layer(text).shapes(bottoms)
