"""The reference's kernels one by one: Caffe's numbers worked out by hand, PyTorch's over many geometries, the same
bytes wherever arrays lie. (Layers, with numeric gradients of every backward: test_layers.py.)"""

from __future__ import annotations

import os
from types import SimpleNamespace as Attrs

import numpy as np
import pytest

from minidnn.backends import philox
from minidnn.backends.reference import KERNELS, NoKernel, ReferenceDevice
from minidnn.program import DEFAULT, Op, Pass, Tensor
from tests.support.op_examples import Example, by_kind, examples, expected, run, summed

ALL = examples()
BY_KIND = pytest.mark.parametrize("kind", sorted(KERNELS))


def array(values, shape=None, dtype="float32"):
    made = np.array(values, dtype)
    return made.reshape(shape) if shape else made


def call(kind, attrs, reads, *shapes, dtypes=()):
    """The kernel's results, in fresh arrays that began as NaN or 0xAB."""
    writes = []
    for i, shape in enumerate(shapes):
        dtype = dtypes[i] if i < len(dtypes) else reads[0].dtype
        writes.append(np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 0xAB, dtype))
    KERNELS[kind](attrs, reads, writes)
    return writes[0] if len(writes) == 1 else writes


# ---- every kind, over the odd geometries of op_examples


def test_every_kind_has_examples():
    assert {e.op.kind for e in ALL} == set(KERNELS)


@pytest.mark.slow
@BY_KIND
def test_same_bytes_wherever_it_lies_and_in_place(kind):
    """Also beside a heap in another state, since temporaries lie on it."""
    device, random = ReferenceDevice(), np.random.default_rng(3)
    for e in by_kind(kind):
        first = run(device, e, DEFAULT)
        for how in ({"shift": 1}, {"shift": 3, "poison": 0}, {"together": True, "shift": 7}):
            between = [np.empty(int(n), np.uint8) for n in random.integers(1, 5000, 9)]
            again = run(device, e, DEFAULT, **how)
            del between
            for t, a, b in zip(e.op.writes, first, again, strict=True):
                assert a.tobytes() == b.tobytes(), f"{e.name}: {t.name} differs with {how}"


@BY_KIND
def test_reads_stay_as_they_are(kind):
    for e in by_kind(kind):
        arrays = {t: x.copy() for t, x in e.data.items()}
        for t, x in arrays.items():
            x.flags.writeable = t in e.op.writes
        for t in e.op.writes:
            arrays.setdefault(t, np.zeros(t.shape, t.dtype))
        KERNELS[kind](e.op.attrs, [arrays[t] for t in e.op.reads], [arrays[t] for t in e.op.writes])


def other_strides(x):
    """The same values with the axes after the first in reverse order in memory, and a gap after each element."""
    order = (0, *range(x.ndim - 1, 0, -1))
    room = np.zeros((*(x.shape[k] for k in order), 2), x.dtype)[..., 0]
    view = room.transpose(order)
    view[...] = x
    return view


def close(got, want, tolerance):
    if want.dtype.kind != "f":
        return np.array_equal(got, want)
    with np.errstate(invalid="ignore"):
        return np.allclose(got, want, tolerance, tolerance * max(1.0, float(np.abs(want).max(initial=0))))


@pytest.mark.slow
@BY_KIND
def test_any_strides(kind):
    for e in by_kind(kind):
        arrays = {t: other_strides(x) for t, x in e.data.items()}
        for t in e.op.writes:
            arrays.setdefault(t, other_strides(np.zeros(t.shape, t.dtype)))
        KERNELS[kind](e.op.attrs, [arrays[t] for t in e.op.reads], [arrays[t] for t in e.op.writes])
        for t, want in zip(e.op.writes, expected(KERNELS, e), strict=True):
            assert close(arrays[t], want, 1e-5), f"{e.name}: {t.name}"


@pytest.mark.slow
@BY_KIND
def test_float64_says_the_same(kind):
    """And float32 is as near to it as rounding lets it be."""
    for e in by_kind(kind):
        arrays = {t: x.astype(np.float64) if x.dtype.kind == "f" else x.copy() for t, x in e.data.items()}
        for t in e.op.writes:
            arrays.setdefault(t, np.zeros(t.shape, "float64" if t.dtype == "float32" else t.dtype))
        KERNELS[kind](e.op.attrs, [arrays[t] for t in e.op.reads], [arrays[t] for t in e.op.writes])
        for t, single in zip(e.op.writes, expected(KERNELS, e), strict=True):
            if t.dtype == "float32":
                assert arrays[t].dtype == np.float64 and single.dtype == np.float32
            assert close(single, arrays[t], 1e-5), f"{e.name}: {t.name}"


LINEAR = {  # backward kind -> (forward kind, which of forward's reads its gradient is of)
    "convolution.backward_data": ("convolution.forward", "x"),
    "convolution.backward_filter": ("convolution.forward", "w"),
    "pooling.backward": ("pooling.forward", "x"),
    "inner_product.backward_data": ("inner_product.forward", "x"),
    "inner_product.backward_filter": ("inner_product.forward", "w"),
}


@pytest.mark.parametrize("kind", LINEAR)
def test_backward_is_the_adjoint_of_forward(kind):
    """sum(forward(v) * dy) = sum(v * backward(dy)), in every geometry (MAX pooling: with the maxima held)."""
    forward, of = LINEAR[kind]
    random = np.random.default_rng(5)
    for e in by_kind(kind):
        *held, dy = (e.data[t].astype(np.float64) for t in e.op.reads)
        if kind.endswith("backward_data"):
            held, dy = [held[0]], e.data[e.op.reads[1]].astype(np.float64)
        v = random.standard_normal(e.op.writes[0].shape)
        attrs = e.op.attrs
        if kind == "pooling.backward" and attrs.method == "MAX":
            y, index = call(forward, attrs, [v], dy.shape, dy.shape, dtypes=("float64", "int32"))
            back = call(kind, attrs, [index, dy], v.shape, dtypes=("float64",))
        else:
            y = call(forward, attrs, [v, *held] if of == "x" else [*held, v], dy.shape)
            back = call(kind, attrs, [*held, dy], v.shape)
        assert (y * dy).sum() == pytest.approx((v * back).sum(), rel=1e-9, abs=1e-9), e.name


# ---- PyTorch


def gradients(y, dy, *of):
    import torch

    return [g.numpy() for g in torch.autograd.grad(y, of, torch.from_numpy(dy))]


@pytest.mark.peer("torch")
def test_convolutions_equal_pytorchs():
    import torch
    import torch.nn.functional as F

    for e in (e for e in by_kind("convolution.forward") if len(e.op.reads) == 3):
        x, w, b = (e.data[t].astype(np.float64) for t in e.op.reads)
        a = e.op.attrs
        tx, tw, tb = (torch.tensor(v, requires_grad=True) for v in (x, w, b))
        want = F.conv2d(tx, tw, tb, a.stride, a.pad, a.dilation, a.group)
        y = call("convolution.forward", a, [x, w, b], want.shape)
        dy = np.random.default_rng(0).standard_normal(y.shape)
        got = [
            y,
            call("convolution.backward_data", a, [w, dy], x.shape),
            call("convolution.backward_filter", a, [x, dy], w.shape),
            call("convolution.backward_bias", a, [dy], b.shape),
        ]
        for mine, theirs in zip(got, [want.detach().numpy(), *gradients(want, dy, tx, tw, tb)], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9, err_msg=e.name)


@pytest.mark.peer("torch")
def test_poolings_equal_pytorchs():
    """Where PyTorch has the geometry: pad up to half the kernel."""
    import torch
    import torch.nn.functional as F

    tried = 0
    for e in (e for e in by_kind("pooling.forward") if len(e.op.writes) == 1):
        a, shape = e.op.attrs, e.op.writes[0].shape
        if any(2 * p > k for p, k in zip(a.pad, a.kernel, strict=True)):
            continue
        x, dy = (np.random.default_rng(1).standard_normal(s) for s in (e.op.reads[0].shape, shape))
        tx = torch.tensor(x, requires_grad=True)
        if a.method == "MAX":
            want = F.max_pool2d(tx, a.kernel, a.stride, a.pad, ceil_mode=True)
            y, index = call("pooling.forward", a, [x], shape, shape, dtypes=("float64", "int32"))
            dx = call("pooling.backward", a, [index, dy], x.shape, dtypes=("float64",))
        else:
            want = F.avg_pool2d(tx, a.kernel, a.stride, a.pad, ceil_mode=True)
            y = call("pooling.forward", a, [x], shape)
            dx = call("pooling.backward", a, [dy], x.shape)
        np.testing.assert_allclose(y, want.detach().numpy(), rtol=1e-12, atol=1e-12, err_msg=e.name)
        np.testing.assert_allclose(dx, gradients(want, dy, tx)[0], rtol=1e-12, atol=1e-12, err_msg=e.name)
        tried += 1
    assert tried >= 16


@pytest.mark.peer("torch")
def test_sgd_equals_pytorchs_at_a_constant_rate():
    import torch

    random = np.random.default_rng(2)
    w, h, decay, momentum = random.standard_normal((3, 4)), np.zeros((3, 4)), 0.01, 0.9
    theirs = torch.tensor(w, requires_grad=True)
    optimizer = torch.optim.SGD([theirs], 0.1, momentum, weight_decay=decay)
    for _ in range(5):
        dw = random.standard_normal(w.shape)
        update(w, dw, 0.1, h, momentum=momentum, decay=decay)
        theirs.grad = torch.from_numpy(dw)
        optimizer.step()
    np.testing.assert_allclose(w, theirs.detach().numpy(), rtol=1e-7)  # our rate is a float32


def clip(threshold, gradients):
    """The factor by the sums of these gradients' blocks."""
    blocks, sums = summed(gradients)
    return call("gradient.clip", Attrs(threshold=threshold, blocks=blocks), [sums], (1,))[0]


@pytest.mark.peer("torch")
def test_clipping_equals_pytorchs():
    import torch

    random = np.random.default_rng(2)
    gradients = [random.standard_normal(s) for s in ((3, 4), (7,))]
    theirs = [torch.zeros(g.shape, dtype=torch.float64, requires_grad=True) for g in gradients]
    for t, g in zip(theirs, gradients, strict=True):
        t.grad = torch.tensor(g)
    torch.nn.utils.clip_grad_norm_(theirs, 0.5)
    scale = clip(0.5, gradients)
    for t, g in zip(theirs, gradients, strict=True):
        np.testing.assert_allclose(g * scale, t.grad.numpy(), rtol=1e-5)  # PyTorch adds 1e-6 to the norm


# ---- Caffe's numbers, by hand: updates


def update(w, dw, rate, h=None, clip=None, objective=1.0, **attrs):
    """One sgd.update of w (and h) where they are."""
    given = {"momentum": 0.0, "decay": 0.0, "regularization": "L2", "lr_mult": 1.0, "scale": 1.0} | attrs
    reads = [w, dw, array([rate]), array([objective])]
    reads += ([] if h is None else [h]) + ([] if clip is None else [array([clip])])
    KERNELS["sgd.update"](Attrs(clipped=clip is not None, **given), reads, [w] if h is None else [w, h])


def test_the_rate_is_inside_the_momentum():
    """Gradient 1 at w = 0, momentum 0.9, five steps at rate 0.1, then five at 0.01.

    h = 0.1, 0.19, 0.271, 0.3439, 0.40951, then 0.9 h + 0.01: 0.378559, 0.350703, 0.325633, 0.303070, 0.282763;
    their sum is 2.955. PyTorch's rate stands outside: 0.1 (1 + 1.9 + 2.71 + 3.439 + 4.0951) + 0.01 (4.686 + 5.217 +
    5.695 + 6.126 + 6.513) = 1.597.
    """
    w, h = np.zeros(1), np.zeros(1)
    for rate in [0.1] * 5 + [0.01] * 5:
        update(w, np.ones(1), rate, h, momentum=0.9)
    assert w[0] == pytest.approx(-2.955, abs=5e-4)
    assert h[0] == pytest.approx(0.282763, abs=1e-5)


def test_order_of_an_update():
    """Clip (0.5), divide by iter_size (1/4), decay, then the rate: ((8 * 0.5) / 4 + 0.1 * 2) * 0.5 * 3 = 1.8."""
    w = array([2.0])
    update(w, array([8.0]), 0.5, clip=0.5, scale=0.25, decay=0.1, lr_mult=3.0)
    assert w[0] == pytest.approx(2 - 1.8)


@pytest.mark.parametrize("regularization, want", [("L2", [3 - 0.3, -2 + 0.2, 0]), ("L1", [3 - 0.1, -2 + 0.1, 0])])
def test_decay(regularization, want):
    w = array([3.0, -2.0, 0.0])
    update(w, np.zeros(3, np.float32), 1.0, decay=0.1, regularization=regularization)
    np.testing.assert_allclose(w, want, rtol=1e-6)


@pytest.mark.parametrize("objective", [np.nan, np.inf, -np.inf])
def test_nothing_is_learned_from_an_objective_that_is_not_finite(objective):
    w, h = array([3.0]), array([5.0])
    update(w, array([np.nan]), 1.0, h, objective=objective, momentum=0.9, decay=0.1)
    assert (w[0], h[0]) == (3, 5)


def test_clip_is_by_the_norm_of_all_gradients():
    """(3, 4) and (12): norm 13."""
    both = [array([3.0, 4.0]), array([[12.0]])]
    assert clip(6.5, both) == pytest.approx(0.5)
    assert clip(13.0, both) == clip(99.0, both) == 1


def test_objective_weighs_losses():
    losses = [array([2.0]), array([10.0]), array([100.0])]
    assert call("objective.forward", Attrs(weights=(1.0, 0.3, -0.01)), losses, (1,))[0] == pytest.approx(4)


# ---- by hand: losses


def loss_attrs(**given):
    usual = {"axis": 1, "ignore_label": None, "normalization": "VALID", "loss_weight": 1.0, "label_smoothing": 0.0}
    return Attrs(**(usual | given))


def test_softmax_loss():
    """Scores (log 1, log 2, log 5): probabilities 1/8, 1/4, 5/8; labels 2 and 0: (log 8/5 + log 8) / 2."""
    x = np.log(array([[1, 2, 5], [1, 2, 5]], dtype="float64"))
    label = np.array([2, 0], np.int32)
    a = loss_attrs(loss_weight=4.0)
    loss, prob = call("softmax_loss.forward", a, [x, label], (1,), x.shape)
    np.testing.assert_allclose(prob, [[1 / 8, 1 / 4, 5 / 8]] * 2)
    assert loss[0] == pytest.approx((np.log(8 / 5) + np.log(8)) / 2)
    dx = call("softmax_loss.backward", a, [prob, label], x.shape)
    np.testing.assert_allclose(dx, [[1 / 4, 1 / 2, -3 / 4], [-7 / 4, 1 / 2, 5 / 4]])


def test_softmax_loss_ends_at_the_least_float():
    """-log(FLT_MIN) = 87.33, however wrong the net is; scores of 1e30 do not overflow."""
    x = array([[1e30, 0.0]])
    loss, prob = call("softmax_loss.forward", loss_attrs(), [x, np.array([1], np.int32)], (1,), x.shape)
    assert loss[0] == pytest.approx(87.3365, abs=1e-3)
    np.testing.assert_array_equal(prob, [[1, 0]])


def test_a_loss_of_nan_is_nan_and_an_ignored_one_is_nothing():
    x = array([[np.nan, 0.0], [0.0, 0.0]])
    loss, _ = call("softmax_loss.forward", loss_attrs(), [x, np.array([1, 1], np.int32)], (1,), x.shape)
    assert np.isnan(loss[0])
    a = loss_attrs(ignore_label=7)
    loss, prob = call("softmax_loss.forward", a, [x, np.array([7, 1], np.int32)], (1,), x.shape)
    assert loss[0] == pytest.approx(np.log(2))
    np.testing.assert_allclose(
        call("softmax_loss.backward", a, [prob, np.array([7, 1], np.int32)], x.shape), [[0, 0], [0.5, -0.5]]
    )


def test_no_label_at_all_divides_by_one():
    x, label = np.zeros((2, 3), np.float32), np.full(2, 7, np.int32)
    a = loss_attrs(ignore_label=7)
    loss, prob = call("softmax_loss.forward", a, [x, label], (1,), x.shape)
    assert loss[0] == 0
    assert not call("softmax_loss.backward", a, [prob, label], x.shape).any()
    assert call("accuracy.forward", Attrs(axis=1, top_k=1, ignore_label=7), [x, label], (1,))[0] == 0


@pytest.mark.parametrize("axis, normalization, divisor", [
    (1, "VALID", 11), (1, "FULL", 12), (1, "BATCH_SIZE", 3), (1, "NONE", 1),
    (2, "VALID", 5), (2, "FULL", 6), (2, "BATCH_SIZE", 6), (2, "NONE", 1),
])  # fmt: skip
def test_normalizers(axis, normalization, divisor):
    """Scores 3x2x4 with the classes along axis 1 (12 labels) or 2 (6 labels); one label does not count.

    BATCH_SIZE is Caffe's outer_num: all before the axis of the classes.
    """
    x = np.zeros((3, 2, 4))
    label = np.zeros(12 if axis == 1 else 6, np.int32)
    label[2] = 9
    a = loss_attrs(axis=axis, ignore_label=9, normalization=normalization)
    loss, _ = call("softmax_loss.forward", a, [x, label], (1,), x.shape)
    assert loss[0] == pytest.approx(np.log(x.shape[axis]) * (len(label) - 1) / divisor)


@pytest.mark.parametrize("kind", ["softmax_loss.forward", "accuracy.forward"])
@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_that_names_no_class_is_named(kind, label):
    a = Attrs(axis=1, ignore_label=None, normalization="VALID", top_k=1)
    writes = [np.zeros(1), np.zeros((2, 3))][: 1 + (kind == "softmax_loss.forward")]
    with pytest.raises(ValueError, match=rf"label {label} \(number 1 of the batch\) names none of the 3 classes"):
        KERNELS[kind](a, [np.zeros((2, 3)), np.array([0, label], np.int32)], writes)


def test_accuracy_counts_a_tie_as_better():
    """Label 1 of (1, 2, 2, 0): one other score is as high, so it is second: wrong for 1, right for 2."""
    x = array([[1, 2, 2, 0], [5, 5, 5, 5], [0, 9, 0, 0]])
    label = np.array([1, 0, 1], np.int32)
    rates = [
        call("accuracy.forward", Attrs(axis=1, top_k=k, ignore_label=None), [x, label], (1,))[0] for k in (1, 2, 4)
    ]
    np.testing.assert_allclose(rates, [1 / 3, 2 / 3, 1])
    assert call("accuracy.forward", Attrs(axis=1, top_k=1, ignore_label=0), [x, label], (1,))[0] == 0.5


def test_accuracy_by_class_is_0_for_a_class_that_no_label_names():
    x = array([[1, 2, 2, 0], [5, 4, 4, 4], [9, 0, 0, 0], [0, 0, 0, 9]])
    a = Attrs(axis=1, top_k=1, ignore_label=None)
    got = call("accuracy.by_class", a, [x, np.array([1, 0, 0, 3], np.int32)], (4,))
    np.testing.assert_array_equal(got, [1, 0, 0, 1])
    got = call("accuracy.by_class", a, [x, np.array([0, 0, 1, 3], np.int32)], (4,))
    np.testing.assert_array_equal(got, [0.5, 0, 0, 1])
    got = call("accuracy.by_class", Attrs(axis=1, top_k=1, ignore_label=3), [x, np.array([3, 0, 0, 3], np.int32)], (4,))
    np.testing.assert_array_equal(got, [1, 0, 0, 0])


def test_a_net_that_has_diverged_is_never_right():
    """All scores NaN, or the label's own: in Caffe both would count as right."""
    x = array([[np.nan, np.nan], [np.nan, 1.0], [0.0, 1.0]])
    a = Attrs(axis=1, top_k=1, ignore_label=None)
    assert call("accuracy.forward", a, [x, np.array([0, 0, 1], np.int32)], (1,))[0] == pytest.approx(1 / 3)


# ---- by hand: pooling


def pool_attrs(method, kernel, stride, pad=0, saved="index"):
    return Attrs(method=method, kernel=(kernel,) * 2, stride=(stride,) * 2, pad=(pad,) * 2, saved=saved)


GRID = np.arange(1.0, 26).reshape(1, 1, 5, 5)  # 1 .. 25


def test_max_pooling_clips_a_window_that_hangs_over():
    """5x5, kernel 2, stride 2: windows begin at 0, 2, 4; the last ones meet one row or column."""
    y, index = call(
        "pooling.forward", pool_attrs("MAX", 2, 2), [GRID], *[(1, 1, 3, 3)] * 2, dtypes=("float64", "uint8")
    )
    np.testing.assert_array_equal(y[0, 0], [[7, 9, 10], [17, 19, 20], [22, 24, 25]])
    np.testing.assert_array_equal(index[0, 0], [[3, 3, 2], [3, 3, 2], [1, 1, 0]])


def test_max_pooling_never_takes_the_padding():
    """All values below 0. Indices count from the corner of the window as it would be, padding included."""
    y, index = call(
        "pooling.forward", pool_attrs("MAX", 3, 2, 1), [-GRID], *[(1, 1, 3, 3)] * 2, dtypes=("float64", "uint8")
    )
    np.testing.assert_array_equal(y[0, 0], [[-1, -2, -4], [-6, -7, -9], [-16, -17, -19]])
    np.testing.assert_array_equal(index[0, 0], [[4, 3, 3], [1, 0, 0], [1, 0, 0]])


def test_max_pooling_takes_the_first_of_equals_and_adds_where_windows_overlap():
    """Ones: each of the four overlapping windows of 2x2 takes its first place."""
    x, dy = np.ones((1, 1, 3, 3)), array([1, 2, 3, 4], (1, 1, 2, 2), "float64")
    a = pool_attrs("MAX", 2, 1)
    _, index = call("pooling.forward", a, [x], dy.shape, dy.shape, dtypes=("float64", "uint8"))
    assert not index.any()
    dx = call("pooling.backward", a, [index, dy], x.shape, dtypes=("float64",))
    np.testing.assert_array_equal(dx[0, 0], [[1, 2, 0], [3, 4, 0], [0, 0, 0]])
    x[0, 0, 1, 1] = 5  # now all four take the middle
    for saved, reads in (("x", [x, dy]), ("xy", [x, np.full((1, 1, 2, 2), 5.0), dy])):
        dx = call("pooling.backward", pool_attrs("MAX", 2, 1, saved=saved), reads, x.shape)
        np.testing.assert_array_equal(dx[0, 0], [[0, 0, 0], [0, 10, 0], [0, 0, 0]])


def test_max_pooling_lets_nan_through():
    x = np.zeros((1, 1, 2, 4))
    x[0, 0, 1, 0] = np.nan
    y, index = call("pooling.forward", pool_attrs("MAX", 2, 2), [x], *[(1, 1, 1, 2)] * 2, dtypes=("float64", "uint8"))
    assert np.isnan(y[0, 0, 0, 0]) and index[0, 0, 0, 0] == 2 and y[0, 0, 0, 1] == 0


def test_average_pooling_counts_the_padding_but_not_the_overhang():
    """5x5, kernel 3, stride 2, pad 1: windows begin at -1, 1, 3 and end within H + p = 6, so all divide by 9; the
    first meets 1 + 2 + 6 + 7."""
    y = call("pooling.forward", pool_attrs("AVE", 3, 2, 1, None), [GRID], (1, 1, 3, 3))
    assert y[0, 0, 0, 0] == pytest.approx(16 / 9) and y[0, 0, 1, 1] == pytest.approx(13)
    assert y[0, 0, 2, 2] == pytest.approx((19 + 20 + 24 + 25) / 9)
    # Kernel 2, stride 2, no pad: the third window hangs over and meets 1 of 2 columns, divided by what it meets.
    y = call("pooling.forward", pool_attrs("AVE", 2, 2, 0, None), [GRID], (1, 1, 3, 3))
    np.testing.assert_allclose(y[0, 0], [[4, 6, 7.5], [14, 16, 17.5], [21.5, 23.5, 25]])
    dx = call("pooling.backward", pool_attrs("AVE", 2, 2, 0, None), [np.ones((1, 1, 3, 3))], (1, 1, 5, 5))
    assert (dx[0, 0, 0, 0], dx[0, 0, 0, 4], dx[0, 0, 4, 4]) == (0.25, 0.5, 1)


# ---- by hand: the rest


def test_lrn():
    """Channels 1, 2, 3; n = 3, alpha = 3, beta = 1, k = 2: 2 + squares around = 7, 16, 15."""
    a = Attrs(size=3, alpha=3.0, beta=1.0, k=2.0, region="ACROSS_CHANNELS")
    y = call("lrn.forward", a, [array([1, 2, 3], (1, 3, 1, 1))], (1, 3, 1, 1))
    np.testing.assert_allclose(y.ravel(), [1 / 7, 2 / 16, 3 / 15], rtol=1e-6)


def test_lrn_within_a_channel_divides_by_the_whole_window_and_leaves_k_out():
    """2x2 of 1, 2, 3, 4 with n = 3: each window meets all four; 1 + 9 * 30 / 9 = 31, k unused."""
    a = Attrs(size=3, alpha=9.0, beta=1.0, k=5.0, region="WITHIN_CHANNEL")
    y = call("lrn.forward", a, [array([1, 2, 3, 4], (1, 1, 2, 2))], (1, 1, 2, 2))
    np.testing.assert_allclose(y.ravel(), np.array([1, 2, 3, 4]) / 31, rtol=1e-6)


def test_batch_norm_by_hand():
    """1 and 5: mean 3, biased variance 4; the running sum takes the unbiased 8."""
    x, a = array([[1.0], [5.0]], dtype="float64"), Attrs(eps=0.0, fraction=0.9, count=2)
    y, mean, variance = call("batch_norm.forward", a, [x], x.shape, (1,), (1,))
    assert (*y.ravel(), mean[0], variance[0]) == (-1, 1, 3, 4)
    sums = [np.array([v]) for v in (10.0, 20.0, 2.0)]
    KERNELS["batch_norm.statistics"](a, [mean, variance, *sums], sums)
    np.testing.assert_allclose([s[0] for s in sums], [0.9 * 10 + 3, 0.9 * 20 + 8, 0.9 * 2 + 1])


def test_batch_norm_of_one_value_per_channel_takes_its_variance_as_it_is():
    sums = [np.zeros(1) for _ in range(3)]
    reads = [np.array([3.0]), np.array([0.0]), *sums]
    KERNELS["batch_norm.statistics"](Attrs(eps=1e-5, fraction=0.9, count=1), reads, sums)
    assert [s[0] for s in sums] == [3, 0, 1]


def test_running_statistics_before_the_first_update_are_zero():
    """factor 0: mean and variance 0, so y = x / sqrt(eps)."""
    x, zero = array([[2.0]]), np.zeros(1, np.float32)
    a = Attrs(eps=0.25)
    assert call("batch_norm.inference", a, [x, array([7.0]), array([7.0]), zero], (1, 1))[0, 0] == 4
    assert call("batch_norm.inference_backward", a, [array([7.0]), zero, x], (1, 1))[0, 0] == 4


def test_relu_has_no_gradient_at_zero():
    a = Attrs(negative_slope=0.5, saved="y")
    x = array([-2.0, 0.0, 3.0])
    np.testing.assert_array_equal(call("relu.forward", a, [x], (3,)), [-1, 0, 3])
    np.testing.assert_array_equal(call("relu.backward", a, [x, np.ones(3, np.float32)], (3,)), [0.5, 0.5, 1])
    y, mask = call("relu.forward", a, [x], (3,), (3,), dtypes=("float32", "uint8"))
    np.testing.assert_array_equal(mask, [0, 0, 1])
    np.testing.assert_array_equal(y, [-1, 0, 3])


def test_relu_s_zeros_have_no_sign():
    """Packing (memory/execution/compression.py) leaves out what has no bit set."""
    y = call("relu.forward", Attrs(negative_slope=0.0, saved="y"), [array([-2.0, -0.0, 0.0, 3.0])], (4,))
    assert y.tobytes() == array([0.0, 0.0, 0.0, 3.0]).tobytes()


def test_eltwise_maximum_takes_the_second_of_the_first_two_equals():
    """Caffe compares bottom 0 > bottom 1, and later ones > the largest so far."""
    xs = [array(v) for v in ([0, 1, 5, 0, 0], [0, 2, 4, 0, 0], [0, 2, 3, 9, np.nan])]
    y, which = call("eltwise.forward", Attrs(operation="MAX", coeff=()), xs, (5,), (5,), dtypes=("float32", "uint8"))
    np.testing.assert_array_equal(y, [0, 2, 5, 9, np.nan])
    np.testing.assert_array_equal(which, [1, 1, 0, 2, 2])
    dy = array([1, 2, 3, 4, 5])
    dxs = [
        call("eltwise.backward", Attrs(operation="MAX", coeff=(), index=i), [which, dy], (5,), dtypes=("float32",))
        for i in range(3)
    ]
    np.testing.assert_array_equal(dxs, [[0, 0, 3, 0, 0], [1, 2, 0, 0, 0], [0, 0, 0, 4, 5]])


def test_dilated_grouped_convolution_by_hand():
    """Two groups of one channel, 1 .. 5 each; kernel 1x2 (1, 10), dilation 2, stride 2, pad 1 to the sides.

    Padded: 0 1 2 3 4 5 0; windows (0, 2), (2, 4), (4, 0): 20, 42, 4; the second group ten times that, + bias 100.
    """
    a = Attrs(kernel=(1, 2), stride=(1, 2), pad=(0, 1), dilation=(1, 2), group=2)
    x = array([[1, 2, 3, 4, 5]] * 2, (1, 2, 1, 5))
    w = array([1, 10, 10, 100], (2, 1, 1, 2))
    y = call("convolution.forward", a, [x, w, array([0, 100])], (1, 2, 1, 3))
    np.testing.assert_array_equal(y[0, :, 0], [[20, 42, 4], [300, 520, 140]])


# ---- Philox


@pytest.mark.parametrize(
    "counter, key, want",
    [  # Random123's known answers for philox4x32, 10 rounds
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)  # fmt: skip
def test_philox_known_answers(counter, key, want):
    work = np.zeros((philox.WORK_ROWS, 3), np.uint64)
    work[:4] = np.array(counter, np.uint64)[:, None]
    philox.rounds(work, key)
    assert [tuple(column) for column in work[:4].T.tolist()] == [want] * 3


def test_philox_counts_as_documented():
    """Element i takes word i % 4 of block (i // 4, iteration, layer key) under the seed, whatever the size."""
    seed, iteration, key = (7 << 32) + 5, (1 << 32) + 9, 0xDEADBEEF
    words = philox.words(11, seed, iteration, key)
    for block in range(3):
        work = np.zeros((philox.WORK_ROWS, 1), np.uint64)
        work[:4, 0] = block, 0, 9, key
        philox.rounds(work, (5, 7))
        np.testing.assert_array_equal(words[4 * block : 4 * block + 4], work[:4, 0][: len(words) - 4 * block])
    np.testing.assert_array_equal(philox.words(5, seed, iteration, key), words[:5])
    assert words.dtype == np.uint32
    others = [
        philox.words(11, *k) for k in ((seed + 1, iteration, key), (seed, iteration + 1, key), (seed, 9, key + 1))
    ]
    assert len({w.tobytes() for w in (words, *others)}) == 4
    np.testing.assert_array_equal(philox.words(4, -1, 0, 0), philox.words(4, 2**64 - 1, 0, 0))


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_dropout_keeps_what_it_should(ratio):
    """Of 100,000 within five standard deviations; the kept are x / (1 - ratio); backward is the same mask."""
    a, at = Attrs(ratio=ratio, seed=1, key=2, block=0), np.array([3])
    x = np.random.default_rng(0).standard_normal((10, 100, 100)).astype(np.float32)
    y = call("dropout.forward", a, [x, at], x.shape)
    keep = philox.keep_mask(x.shape, ratio, 1, 3, 2)
    np.testing.assert_allclose(y, np.where(keep, x / (1 - ratio), 0), rtol=1e-6)
    assert abs(keep.mean() - (1 - ratio)) < 5 * np.sqrt(ratio * (1 - ratio) / keep.size)
    dx = call("dropout.backward", a, [np.ones_like(x), at], x.shape)
    np.testing.assert_array_equal(dx > 0, keep)
    words = philox.words(x.size, 1, 3, 2)
    np.testing.assert_array_equal(keep.ravel(), words >= int(np.floor(ratio * 2**32)))


# ---- the device


def op(kind, reads, writes, attrs=None):
    return Op("mine.forward", kind, "mine", Pass.FORWARD, tuple(reads), tuple(writes), attrs)


def test_device_lays_tensors_out_in_logical_order():
    device, t = ReferenceDevice(), Tensor("t", (2, 3, 4), "int32")
    buffer = np.arange(24, dtype=np.int32).view(np.uint8)
    view = device.array(buffer, t)
    np.testing.assert_array_equal(view, np.arange(24).reshape(2, 3, 4))
    view[1, 2, 3] = -1
    assert buffer.view(np.int32)[-1] == -1


def test_a_kernel_of_the_users_own(monkeypatch):
    x, y = Tensor("x", (2, 2)), Tensor("y", (2, 2))
    cube = op("cube.forward", [x], [y])
    device = ReferenceDevice()
    for use in (device.algorithms, lambda o: device.prepare(o, DEFAULT, {x: None, y: None}, None)):
        with pytest.raises(NoKernel) as error:
            use(cube)
        assert str(error.value) == (
            "layer mine: the reference backend has no kernel for 'cube.forward'; "
            "add one with minidnn.backends.reference.KERNELS['cube.forward'] = f(attrs, reads, writes)"
        )
    monkeypatch.setitem(KERNELS, "cube.forward", lambda a, reads, writes: np.power(reads[0], 3, out=writes[0]))
    assert device.algorithms(cube) == (DEFAULT,)
    example = Example("cube", cube, {x: array([[1, 2], [3, 4]])})
    np.testing.assert_array_equal(run(device, example, DEFAULT)[0], [[1, 8], [27, 64]])


def test_device_says_what_it_is(monkeypatch):
    device = ReferenceDevice()
    assert device.name == "reference" and f"NumPy {np.__version__}" in device.description
    assert device.memory == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    assert "1 thread)" in ReferenceDevice().description
