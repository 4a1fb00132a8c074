"""Rows of the losses beside the softmax loss, and of that with label smoothing."""

from __future__ import annotations

import numpy as np

from tests.layers.bench import Row
from tests.layers.rows.spine import any_shape, sizes
from tests.support.peers import F, torch


def divided(total, normalization, full, valid, batch):
    """A sum over its divisor, by Caffe's modes."""
    divisor = {"FULL": full, "VALID": valid, "BATCH_SIZE": batch, "NONE": 1}[normalization]
    return (total / max(int(divisor), 1)).view(1)


def cross_entropy(ignored=None, normalization="BATCH_SIZE"):
    def loss(x, t, p):
        counts = torch.ones_like(t) if ignored is None else (t.trunc() != ignored).to(t.dtype)
        some = F.binary_cross_entropy_with_logits(x, t.view_as(x), counts.view_as(x), reduction="sum")
        return divided(some, normalization, x.numel(), counts.sum(), len(x))

    return loss


def euclidean(a, b, p):
    return (F.mse_loss(a.flatten(), b.flatten(), reduction="sum") / (2 * len(a))).view(1)


def smooth_l1(sigma=1.0):
    def loss(a, b, *weights_and_p):
        inside, outside = (*weights_and_p[:-1], 1, 1)[:2]
        each = F.smooth_l1_loss(inside * a, inside * b, reduction="none", beta=1 / sigma**2)
        return ((outside * each).sum() / len(a)).view(1)

    return loss


def hinge(norm):
    def loss(x, label, p):
        x = x.flatten(1)
        sign = 2 * F.one_hot(label.flatten().long(), x.shape[1]) - 1
        return (F.relu(1 - sign * x).pow(norm).sum() / len(x)).view(1)

    return loss


def logistic(x, label, p):
    return F.nll_loss(x.flatten(1).log(), label.flatten().long()).view(1)


def contrastive(margin, legacy=False):
    """With Caffe's gradient, which divides by the distance plus 1e-4."""

    def loss(a, b, similar, p):
        square = (a - b).flatten(1).square().sum(1)
        short = F.relu(margin - (square if legacy else square.sqrt()))
        if legacy:
            apart = short
        else:
            slope = -(short / (square.sqrt() + 1e-4)).detach() * square
            apart = slope + (short.square() - slope).detach()
        return (torch.where(similar.flatten() != 0, square, apart).sum() / (2 * len(a))).view(1)

    return loss


def infogain(ignored=-1, normalization="VALID", axis=1):
    def loss(x, label, matrix, p):
        rows = x.movedim(axis, -1).flatten(0, -2)
        counts, costs = label.flatten() != ignored, matrix.reshape(x.shape[axis], -1)
        label = torch.where(counts, label.flatten(), 0).long()
        each = -(costs[label] * F.log_softmax(rows, 1)).sum(1)[counts]
        return divided(each.sum(), normalization, len(counts), counts.sum(), np.prod(x.shape[:axis]))

    return loss


def smoothed(amount, ignored=-100):
    def loss(x, label, p):
        return F.cross_entropy(x, label.long(), ignore_index=ignored, label_smoothing=amount).view(1)

    return loss


def linear(amount=0.0, ignored=-100):
    def loss(x, label, p):
        scores, label = F.linear(x.reshape(label.numel(), -1), p["w"], p.get("b")), label.flatten().long()
        total = F.cross_entropy(scores, label, ignore_index=ignored, label_smoothing=amount, reduction="sum")
        return (total / max(int((label != ignored).sum()), 1)).view(1)

    return loss


def between(low, high, *names):
    """The values of these tensors, moved to this range."""

    def values(found):
        return {name: low + (high - low) / (1 + np.exp(-found[name])) for name in names}

    return values


POINTWISE = ["pointwise_loss.forward: x0 x1 -> y0", "pointwise_loss.backward: x0 x1 -> dx0"]
PAIR = "contrastive_loss.backward: x0 x1 x2 -> dx0 dx1"
ROWS = {
    "sigmoid cross entropy": Row(
        "type: SigmoidCrossEntropyLoss, bottom: [a, t], top: b, loss_weight: 0.5", [(3, 4, 2), (3, 4, 2)], [(1,)],
        POINTWISE, cross_entropy(), still=(1,), values=between(0, 1, "x1"),
    ),
    "sigmoid cross entropy, with targets of another shape, of which some do not count": Row(
        "type: SigmoidCrossEntropyLoss, bottom: [a, t], loss_param: {ignore_label: 1, normalization: VALID}, top: b",
        [(2, 12), (2, 3, 2, 2)], [(1,)],
        [
            "flatten.forward: x1 -> x1.flat",
            "pointwise_loss.forward: x0 x1.flat -> y0",
            "pointwise_loss.backward: x0 x1.flat -> dx0",
        ],
        cross_entropy(1, "VALID"), still=(1,), values=between(0, 3, "x1"),
    ),
    "euclidean": Row(
        "type: EuclideanLoss, bottom: [a, b], top: c", [(3, 4, 2), (3, 4, 2)], [(1,)],
        ["pointwise_loss.forward: x0 x1 -> y0", "pointwise_loss.backward: x0 x1 -> dx0 dx1"], euclidean,
    ),
    "euclidean, of images and vectors": Row(
        "type: EuclideanLoss, bottom: [a, b], top: c", [(3, 4, 2, 5), (3, 40)], [(1,)],
        [
            "flatten.forward: x1 -> x1.flat",
            "pointwise_loss.forward: x0 x1.flat -> y0",
            "pointwise_loss.backward: x0 x1.flat -> dx0 dx1.flat",
            "flatten.backward: dx1.flat -> dx1",
        ],
        euclidean,
    ),
    "euclidean, into the second": Row(
        "type: EuclideanLoss, bottom: [a, b], top: c", [(3, 4), (3, 4)], [(1,)],
        ["pointwise_loss.forward: x0 x1 -> y0", "pointwise_loss.backward: x0 x1 -> dx1"], euclidean, still=(0,),
    ),
    "smooth L1": Row(
        "type: SmoothL1Loss, bottom: [a, b], top: c, smooth_l1_loss_param: {sigma: 0.8}", [(5, 8), (5, 8)], [(1,)],
        ["pointwise_loss.forward: x0 x1 -> y0", "pointwise_loss.backward: x0 x1 -> dx0 dx1"], smooth_l1(0.8),
    ),
    "smooth L1 with weights inside": Row(
        "type: SmoothL1Loss, bottom: [a, b, c], top: d", [(5, 8)] * 3, [(1,)],
        ["pointwise_loss.forward: x0 x1 x2 -> y0", "pointwise_loss.backward: x0 x1 x2 -> dx0 dx1"], smooth_l1(),
        still=(2,),
    ),
    "smooth L1 with all weights": Row(
        "type: SmoothL1Loss, bottom: [a, b, c, d], top: e, loss_weight: 2, smooth_l1_loss_param: {sigma: 3}",
        [(2, 8, 3, 2)] * 4, [(1,)],
        ["pointwise_loss.forward: x0 x1 x2 x3 -> y0", "pointwise_loss.backward: x0 x1 x2 x3 -> dx0 dx1"], smooth_l1(3),
        still=(2, 3),
    ),
    "hinge": Row("type: HingeLoss, bottom: [a, l], top: b", [(6, 3), (6,)], [(1,)], POINTWISE, hinge(1), labels=(1,)),
    "hinge, squared, with images as scores": Row(
        "type: HingeLoss, bottom: [a, l], top: b, loss_weight: 0.25, hinge_loss_param: {norm: L2}",
        [(4, 3, 2, 1), (4, 1, 1, 1)], [(1,)],
        [
            "flatten.forward: x0 -> x0.flat",
            "pointwise_loss.forward: x0.flat x1 -> y0",
            "pointwise_loss.backward: x0.flat x1 -> dx0.flat",
            "flatten.backward: dx0.flat -> dx0",
        ],
        hinge(2), labels=(1,), classes=6,
    ),
    "multinomial logistic": Row(
        "type: MultinomialLogisticLoss, bottom: [a, l], top: b", [(6, 3), (6,)], [(1,)], POINTWISE, logistic,
        labels=(1,), values=between(0.1, 1, "x0"),
    ),
    "contrastive": Row(
        "type: ContrastiveLoss, bottom: [a, b, l], top: c, contrastive_loss_param: {margin: 500}",
        [(8, 5), (8, 5), (8,)], [(1,)], ["contrastive_loss.forward: x0 x1 x2 -> y0", PAIR], contrastive(500),
        labels=(2,), values=lambda found: {"x0": 100 * found["x0"]},
    ),
    "contrastive, of squares": Row(
        "type: ContrastiveLoss, bottom: [a, b, l], top: c, loss_weight: 0.25, "
        "contrastive_loss_param: {margin: 9, legacy_version: true}",
        [(8, 5, 1, 1), (8, 5), (8, 1)], [(1,)], ["contrastive_loss.forward: x0 x1 x2 -> y0", PAIR],
        lambda a, b, similar, p: contrastive(9, True)(a.flatten(1), b, similar, p), labels=(2,),
    ),
    "infogain": Row(
        "type: InfogainLoss, bottom: [a, l, h], top: b", [(6, 3), (6,), (1, 1, 3, 3)], [(1,)],
        ["softmax_loss.forward: x0 x1 x2 -> y0 prob", "softmax_loss.backward: prob x1 x2 -> dx0"],
        infogain(), labels=(1,), still=(2,),
    ),
    "infogain, spatial, weighted, with labels that do not count": Row(
        "type: InfogainLoss, bottom: [a, l, h], top: b, loss_weight: 0.5, "
        "loss_param: {ignore_label: 1, normalization: FULL}",
        [(2, 3, 4, 2), (2, 4, 2), (3, 3)], [(1,)],
        ["softmax_loss.forward: x0 x1 x2 -> y0 prob", "softmax_loss.backward: prob x1 x2 -> dx0"],
        infogain(1, "FULL"), labels=(1,), still=(2,),
    ),
    "inner product with loss": Row(
        "type: InnerProductWithLoss, bottom: [a, l], top: b, loss_weight: 0.5, "
        "inner_product_param: {num_output: 3, bias_term: false, axis: 2}",
        [(2, 3, 5), (2, 3)], [(1,)], ["linear_loss.forward: x0 w x1 -> y0 dx dw"], linear(), labels=(1,),
        blobs=[(3, 5)], flops=3 * 2 * 6 * 5 * 3,
    ),
    "inner product with loss, with a bias": Row(
        "type: InnerProductWithLoss, bottom: [a, l], top: b, loss_weight: 0.5, "
        "inner_product_param: {num_output: 3, axis: 2}",
        [(2, 3, 5), (2, 3)], [(1,)], ["linear_loss.forward: x0 w x1 b -> y0 dx dw db"], linear(), labels=(1,),
        blobs=[(3, 5), (3,)], flops=3 * 2 * 6 * 5 * 3 + 6 * 3,
    ),
    "inner product with loss, of a bottom that stays still": Row(
        "type: InnerProductWithLoss, bottom: [a, l], top: b, inner_product_param: {num_output: 3, bias_term: false}",
        [(6, 4), (6,)], [(1,)], ["linear_loss.forward: x0 w x1 -> y0 dw"], linear(), labels=(1,), still=(0,),
        blobs=[(3, 4)], flops=2 * 2 * 6 * 4 * 3,
    ),
    "inner product with loss, with label smoothing": Row(
        "type: InnerProductWithLoss, bottom: [a, l], top: b, "
        "inner_product_param: {num_output: 3, bias_term: false}, loss_param: {label_smoothing: 0.2, ignore_label: 2}",
        [(6, 2, 2), (6,)], [(1,)], ["linear_loss.forward: x0 w x1 -> y0 dx dw"], linear(0.2, 2), labels=(1,),
        blobs=[(3, 4)],
    ),
    "softmax loss with label smoothing": Row(
        "type: SoftmaxWithLoss, bottom: [a, l], top: b, loss_param: {label_smoothing: 0.2, ignore_label: 2}",
        [(6, 3), (6,)], [(1,)],
        ["softmax_loss.forward: x0 x1 -> y0 prob", "softmax_loss.backward: prob x1 -> dx0"],
        smoothed(0.2, 2), labels=(1,),
    ),
}  # fmt: skip


# ---- any geometry


MODES = ("FULL", "VALID", "BATCH_SIZE", "NONE")


def draw_cross_entropy(random):
    shape, mode = any_shape(random), MODES[random.integers(4)]
    ignored = int(random.integers(0, 3))
    text = (
        f"type: SigmoidCrossEntropyLoss, bottom: [a, t], top: b, "
        f"loss_param: {{ignore_label: {ignored}, normalization: {mode}}}"
    )
    return Row(text, [shape] * 2, torch=cross_entropy(ignored, mode), still=(1,), values=between(0, 3, "x1"))


def draw_euclidean(random):
    shape = any_shape(random)
    other = (shape[0], int(np.prod(shape[1:])))
    return Row("type: EuclideanLoss, bottom: [a, b], top: c, loss_weight: 0.75",
               [shape, [shape, other][random.integers(2)]], torch=euclidean)  # fmt: skip


def draw_smooth_l1(random):
    n, sigma = int(random.integers(2, 5)), round(float(random.uniform(0.5, 3)), 2)
    names = ", ".join("abcd"[:n])
    text = f"type: SmoothL1Loss, bottom: [{names}], top: e, smooth_l1_loss_param: {{sigma: {sigma}}}"
    return Row(text, [any_shape(random)] * n, torch=smooth_l1(sigma), still=(2, 3))


def draw_hinge(random):
    shape, norm = sizes(random, (1, 6), (1, 5), (1, 3), (1, 3)), int(random.integers(1, 3))
    text = f"type: HingeLoss, bottom: [a, l], top: b, hinge_loss_param: {{norm: L{norm}}}"
    return Row(text, [shape, shape[:1]], torch=hinge(norm), labels=(1,), classes=int(np.prod(shape[1:])))


def draw_logistic(random):
    shape = sizes(random, (1, 6), (1, 5), (1, 3))
    return Row("type: MultinomialLogisticLoss, bottom: [a, l], top: b", [shape, shape[:1]], torch=logistic,
               labels=(1,), classes=int(np.prod(shape[1:])), values=between(0.1, 1, "x0"))  # fmt: skip


def draw_contrastive(random):
    n, c = sizes(random, (1, 9), (1, 20))
    margin, legacy = float(random.integers(1, 12)), bool(random.integers(2))
    text = (
        f"type: ContrastiveLoss, bottom: [a, b, l], top: c, "
        f"contrastive_loss_param: {{margin: {margin}, legacy_version: {str(legacy).lower()}}}"
    )
    return Row(text, [(n, c), (n, c), (n,)], torch=contrastive(margin, legacy), labels=(2,), classes=2)


def draw_linear(random):
    n, t, e, classes = sizes(random, (1, 3), (1, 5), (1, 6), (2, 9))
    smoothing, ignored = round(float(random.uniform(0, 0.5)), 2), int(random.integers(classes))
    axis, bias = int(random.integers(1, 3)), str(bool(random.integers(2))).lower()
    text = (
        f"type: InnerProductWithLoss, bottom: [a, l], top: b, "
        f"inner_product_param: {{num_output: {classes}, bias_term: {bias}, axis: {axis}}}, "
        f"loss_param: {{label_smoothing: {smoothing}, ignore_label: {ignored}}}"
    )
    return Row(text, [(n, t, e), (n, t)[:axis]], torch=linear(smoothing, ignored), labels=(1,), classes=classes)


def draw_infogain(random):
    n, c, h, w = sizes(random, (1, 4), (2, 6), (1, 4), (1, 4))
    axis, mode = int(random.integers(3)), MODES[random.integers(4)]
    shape = [(c, n), (n, c, h, w), (n, h, c)][axis]
    text = (
        f"type: InfogainLoss, bottom: [a, l, h], top: b, infogain_loss_param: {{axis: {axis}}}, "
        f"loss_param: {{ignore_label: 1, normalization: {mode}}}"
    )
    labels = tuple(length for i, length in enumerate(shape) if i != axis)
    return Row(text, [shape, labels, (c, c)], torch=infogain(1, mode, axis), labels=(1,), still=(2,), classes=c)


RANDOM = {
    "SigmoidCrossEntropyLoss": draw_cross_entropy,
    "EuclideanLoss": draw_euclidean,
    "SmoothL1Loss": draw_smooth_l1,
    "HingeLoss": draw_hinge,
    "MultinomialLogisticLoss": draw_logistic,
    "ContrastiveLoss": draw_contrastive,
    "InfogainLoss": draw_infogain,
    "InnerProductWithLoss": draw_linear,
}
