"""Losses by hand, by Caffe's formulas; what is refused; labels that name no class; NaN."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.reference import KERNELS
from minidnn.layers import ShapeError
from tests.layers.bench import Bench, gradient
from tests.support.cuda import host as cuda_host
from tests.support.graphs import layer
from tests.support.interpret import run_ops
from tests.support.op_examples import Maker, attrs, compiled, expected, run


def both(text, values, labels=(), still=()):
    """(the loss, the gradient of each bottom that has one), in float64."""
    b = Bench(text, [v.shape for v in values], labels=labels, still=still)
    held = run_ops([*b.forward, *b.backward], {f"x{i}": v for i, v in enumerate(values)}, "float64")
    return held["y0"][0], *(gradient(b, held, t) for t in b.wanted)


def floats(*rows):
    return np.array(rows, np.float64)


def labels(*numbers):
    return np.array(numbers, np.int32)


CROSS = "type: SigmoidCrossEntropyLoss, bottom: [a, t], top: b"


def test_sigmoid_cross_entropy():
    """A score of 0 is a chance of 1/2, whatever the target; a score of 1000 is a chance of 1, and does not overflow."""
    x, t = floats([0, 0, 1000], [1000, -1000, -1000]), floats([0.25, 1, 1], [0, 1, 0])
    loss, dx = both(CROSS, [x, t], still=(1,))
    assert loss == pytest.approx((2 * np.log(2) + 0 + 1000 + 1000 + 0) / 2)
    np.testing.assert_allclose(dx, floats([0.25, -0.5, 0], [1, -1, 0]) / 2)


@pytest.mark.parametrize(
    "given, divisor",
    [
        ("", 2), (", normalization: FULL", 6), (", normalization: VALID", 5), (", normalization: BATCH_SIZE", 2),
        (", normalization: NONE", 1), (", normalize: true", 5), (", normalize: false", 2),
    ],
)  # fmt: skip
def test_what_sigmoid_cross_entropy_is_divided_by(given, divisor):
    """2 samples of 3 scores of 0. Caffe compares the part of a target before the point: 7.9 is ignored, too."""
    t = floats([0, 1, 7.9], [0, 1, 1])
    loss, dx = both(f"{CROSS}, loss_param: {{ignore_label: 7{given}}}", [np.zeros((2, 3)), t], still=(1,))
    assert loss == pytest.approx(5 * np.log(2) / divisor)
    assert dx[0, 2] == 0 and dx[0, 0] == pytest.approx(0.5 / divisor)


def test_no_target_at_all_divides_by_one():
    text = f"{CROSS}, loss_param: {{ignore_label: 1, normalization: VALID}}"
    loss, dx = both(text, [np.zeros((2, 3)), np.ones((2, 3))], still=(1,))
    assert loss == 0 and not dx.any()


def test_euclidean():
    loss, da, db = both("type: EuclideanLoss, bottom: [a, b], top: c, loss_weight: 3",
                        [floats([1, 2], [3, 4]), floats([0, 4], [3, 1])])  # fmt: skip
    assert loss == (1 + 4 + 0 + 9) / 4
    np.testing.assert_allclose(da, floats([1, -2], [0, 3]) * 3 / 2)
    np.testing.assert_allclose(db, -da)


def test_smooth_l1():
    """sigma 2: a square below 1/4. The inside weight changes the difference, the outside weight the result."""
    text = "type: SmoothL1Loss, bottom: [a, b, i, o], top: c, smooth_l1_loss_param: {sigma: 2}"
    a, inside, outside = floats([0.2, 1, -3]), floats([0.5, 1, 0.1]), floats([10, 2, 0.5])
    loss, da, db = both(text, [a, np.zeros((1, 3)), inside, outside], still=(2, 3))
    assert loss == pytest.approx(10 * 0.5 * (2 * 0.1) ** 2 + 2 * (1 - 1 / 8) + 0.5 * (0.3 - 1 / 8))
    np.testing.assert_allclose(da, [[10 * 0.5 * 4 * 0.1, 2, -0.5 * 0.1]])
    np.testing.assert_allclose(db, -da)


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_hinge(norm):
    """Label 1: its score of 3 is beyond the margin, the others' 0.5 and -2 are 1.5 short, and not."""
    text = f"type: HingeLoss, bottom: [a, l], top: b, hinge_loss_param: {{norm: {norm}}}"
    loss, dx = both(text, [floats([0.5, 3, -2]), labels(1)], labels=(1,))
    assert loss == pytest.approx({"L1": 1.5, "L2": 2.25}[norm])
    np.testing.assert_allclose(dx, [[{"L1": 1, "L2": 3}[norm], 0, 0]])


def test_multinomial_logistic_ends_at_its_least_probability():
    text = "type: MultinomialLogisticLoss, bottom: [a, l], top: b"
    loss, dx = both(text, [floats([0.5, 0.5], [1, 0]), labels(0, 1)], labels=(1,))
    assert loss == pytest.approx((np.log(2) - np.log(1e-20)) / 2)
    np.testing.assert_allclose(dx, [[-1, 0], [0, -0.5e20]])


@pytest.mark.parametrize("legacy", [False, True])
def test_contrastive(legacy):
    """Two pairs at a distance of 5, the first similar; the margin is 7, or 30 of squares."""
    text = (
        "type: ContrastiveLoss, bottom: [a, b, l], top: c, "
        f"contrastive_loss_param: {{margin: {30 if legacy else 7}, legacy_version: {str(legacy).lower()}}}"
    )
    d = floats([3, 4], [3, 4])
    loss, da, db = both(text, [d + 1, np.ones((2, 2)), labels(4, 0)], labels=(2,))
    assert loss == pytest.approx((25 + (5 if legacy else 4)) / 4)
    np.testing.assert_allclose(da, d / 2 * floats([1], [-1 if legacy else -2 / (5 + 1e-4)]))
    np.testing.assert_allclose(db, -da)


def test_a_pair_beyond_the_margin_has_no_gradient():
    text = "type: ContrastiveLoss, bottom: [a, b, l], top: c"
    loss, da, db = both(text, [floats([3, 4]), floats([0, 0]), labels(0)], labels=(2,))
    assert loss == 0 and not da.any() and not db.any()


def test_infogain():
    """Probabilities 1/4 and 3/4. A matrix of two costs for label 1: 2 and 5. Caffe's least probability is 1e-20."""
    text = "type: InfogainLoss, bottom: [a, l, h], top: b"
    h = floats([9, 9], [2, 5])
    loss, dx = both(text, [np.log(floats([1, 3])), labels(1), h], labels=(1,), still=(2,))
    assert loss == pytest.approx(-2 * np.log(1 / 4) - 5 * np.log(3 / 4))
    np.testing.assert_allclose(dx, [[7 / 4 - 2, 7 * 3 / 4 - 5]])
    loss, _ = both(text, [floats([1000, 0]), labels(1), np.eye(2)], labels=(1,), still=(2,))
    assert loss == pytest.approx(-np.log(1e-20))


def test_label_smoothing():
    """Of label 0 with 0.3: 0.8 of class 0, 0.1 of each of the two others. A score of -1000 costs 0.1 times 1000: the
    smoothed part knows no least probability."""
    text = "type: SoftmaxWithLoss, bottom: [a, l], top: b, loss_param: {label_smoothing: 0.3}"
    loss, dx = both(text, [floats([0, 0, -1000]), labels(0)], labels=(1,))
    assert loss == pytest.approx(np.log(2) + 0.1 * 1000)
    np.testing.assert_allclose(dx, [[0.5 - 0.8, 0.5 - 0.1, -0.1]])


# ---- refused


TWO = [(2, 3), (2, 3)]


@pytest.mark.parametrize(
    "text, bottoms, message",
    [
        (CROSS, [(2, 3), (3, 2)], r"bottom 1 \(t\) is 3x2, bottom 0 \(a\) 2x3: SigmoidCrossEntropyLoss takes as many"),
        (CROSS + ", loss_param: {label_smoothing: 0.1}", TWO, "label_smoothing is for SoftmaxWithLoss, and Sigmoid"),
        ("type: EuclideanLoss, bottom: [a, b], top: c", [(2, 3), (2, 4)], r"bottom 1 \(b\) is 2x4"),
        ("type: SmoothL1Loss, bottom: [a, b, w], top: c", [(2, 3), (2, 3), (2, 1)], r"bottom 2 \(w\) is 2x1"),
        ("type: HingeLoss, bottom: [a, l], top: b", [(2, 3, 4), (8,)], "scores of shape 2x12 .* need 2 labels, got 8"),
        ("type: HingeLoss, bottom: [a, l], top: b", [(2,), (2,)], "expected scores of 2 or more axes"),
        ("type: MultinomialLogisticLoss, bottom: [a, l], top: b", [(2, 3), (3,)], "need 2 labels, got 3"),
        ("type: ContrastiveLoss, bottom: [a, b, l], top: c", [(2, 3, 4), (2, 3, 4), (2,)], "expected vectors"),
        ("type: ContrastiveLoss, bottom: [a, b, l], top: c", [(2, 3), (2, 4), (2,)], r"bottom 1 \(b\) is 2x4"),
        ("type: ContrastiveLoss, bottom: [a, b, l], top: c", [*TWO, (3,)], "2 pairs need 2 labels, got 3"),
        ("type: InfogainLoss, bottom: [a, l], top: b", [(2, 3), (2,)], "expected the matrix as a third .*; neither"),
        ("type: InfogainLoss, bottom: [a, l, h], top: b, infogain_loss_param: {source: h.npy}",
         [(2, 3), (2,), (3, 3)], "or its file as infogain_loss_param.source; both"),
        ("type: InfogainLoss, bottom: [a, l, h], top: b", [(2, 3), (2,), (3, 4)],
         r"bottom 2 \(h\) is 3x4; 3 classes need a matrix of 3x3"),
        ("type: InfogainLoss, bottom: [a, l, h], top: b, loss_param: {label_smoothing: 0.1}",
         [(2, 3), (2,), (3, 3)], "label_smoothing is for SoftmaxWithLoss, and InfogainLoss has none"),
    ],
)  # fmt: skip
def test_errors_name_the_numbers(text, bottoms, message):
    with pytest.raises(ShapeError, match=message):
        layer(text).shapes(bottoms)


# ---- labels that name no class


def wrong():
    m, a = Maker(0), dict(function="HINGE_L1", normalization="BATCH_SIZE", ignore_label=None, sigma=1.0)
    reads = [m.normal(3, 4), np.array([1, 4, -1], np.int32)]
    yield m.example("pointwise_loss.forward", reads, [(1,)], attrs(**a, loss_weight=1.0, into=()))
    yield m.example("pointwise_loss.backward", reads, [(3, 4)], attrs(**a, loss_weight=1.0, into=(0,)))


def test_a_label_of_no_class():
    device = compiled()
    for e in wrong():
        with pytest.raises(ValueError, match=r"label 4 \(number 1 of the batch\) names none of the 4 classes"):
            expected(KERNELS, e)
        with pytest.raises(ValueError, match=r"label 4 \(number 1 of the batch\) names none of the 4 classes"):
            run(device, e, device.algorithms(e.op)[0])


@pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to compile CUDA sources for the CPU with")
def test_a_label_of_no_class_is_nan_on_a_gpu():
    device = cuda_host.HostCuda()
    forward, backward = (run(device, e, device.algorithms(e.op)[0])[0] for e in wrong())
    assert np.isnan(forward[0]) and np.isnan(backward).all(1).tolist() == [False, True, True]
