"""The cuda kernels that sum, on the CPU (tests/support/cuda/host.py): over the geometries of reduction_examples.py,
and what the kinds promise: sound variances, Caffe's order of operations, labels that are noticed. (Over those of
op_examples, and what is not finite: test_kernels.py.)"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from minidnn.backends.cuda import columns, rules
from minidnn.backends.reference import KERNELS
from minidnn.optimizers.squares import Blocks, squares
from minidnn.program import MULTI_TENSOR, Op, Pass, Tensor
from tests.support.cuda import host as cuda_host
from tests.support.cuda.code import ptx
from tests.support.cuda.host import HostCuda
from tests.support.cuda.reduction_examples import every
from tests.support.cuda.sanitizer import RUNTIME
from tests.support.cuda.storage import DTYPE, SPACING, narrow, widen
from tests.support.op_examples import Example, Maker, attrs, examples, expected, run, squared, summed
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to compile CUDA sources for the CPU with"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.slow,
]
TOLERANCE = 2e-5  # of the largest value
ALL_KINDS = sorted({e.op.kind for e in every()})


@pytest.fixture(scope="module")
def device() -> HostCuda:
    return HostCuda()


@pytest.fixture(scope="module")
def falling() -> HostCuda:
    return HostCuda(falling=True)


def off(got: np.ndarray, want: np.ndarray) -> float:
    """The largest error, as a part of the largest value (or of 1)."""
    return float(np.abs(got.astype(np.float64) - want).max() / max(1.0, float(np.abs(want).max())))


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_equals_the_reference(device, kind):
    for e in every():
        if e.op.kind != kind:
            continue
        want = expected(KERNELS, e)
        for algorithm in device.algorithms(e.op):
            for t, g, w in zip(e.op.writes, run(device, e, algorithm), want, strict=True):
                assert np.array_equal(g, w) if e.exact else off(g, w) <= TOLERANCE, (
                    f"{e.name}: {t.name} by {algorithm}, off by {off(g, w)}"
                )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_same_bytes_wherever_it_lies_and_in_place_and_in_any_order(device, falling, kind):
    for e in every():
        if e.op.kind != kind:
            continue
        for algorithm in device.algorithms(e.op):
            first = run(device, e, algorithm)
            for on, how in ((device, {"shift": 3, "poison": 0}), (falling, {"together": True})):
                for t, a, b in zip(e.op.writes, first, run(on, e, algorithm, **how), strict=True):
                    assert a.tobytes() == b.tobytes(), f"{e.name}: {t.name} by {algorithm} differs with {how}"


# ---- the division into blocks


@pytest.mark.parametrize(
    "shape", [(200000, 64), (64, 1000), (256, 64, 112, 112), (1, 1), (7, 3, 5), (1 << 20, 1), (2, 99999)]
)
def test_columns_cover_every_item_once(shape):
    last = columns.partials(columns.reducing(shape).chunks, shape[1])
    for g in (columns.reducing(shape), columns.mapping(shape), last):
        assert g.across * g.vector * g.tiles >= g.channels > g.across * g.vector * (g.tiles - 1)
        assert g.per * g.chunks >= g.items > g.per * (g.chunks - 1), "no chunk is empty"
        assert 256 % g.across == 0 and (g.vector == 1 or g.channels % 4 == 0) and g.grid < 1 << 31
    assert columns.reducing(shape).grid <= max(columns.REDUCING, columns.reducing(shape).tiles)


def test_many_rows_are_many_blocks_of_one_launch_and_few_are_one_stage(device):
    def launches(shape):
        dy, db = Tensor("dy", shape), Tensor("db", (shape[1],))
        (recipe,) = device.recipes(Op("b", "convolution.backward_bias", "l", Pass.BACKWARD, (dy,), (db,)))
        return recipe

    tall, wide = launches((16, 64, 112, 112)), launches((64, 1000))
    assert [s.grid for s in tall.steps] == [1024] and tall.algorithm.workspace == 1024 * 64 * 4
    assert [s.grid for s in wide.steps] == [8] and wide.algorithm.workspace == 0


def test_what_is_mapped_is_spread_over_the_whole_gpu():
    assert columns.mapping((64, 1000)).grid == 64 and columns.mapping((64, 1000)).per == 8
    assert columns.mapping((64, 64, 14, 14)).grid >= 500
    assert columns.mapping((256, 64, 112, 112)).per >= columns.LEAST * 16


def test_a_sum_of_many_is_exact_to_rounding(device):
    """200,704 rows: a running sum in float32 would be off by a thousand times as much."""
    dy = np.random.default_rng(0).random((16, 8, 112, 112)).astype(np.float32)
    e = Maker(0).example("convolution.backward_bias", [dy], [(8,)])
    (got,) = run(device, e, device.algorithms(e.op)[0])
    want = dy.sum((0, 2, 3), dtype=np.float64)
    assert (np.abs(got - want) <= 2e-7 * want).all()


# ---- batch normalization


@pytest.mark.parametrize("shape", [(64, 12), (4, 6, 20, 20), (2, 5, 3000), (16, 8, 40, 40)])
@pytest.mark.parametrize("mean", [0.0, 100.0, -1e4, 1e6])
def test_variance_is_sound_where_the_mean_is_large(device, shape, mean):
    """As near to what float64 makes of the same x as its own rounding allows; E[x^2] - E[x]^2 would be lost at 1e4."""
    c, along = shape[1], tuple(i for i in range(len(shape)) if i != 1)
    x = (np.random.default_rng(1).standard_normal(shape) + mean).astype(np.float32)
    a = attrs(eps=0.0, fraction=0.9, count=x.size // c)
    e = Maker(0).example("batch_norm.forward", [x], [shape, (c,), (c,)], a)
    y, m, v = run(device, e, device.algorithms(e.op)[0])
    exact = x.astype(np.float64)
    # The mean is rounded to float32: as far as that moves it, the deviations move.
    ulp = np.spacing(np.float32(abs(mean) + 1))
    assert (np.abs(m - exact.mean(along)) <= 2 * ulp).all()
    assert (np.abs(v / exact.var(along) - 1) <= 2e-6).all()
    want = (exact - exact.mean(along, keepdims=True)) / exact.std(along, keepdims=True)
    assert np.abs(y - want).max() <= 2e-5 + 3 * ulp


def test_a_constant_has_no_variance(device):
    for value in (0.1, 3e8, -7.7):
        x = np.full((6, 5, 7, 3), value, np.float32)
        e = Maker(0).example("batch_norm.forward", [x], [x.shape, (5,), (5,)], attrs(eps=1e-5, fraction=1, count=126))
        y, m, v = run(device, e, device.algorithms(e.op)[0])
        assert (y == 0).all() and (v == 0).all() and (m == x[0, 0, 0, 0]).all()


@pytest.mark.parametrize("outlier", [1e6, -1e6])
@pytest.mark.parametrize("at", [(0, 0, 0), (1, 0, 0), (1, 39, 39), (0, 3, 5)])  # first, middle, last, anywhere
def test_an_outlier_does_not_hide_the_rest(device, outlier, at):
    x = np.random.default_rng(2).standard_normal((2, 3, 40, 40)).astype(np.float32)
    x[at[0], :, at[1], at[2]] = outlier
    a = attrs(eps=1e-5, fraction=0.9, count=3200)
    e = Maker(0).example("batch_norm.forward", [x], [x.shape, (3,), (3,)], a)
    _, m, v = run(device, e, device.algorithms(e.op)[0])
    assert np.allclose(m, x.mean((0, 2, 3), dtype=np.float64), rtol=1e-6)
    assert np.allclose(v, x.astype(np.float64).var((0, 2, 3)), rtol=1e-6)


@pytest.mark.parametrize("storage", ["float", "bf16", "fp16"])
def test_a_shortcut_is_added_as_by_ops_apart(device, storage):
    """In float32 every bit is that of the BatchNorm and then the sum with its ReLU. In 16 bits the result is rounded
    once, so it is their float32 result, rounded."""
    plain, seen = attrs(operation="SUM", coeff=(1.0, 1.0), index=None), 0
    for e in every():
        if not e.op.kind.endswith("_scale_add_relu"):
            continue
        narrowed, same = (e, e) if storage == "float" else stored(e, storage)
        x, shortcut, *given = (same.data[t] for t in same.op.reads)
        kind = e.op.kind.removesuffix("_add_relu")
        apart = Maker(0).example(kind, [x, *given], [x.shape], e.op.attrs)
        (u,) = run(device, apart, device.algorithms(apart.op)[0])
        both = Maker(0).example("eltwise.forward_relu", [shortcut, u], [x.shape], plain)
        (want,) = run(device, both, device.algorithms(both.op)[0])
        on = device if storage == "float" else HostCuda(storage=storage)
        (got,) = run(on, narrowed, on.algorithms(narrowed.op)[0])
        assert got.tobytes() == (want if storage == "float" else narrow(want, storage)).tobytes(), e.name
        seen += 1
    assert seen > 40


# ---- losses


@pytest.mark.parametrize("label", [-1, 5, 1 << 30, -(1 << 31)])
@pytest.mark.parametrize("ignore", [None, 2])
def test_a_label_that_names_no_class_is_noticed(device, label, ignore):
    """The reference raises; here the loss, the accuracy and the label's row of the gradient are NaN."""
    m = Maker(3)
    x, labels = m.normal(300, 5), m.random.integers(0, 5, 300).astype(np.int32)
    labels[299] = label
    a = attrs(axis=1, ignore_label=ignore, normalization="VALID", loss_weight=1.0, label_smoothing=0.0, top_k=1)
    for kind, writes in (("softmax_loss.forward", [(1,), x.shape]), ("accuracy.forward", [(1,)]),
                         ("accuracy.by_class", [(5,)])):  # fmt: skip
        e = m.example(kind, [x, labels], writes, a)
        with pytest.raises(ValueError, match="names none of the 5 classes"):
            expected(KERNELS, e)
        assert np.isnan(run(device, e, device.algorithms(e.op)[0])[0]).all(), kind
    e = m.example("softmax_loss.backward", [abs(x), labels], [x.shape], a)
    (dx,) = run(device, e, device.algorithms(e.op)[0])
    assert np.isnan(dx[299]).all() and np.isfinite(dx[:299]).all()


def test_a_label_that_is_ignored_need_name_no_class(device):
    m = Maker(3)
    x, labels = m.normal(300, 5), np.full(300, -7, np.int32)
    for labels[:3] in ([1, 1, 4], [-7, -7, -7]):  # some count, none counts
        a = attrs(axis=1, ignore_label=-7, normalization="VALID", loss_weight=1.0, label_smoothing=0.0, top_k=2)
        for e in (
            m.example("softmax_loss.forward", [x, labels], [(1,), x.shape], a),
            m.example("softmax_loss.backward", [abs(x), labels], [x.shape], a),
            m.example("accuracy.forward", [x, labels], [(1,)], a),
            m.example("accuracy.by_class", [x, labels], [(5,)], a),
        ):
            for got, want in zip(run(device, e, device.algorithms(e.op)[0]), expected(KERNELS, e), strict=True):
                assert off(got, want) <= TOLERANCE and np.isfinite(got).all(), e.name


def test_labels_of_another_type_are_refused(device):
    x, label = Tensor("x", (4, 3)), Tensor("label", (4,), "float32")
    op = Op("loss", "accuracy.forward", "loss", Pass.LOSS, (x, label), (Tensor("y", (1,)),), attrs(
        axis=1, ignore_label=None, top_k=1))  # fmt: skip
    with pytest.raises(ValueError, match="label: labels are int32, not float32"):
        device.algorithms(op)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(9, 10), (3, 700), (2, 5, 3, 4)])
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_has_nan_exactly_where_the_reference_has(device, value, shape, axis):
    x = Maker(4).normal(*shape)
    x[1, 2], x[0] = value, np.where(x[0] > 1, value, x[0])
    e = Maker(4).example("softmax.forward", [x], [shape], attrs(axis=axis), inplace=[(0, 0)])
    (got,), (want,) = run(device, e, device.algorithms(e.op)[0], together=True), expected(KERNELS, e)
    assert np.array_equal(np.isnan(got), np.isnan(want)) and np.allclose(got, want, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_accuracy_of_scores_that_are_not_finite(device, value):
    x, label = Maker(5).normal(200, 7), np.arange(200, dtype=np.int32) % 7
    x[Maker(6).random.random(x.shape) < 0.2] = value
    for top_k in (1, 3, 7):
        e = Maker(5).example("accuracy.forward", [x, label], [(1,)], attrs(axis=1, ignore_label=3, top_k=top_k))
        assert run(device, e, device.algorithms(e.op)[0])[0] == expected(KERNELS, e)[0]


def test_a_probability_of_zero_is_a_large_loss_not_an_infinite_one(device):
    x, label = np.float32([[0, 1000]]), np.int32([0])
    a = attrs(axis=1, ignore_label=None, normalization="FULL", loss_weight=1.0, label_smoothing=0.0)
    e = Maker(0).example("softmax_loss.forward", [x, label], [(1,), (1, 2)], a)
    loss, _ = run(device, e, device.algorithms(e.op)[0])
    assert np.allclose(loss, -np.log(np.finfo(np.float32).tiny))


# ---- updates


@pytest.mark.parametrize("n", [1, 3, 4, 5, 1027])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [(0.0, "L2"), (0.003, "L2"), (0.003, "L1")])
@pytest.mark.parametrize("clipped", [False, True])
def test_sgd_rounds_as_the_cpu_backend_does(device, n, momentum, decay, clipped):
    """To the bit: one operation after another."""
    m, f = Maker(8), np.float32
    w, dw, h, rate, clip = m.normal(n), m.normal(n), m.normal(n), f([0.013]), f([0.37])
    w[0], dw[0] = 0, -0.0
    if n > 2:
        w[1], dw[2] = np.nan, np.inf
    a = attrs(momentum=momentum, decay=decay[0], regularization=decay[1], lr_mult=1.7, scale=1 / 3, clipped=clipped)
    reads = [w, dw, rate, f([1.0]), *([h] if momentum else []), *([clip] if clipped else [])]
    e = m.example("sgd.update", reads, [0, 4] if momentum else [0], a)
    got = run(device, e, device.algorithms(e.op)[0])
    g = dw * (clip[0] * f(1 / 3) if clipped else f(1 / 3))
    if decay[0]:
        g = g + (np.sign(w) if decay[1] == "L1" else w) * f(decay[0])
    g = g * (rate[0] * f(1.7))
    if momentum:
        g = h * f(momentum) + g
        assert np.array_equal(got[1], g, equal_nan=True)
    assert np.array_equal(got[0], w - g, equal_nan=True)
    for objective in (np.nan, np.inf, -np.inf):
        stopped = Example(e.name, e.op, {**e.data, e.op.reads[3]: f([objective])})
        for t, x in zip(e.op.writes, run(device, stopped, device.algorithms(e.op)[0]), strict=True):
            assert np.array_equal(x, e.data[t], equal_nan=True), "a step without a finite objective changes nothing"


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_clipping_of_what_is_not_finite_or_very_large(device, value):
    m = Maker(9)
    dws = [m.normal(n) for n in (5000, 3, 900)]
    dws[2][7] = value  # (its square is beyond float32)
    (sums,), (wanted,) = run(device, e := squared(m, dws), device.algorithms(e.op)[0]), expected(KERNELS, e)
    assert np.allclose(sums, wanted, rtol=1e-12, equal_nan=True)
    e = m.example("gradient.clip", [sums], [(1,)], attrs(threshold=2.0, blocks=summed(dws)[0]))
    (got,), (want,) = run(device, e, device.algorithms(e.op)[0]), expected(KERNELS, e)
    assert np.allclose(got, want, rtol=1e-6)
    assert (got == {True: 1.0, False: got}[bool(np.isnan(value))]).all()


def test_clipping_takes_few_launches(device):
    """One for 160 gradients, and one for the sums of 480."""
    dws = [Tensor(f"dw{i}", (1000 + i,)) for i in range(481)]
    blocks, factor = Blocks.of(dws), Tensor("c", (1,))
    first = squares("squares", "clip", dws, blocks.sums("squares"))
    clip = Op(
        "clip", "gradient.clip", "clip", Pass.UPDATE, first.writes, (factor,), attrs(threshold=1.0, blocks=blocks)
    )
    assert [s.kernel for s in device.recipes(first)[0].steps] == ["squares"] * 4
    assert [s.kernel for s in device.recipes(clip)[0].steps] == ["tensor_squares"] * 2 + ["clip_factor"]


@pytest.mark.parametrize("storage", ["bf16", "fp16"])
@pytest.mark.parametrize("count", [2, 7, 400])
def test_squares_of_gradients_of_several_formats(storage, count):
    m, device = Maker(11), HostCuda(storage=storage)
    e = squared(m, [m.normal(n) for n in m.random.integers(1, 9000 if count < 9 else 50, count)])
    narrowed, same = stored(e, storage, [i for i in range(count) if i % 3])
    (got,), (want,) = run(device, narrowed, device.algorithms(narrowed.op)[0]), expected(KERNELS, same)
    assert np.allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("storage", ["bf16", "fp16"])
def test_updates_by_gradients_of_several_formats_in_one_launch(storage):
    """Each weight gets the same bytes as by a launch of its own."""
    device = HostCuda(storage=storage)
    kinds = [f"{rule}.update{MULTI_TENSOR}" for rule in ("sgd", *rules.RULES) if rule != "lamb"]  # it reads no gradient
    for e in [e for e in examples() if e.op.kind in kinds and sum(t.size for t in e.op.tensors) > 300_000]:
        gradients = [e.op.reads.index(one.reads[1]) for k, one in enumerate(e.op.members) if k % 3]
        narrowed, _ = stored(e, storage, gradients)
        found = dict(zip(e.op.writes, run(device, narrowed, device.algorithms(narrowed.op)[0]), strict=True))
        assert len(device.recipes(narrowed.op)[0].steps) == 2, "more weights than one launch takes"
        for one in narrowed.op.members:
            alone = Example(one.name, one, {t: narrowed.data[t] for t in one.reads})
            for t, x in zip(one.writes, run(device, alone, device.algorithms(one)[0]), strict=True):
                assert found[t].tobytes() == x.tobytes(), t


# ---- bounds


@pytest.mark.slow
def test_kernels_stay_within_their_tensors():
    """As test_sanitized.py, on the examples here."""
    if RUNTIME is None:
        pytest.skip("no g++ with AddressSanitizer")
    sources = ("reduction", "normalization", "lrn", "loss", "update")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda s: cuda_host.build(cuda_host.KERNELS / f"{s}.cu", sanitize=True), sources))
    env = {**os.environ, "LD_PRELOAD": RUNTIME, "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=66",
           "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-c", SANITIZED]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "all within" in done.stdout


SANITIZED = """
from tests.support.cuda.host import HostCuda
from tests.support.cuda.reduction_examples import every
from tests.support.cuda.sanitized import check

device = HostCuda(sanitize=True)
for e in every():
    if sum(t.size for t in e.op.tensors) <= 10_000:
        for together in (False, True) if e.op.inplace else (False,):
            check(device, e, together)
print("all within")
"""


# ---- values of 16 bits: what is an activation or a gradient; statistics, losses, weights and momentum stay float32

STORED = {  # kind -> the reads and the writes that are
    "convolution.backward_bias": ([0], [0]),
    "inner_product.backward_bias": ([0], [0]),
    "scale.backward_bias": ([0], []),
    "scale.backward_filter": ([0, 1], []),
    "prelu.backward_filter": ([0, 1], []),
    "relu.backward_bias": ([0, 1], [0, 1]),
    "relu.backward_bias_slice": ([0, 1], [0, 1]),
    "lrn.forward": ([0], [0]),
    "lrn.backward": ([0, 1, 2], [0]),
    "batch_norm.forward": ([0], [0]),
    "batch_norm.backward": ([0, 3], [0]),
    "batch_norm.inference": ([0], [0]),
    "batch_norm.moments": ([0], []),
    **{f"batch_norm.normalize_scale{relu}": ([0], [0]) for relu in ("", "_relu")},
    **{f"batch_norm.backward_scale{relu}": ([0, 5], [0]) for relu in ("", "_relu")},
    "batch_norm.normalize": ([0], [0]),
    **{f"batch_norm.backward_sums{behind}": ([0, 1], []) for behind in ("", "_scale", "_scale_relu")},
    **{f"batch_norm.backward_data{behind}": ([0, 1], [0]) for behind in ("", "_scale", "_scale_relu")},
    **{f"batch_norm.inference_scale{relu}": ([0], [0]) for relu in ("", "_relu")},
    **{f"batch_norm.{what}_scale_add_relu": ([0, 1], [0]) for what in ("normalize", "inference")},
    "batch_norm.inference_backward": ([2], [0]),
    "softmax.forward": ([0], [0]),
    "softmax.backward": ([0, 1], [0]),
    "softmax_loss.forward": ([0], [1]),
    "softmax_loss.backward": ([0], [0]),
    "accuracy.forward": ([0], []),
    "accuracy.by_class": ([0], []),
    "objective.sum": ([0], []),
    "gradient.squares": (range(99), []),
}


def stored(e: Example, storage: str, these: Sequence[int] = ()) -> tuple[Example, Example]:
    """(the example with these in that format, the same numbers as float32); `these`: the reads, if not all of STORED"""
    reads, writes = (these, []) if these else STORED[e.op.kind]
    narrowed = {e.op.reads[i] for i in reads if i < len(e.op.reads)} | {e.op.writes[i] for i in writes}
    names = {t: replace(t, dtype=DTYPE[storage]) if t in narrowed else t for t in e.op.tensors}
    data = {names[t]: narrow(x, storage) if t in narrowed else x for t, x in e.data.items()}
    wide = {t: widen(data[names[t]], storage) if t in narrowed else x for t, x in e.data.items()}
    op = replace(e.op, reads=tuple(names[t] for t in e.op.reads), writes=tuple(names[t] for t in e.op.writes),
                 inplace=tuple((names[a], names[b]) for a, b in e.op.inplace))  # fmt: skip
    return Example(e.name, op, data, e.exact), Example(e.name, e.op, wide, e.exact)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("storage", ["bf16", "fp16"])
def test_sixteen_bits(storage, kind):
    """The reference's result on the same numbers, rounded once (LRN through memory: twice)."""
    device = HostCuda(storage=storage)
    for e in every():
        if e.op.kind != kind or sum(t.size for t in e.op.tensors) > 4_000 or "far apart" in e.name:
            continue
        narrowed, same = stored(e, storage)
        want = expected(KERNELS, same)
        for algorithm in device.algorithms(narrowed.op):
            for together in (False, True):
                got = run(device, narrowed, algorithm, together=together)
                for t, g, w in zip(narrowed.op.writes, got, want, strict=True):
                    if t.dtype in ("float32", "float64"):
                        assert off(g, w) <= TOLERANCE, f"{e.name}: {t.name} by {algorithm}"
                        continue
                    limit = (2 if "lrn" in kind else 0.51) * SPACING[storage] + TOLERANCE
                    assert np.abs(widen(g, storage) - w).max() <= limit * max(float(np.abs(w).max()), 1e-3), e.name


@pytest.mark.parametrize("storage", ["bf16", "fp16"])
def test_sgd_of_a_gradient_of_16_bits(storage):
    """Weights and momentum are float32: only the gradient has been rounded."""
    m, device = Maker(10), HostCuda(storage=storage)
    w, h, dw = m.normal(1027), m.normal(1027), narrow(m.normal(1027), storage)
    numbers = np.float32([0.1]), np.float32([1])
    a = attrs(momentum=0.9, decay=0.01, regularization="L2", lr_mult=1.0, scale=1.0, clipped=False)
    e = m.example("sgd.update", [w, dw, *numbers, h], [0, 4], a)
    same = m.example("sgd.update", [w, widen(dw, storage), *numbers, h], [0, 4], a)
    for g, want in zip(run(device, e, device.algorithms(e.op)[0]), expected(KERNELS, same), strict=True):
        assert off(g, want) <= 1e-6


@pytest.mark.parametrize("storage", ["bf16", "fp16"])
def test_scale_s_gradients_stay_float32_beside_others_of_16_bits(storage):
    """They are summed behind a ReLU, and squared together with the others."""
    m, device = Maker(11), HostCuda(storage=storage)
    for shape in ((2, 5, 3, 3), (64, 40, 9, 9), (3000, 8)):  # one chunk, and many
        y, dy = (narrow(m.normal(*shape), storage) for _ in range(2))
        e = m.example("relu.backward_bias", [y, dy], [shape, shape[1:2]], dtypes={0: DTYPE[storage]})
        same = m.example("relu.backward_bias", [widen(x, storage) for x in (y, dy)], [shape, shape[1:2]])
        for t, g, want in zip(
            e.op.writes, run(device, e, device.algorithms(e.op)[0]), expected(KERNELS, same), strict=True
        ):
            got = g if t.dtype == "float32" else widen(g, storage)
            assert off(got, want) <= (TOLERANCE if t.dtype == "float32" else SPACING[storage])
    dws = [narrow(m.normal(n), storage) if i % 3 else m.normal(n) for i, n in enumerate(range(4000, 4030))]
    wide = [widen(x, storage) if i % 3 else x for i, x in enumerate(dws)]
    for count in (1, 2, 30):
        e, same = (squared(m, given[:count]) for given in (dws, wide))
        assert off(run(device, e, device.algorithms(e.op)[0])[0], expected(KERNELS, same)[0]) <= 1e-12


# ---- what the compiler makes of them


@pytest.mark.parametrize("source", ["reduction", "normalization", "lrn", "loss", "norms", "update"])
@pytest.mark.parametrize("storage", ["float", "bf16"])
def test_four_values_move_at_once(nvrtc, source, storage):
    four = re.compile(r"^sgd|^squares$" if source in ("norms", "update") else r"_[48]$|_rows_\d$|^sum_elements$")
    for name, text in ptx(nvrtc, source, storage).items():
        assert bool(re.search(r"ld\.global[\w.]*\.v4", text)) == bool(four.search(name)), name


@pytest.mark.parametrize("storage", ["float", "bf16"])
def test_what_the_last_block_reads_was_published_before_it_was_counted(nvrtc, storage):
    """On the CPU blocks run one after another, so no test there would miss the fence or the cache that is passed by."""
    for name, text in ptx(nvrtc, "reduction", storage).items():
        found = re.findall(r"st\.global\.f32|membar\.gl|fence\.acq_rel\.gpu|atom\.global\.inc|ld\.global\.cg", text)
        at = [i for i, word in enumerate(found) if word.startswith("atom")]
        assert len(at) == 1, name
        before, after = found[: at[0]], found[at[0] + 1 :]
        assert before[-1].startswith(("membar", "fence")) and "st.global.f32" in before, name
        assert "ld.global.cg" in after and "ld.global.cg" not in before, name
