"""One row per layer: shapes, the ops it lowers to with their declared reads, numeric gradients, PyTorch.

Kernels get nothing but an op's declared reads, so a backward that gives the right gradient proves that they suffice.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from minidnn.layers import FACTS, LAYERS, Facts, ShapeError
from tests.layers.bench import IMAGE, Bench, compare, compare_numeric, line
from tests.layers.rows import RANDOM, ROWS
from tests.support.graphs import layer
from tests.support.interpret import run_ops

ALL = pytest.mark.parametrize("name", ROWS)


def test_every_type_has_a_row():
    every = {layer(row.text).type for row in ROWS.values()} | {"Split"}
    assert {k for k, of in LAYERS.items() if not of.inputs} == every


@ALL
def test_shapes_and_ops(name):
    row = ROWS[name]
    b = row.bench()
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


@pytest.mark.peer("torch")
@ALL
def test_equals_pytorch(name):
    compare(ROWS[name])


@pytest.mark.peer("torch")
@pytest.mark.parametrize("kind", LAYERS)
def test_random_geometries_equal_pytorch(kind):
    """20 geometries of each type that computes something."""
    if LAYERS[kind].bottoms == (0, 0) or LAYERS[kind].same or LAYERS[kind].tops == (0, 0):
        pytest.skip("a source has no bottoms, Split and Silence have no op")
    random = np.random.default_rng(zlib.crc32(kind.encode()))
    for seed in range(20):
        row = RANDOM[kind](random)
        assert layer(row.text).type == kind
        compare(row, seed)


@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if row.phase == "TRAIN" and row.bench().wanted])
def test_numeric_gradient(name):
    compare_numeric(ROWS[name])


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
    assert result(text, values, [(3, 3), (3,)], labels=(1,), still=(0,))[0] == pytest.approx(1 / 3)


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
    assert result(text, values, [(2, 2, 2), (2, 2)], labels=(1,))[0] == pytest.approx(3 * np.log(2) / divisor)


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
        ("type: InnerProduct, bottom: a, top: b, inner_product_param: {num_output: 4}", [(2,)],
         "axis 1 does not exist in a bottom of shape 2"),
        ("type: MatMul, bottom: [a, b], top: c", [(2, 3, 4), (3, 4, 5)], "axes are equal, got 2x3x4 and 3x4x5"),
        ("type: MatMul, bottom: [a, b], top: c", [(3, 4), (3, 4)],
         "3x4 times 3x4: the first matrix needs as many columns as the second has rows"),
        ("type: Attention, bottom: a, top: b, attention_param: {num_heads: 2}", [(2, 3, 4, 5)],
         r"expected one bottom .N, T, q and k and v., or three: .*; got 2x3x4x5"),
        ("type: Attention, bottom: a, top: c, attention_param: {num_heads: 2}", [(2, 3, 4, 5)],
         "expected one bottom .*; got 2x3x4x5"),
        ("type: Attention, bottom: [a, b], top: c, attention_param: {num_heads: 2}", [(4, 3, 12), (3, 2, 3, 3)],
         "expected a bias of 3x3, 2x3x3, or Bx2x3x3 or Bx1x3x3 where B divides the 4 samples; got 3x2x3x3"),
        ("type: Attention, bottom: [a, b], top: c, attention_param: {num_heads: 2}", [(4, 3, 12), (3, 3, 3)],
         "B divides the 4 samples; got 3x3x3"),
        ("type: Attention, bottom: [a, b], top: c, attention_param: {num_heads: 2, causal: true, places: 9}",
         [(1, 3, 12), (3, 3)], "places 9: keys and values are kept for an attention without a bias"),
        ("type: Attention, bottom: a, top: b, attention_param: {num_heads: 4, num_kv_heads: 3}", [(2, 3, 20)],
         "num_kv_heads 3 does not divide num_heads 4"),
        ("type: Attention, bottom: a, top: b, attention_param: {num_heads: 4, num_kv_heads: 2}", [(2, 3, 20)],
         r"8 heads .of q 4, of k and v 2 each. do not divide the 20 numbers of a token of the bottom 2x3x20"),
        ("type: Attention, bottom: [a, b, c], top: d, attention_param: {num_heads: 2}",
         [(2, 3, 8), (2, 3, 8), (2, 4, 8)], "2 heads of 4 numbers need k and v of 2x3x8, got 2x3x8 and 2x4x8"),
        ("type: Attention, bottom: [a, b, c], top: d, attention_param: {num_heads: 2, causal: true}",
         [(2, 5, 8), (2, 4, 8), (2, 4, 8)], "5 queries have 4 keys: the first queries would see none"),
        ("type: RelativePositionBias, top: a, relative_position_bias_param: "
         "{num_heads: 2, window: 3, shift: 1, height: 6}", [],
         "shift 1: expected a width that is a multiple of window 3, got none"),
        ("type: RelativePositionBias, top: a, relative_position_bias_param: "
         "{num_heads: 2, window: 3, shift: 3, height: 6, width: 9}", [], "shift 3: expected one below window 3"),
        ("type: Roll, bottom: a, top: b, roll_param: {axis: 3, shift: 1}", [(2, 3)], "axis 3 does not exist"),
        ("type: RotaryEmbedding, bottom: a, top: b, rotary_embedding_param: {num_heads: 2, head_dim: 3}", [(2, 3, 9)],
         "2 heads of 3 numbers: expected an even head_dim, and heads of at most the 9 numbers of a token"),
        ("type: LSTM, bottom: a, top: b, recurrent_param: {num_output: 3}", [(4,)],
         "a bottom of steps and sequences .*, got 4"),
        ("type: LSTM, bottom: [a, b], top: c, recurrent_param: {num_output: 3}", [(4, 2, 5), (2, 4)],
         "x is 4x2x5: expected cont of 4x2, got 2x4"),
        ("type: LSTM, bottom: [a, b, c], top: [d, e, f], recurrent_param: {num_output: 3, expose_hidden: true}",
         [(4, 2, 5), (1, 2, 3), (2, 3)], "expected c_0 of 1x2x3, got 2x3"),
        ("type: LSTM, bottom: [a, b], top: [d, e, f], recurrent_param: {num_output: 3, expose_hidden: true}",
         [(4, 2, 5), (1, 2, 3)], "got 2 bottoms; expected 3 to 5: x, cont, x_static, h_0, c_0, where"),
        ("type: GRU, bottom: [a, b], top: d, recurrent_param: {num_output: 3, expose_hidden: true}",
         [(4, 2, 5), (1, 2, 3)], "the number of tops is 1; expected 2: h, h_T"),
        ("type: GRU, bottom: a, top: d, recurrent_param: {num_output: 3, hidden_bias: true}", [(4, 2, 5)],
         "a GRU always has a bias of the hidden state: leave out hidden_bias"),
        ("type: InnerProductWithLoss, bottom: [a, l], top: b, inner_product_param: {num_output: 3, transpose: true}",
         [(2, 5), (2,)], "InnerProductWithLoss has no transposed weights: leave out transpose"),
        ("type: InnerProductWithLoss, bottom: [a, l], top: b, "
         "inner_product_param: {num_output: 3, axis: 2, bias_term: false}", [(2, 4, 5), (2,)],
         "need 8 labels, got 2"),
        ("type: Embed, bottom: a, top: b, embed_param: {num_output: 4, input_dim: 9}", [(2, 3, 4, 5)],
         "at most 3 axes, got 2x3x4x5"),
        ("type: LayerNorm, bottom: a, top: b, layer_norm_param: {axis: 2}", [(2, 3)], "axis 2 does not exist"),
        ("type: LayerNorm, bottom: a, top: b, layer_norm_param: {axis: 1, num_axes: 3}", [(2, 3, 4)],
         "num_axes 3 from axis 1 on: expected 1 to 2 axes of the bottom 2x3x4"),
        ("type: LayerNorm, bottom: a, top: b, layer_norm_param: {axis: 1, num_axes: 2}", [(2, 3, 4, 5)],
         "axes 1 to 2 of the bottom 2x3x4x5 are not rows of images"),
        ("type: ClassToken, bottom: a, top: b", [(2, 3)], r"expected a bottom of 3 axes \(N, T, C\), got 2x3"),
        ("type: GroupNorm, bottom: a, top: b, group_norm_param: {num_groups: 3}", [(2, 4, 5, 5)],
         "num_groups 3 does not divide the 4 channels of the bottom 2x4x5x5"),
        ("type: Pad, bottom: a, top: b, pad_param: {axis: 1, before: [1, 2]}", [(2, 4, 5, 5)],
         "before: expected one number, or 3, one for each axis from 1 on of the bottom 2x4x5x5; got 2"),
        ("type: Normalize, bottom: a, top: b", [(2,)], "2 or more axes"),
        ("type: Reduction, bottom: a, top: b, reduction_param: {axis: -3}", [(2, 3)], "axis -3 does not exist"),
        ("type: ArgMax, bottom: a, top: b, argmax_param: {top_k: 5}", [(7, 2, 2)], "top_k 5 exceeds the 4 elements"),
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
