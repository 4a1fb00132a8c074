"""Single operators in the forms that exporters write and ONNX's own tests lack, beside ONNX's evaluator; and those that
are refused, with the reason."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

import onnx
from onnx.reference import ReferenceEvaluator

from minidnn.onnx import InvalidModel
from minidnn.onnx.backend import Model
from minidnn.onnx.ends import Given
from minidnn.onnx.reading import from_model, walk

H = onnx.helper
FLOAT = onnx.TensorProto.FLOAT
SINCE_23 = ("RMSNormalization", "Attention", "RotaryEmbedding")


def angles(places, half):
    """Cosines and sines of some angles (places, half)."""
    found = np.random.default_rng(3).uniform(-3, 3, (places, half))
    return [np.cos(found).astype(np.float32), np.sin(found).astype(np.float32)]


def model(kind, shapes, constants=(), outputs=1, opset=21, **attributes):
    """A model of one node. Its inputs have these shapes; those behind them are constants, "" if they are left out."""
    names = [f"x{i}" for i in range(len(shapes))]
    held = {f"c{i}": np.asarray(c) for i, c in enumerate(constants) if c is not None}
    inputs = [*names, *(f"c{i}" if c is not None else "" for i, c in enumerate(constants))]
    tops = [f"y{i}" for i in range(outputs)]
    node = H.make_node(kind, inputs, tops, name="it", **attributes)
    graph = H.make_graph(
        [node], "g",
        [H.make_tensor_value_info(n, FLOAT, s) for n, s in zip(names, shapes, strict=True)],
        [H.make_tensor_value_info("y0", FLOAT, None)],
        [onnx.numpy_helper.from_array(v, n) for n, v in held.items()],
    )  # fmt: skip
    return H.make_model(graph, opset_imports=[H.make_opsetid("", opset)], ir_version=9)


def same(made, shapes, oracle=None):
    """Assert that minidnn computes what ONNX's evaluator does, or another oracle."""
    random = np.random.default_rng(0)
    given = [random.standard_normal(s).astype(np.float32) for s in shapes]
    feed = {f"x{i}": x for i, x in enumerate(given)}
    theirs = oracle(*given) if oracle else ReferenceEvaluator(made).run(None, feed)[0]
    (ours,) = Model(made, "reference").run(given)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def pooled(kind, pads, ceil, stride, kernel=(3, 4)):
    """The operator's definition, window by window. (ONNX's evaluator is wrong where sides are padded
    unlike, and where a window would begin behind the image; ONNX Runtime agrees with this.)"""

    def oracle(x):
        spans = []
        for n, b, a, s, k in zip(x.shape[2:], pads[:2], pads[2:], stride, kernel, strict=True):
            count = (-(-(n + b + a - k) // s) if ceil else (n + b + a - k) // s) + 1
            begins = [i * s - b for i in range(count) if not ceil or i * s - b < n]
            spans.append([(max(i, 0), min(i + k, n), min(i + k, n + a) - i) for i in begins])
        y = np.empty((*x.shape[:2], *map(len, spans)), np.float32)
        for (i, (top, bottom, high)), (j, (left, right, wide)) in itertools.product(*map(enumerate, spans)):
            window = x[:, :, top:bottom, left:right]
            counted = high * wide if kind == "counting padding" else (bottom - top) * (right - left)
            y[:, :, i, j] = window.max((2, 3)) if kind == "MaxPool" else window.sum((2, 3)) / counted
        return y

    return oracle


def refused(made) -> str:
    with pytest.raises(InvalidModel) as error:
        walk(made, "m.onnx", Given())
    return str(error.value)


def numbers(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


X = (2, 3, 8, 11)
PADS = [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 0, 2], [0, 0, 1, 1]]


@pytest.mark.parametrize(("pads", "ceil", "stride"), [*itertools.product(PADS, [0, 1], [[1, 1], [2, 3], [3, 2]])])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "counting padding"])
def test_windows_of_any_padding(kind, pads, ceil, stride):
    more = {"count_include_pad": 1} if kind == "counting padding" else {}
    operator = "AveragePool" if more else kind
    made = model(operator, [X], kernel_shape=[3, 4], pads=pads, ceil_mode=ceil, strides=stride, **more)
    same(made, [X], pooled(kind, pads, ceil, stride))


def of_cell(gates, bias=True, width=2):
    """(the shapes of the inputs, the constants) of an LSTM or a GRU."""
    rows = gates * width
    return [(5, 3, 4)], [numbers(1, rows, 4), numbers(1, rows, width), *([numbers(1, 2 * rows)] if bias else [])]


def lstm(more=(), bias=True, **attributes):
    shapes, constants = of_cell(4, bias)
    return model("LSTM", shapes, [*constants, *more], hidden_size=2, **attributes)


@pytest.mark.parametrize("kind, output", [("LSTM", 0), ("LSTM", 1), ("LSTM", 2), ("GRU", 0), ("GRU", 1)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("states", [(), "hc"])
def test_recurrent_cells(kind, bias, states, output):
    """Each of the outputs, of states that are given or zero."""
    shapes, constants = of_cell(4 if kind == "LSTM" else 3, bias)
    lengths = np.full(3, 5, np.int32)
    first = [numbers(1, 3, 2), numbers(1, 3, 2)[:, ::-1]][: 2 if kind == "LSTM" else 1] if states else []
    constants += [*([] if bias else [None]), lengths, *first]
    outputs = 3 if kind == "LSTM" else 2
    made = model(
        kind, shapes, constants, outputs, hidden_size=2, **({"linear_before_reset": 1} if kind == "GRU" else {})
    )
    made.graph.output[0].name = f"y{output}"
    same(made, shapes, None if output < 2 else cells_of(constants, first))


def cells_of(constants, first):
    """c behind the last step, by ONNX's formulas: its evaluator lacks the output."""

    def oracle(x):
        w, r, b = constants[0][0], constants[1][0], np.zeros(16) if constants[2] is None else constants[2][0]
        h, c = (f[0] for f in first) if first else (np.zeros((3, 2)), np.zeros((3, 2)))
        for step in x:
            i, o, f, g = np.split(step @ w.T + h @ r.T + b[:8] + b[8:], 4, 1)
            i, o, f = (1 / (1 + np.exp(-v)) for v in (i, o, f))
            c = f * c + i * np.tanh(g)
            h = o * np.tanh(c)
        return c[None]

    return oracle


@pytest.mark.parametrize("way", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_windows_that_pad_by_themselves(way):
    sides = {"SAME_UPPER": [0, 1, 0, 1], "SAME_LOWER": [0, 1, 0, 1], "VALID": [0, 0, 0, 0]}[way]  # of 8 and 11 pixels
    for kind in ("MaxPool", "AveragePool"):
        made = model(kind, [X], kernel_shape=[2, 3], strides=[2, 2], auto_pad=way)
        same(made, [X], pooled(kind, sides, False, [2, 2], (2, 3)))
    same(model("Conv", [X], [numbers(4, 3, 2, 4)], strides=[2, 1], auto_pad=way), [X])


@pytest.mark.parametrize("pads", PADS)
def test_convolutions_of_any_padding(pads):
    same(model("Conv", [X], [numbers(4, 3, 3, 2), numbers(4)], pads=pads, strides=[2, 1]), [X])
    more = {"strides": [2, 3], "output_padding": [1, 1]}
    same(model("ConvTranspose", [X], [numbers(3, 4, 3, 2), numbers(4)], pads=pads, **more), [X])
    same(model("ConvTranspose", [X], [numbers(3, 2, 3, 2)], pads=pads, dilations=[2, 1]), [X])


def test_rows_are_images_of_one_row():
    shape = (2, 4, 9)
    same(model("Conv", [shape], [numbers(6, 2, 3), numbers(6)], group=2, pads=[2, 1], strides=[2]), [shape])
    same(model("ConvTranspose", [shape], [numbers(4, 3, 3)], pads=[1, 0], strides=[2]), [shape])
    same(model("MaxPool", [shape], kernel_shape=[3], strides=[2], pads=[1, 1]), [shape])
    same(model("AveragePool", [shape], kernel_shape=[2], strides=[2], ceil_mode=1), [shape])
    same(model("GlobalAveragePool", [shape]), [shape])


def cut_and_padded(pads, value):
    """A Pad of all four axes that takes elements away at some sides."""
    first, last = pads[:4], pads[4:]
    box = tuple(slice(max(-b, 0), n - max(-a, 0)) for n, b, a in zip(X, first, last, strict=True))
    around = [(max(b, 0), max(a, 0)) for b, a in zip(first, last, strict=True)]
    return lambda x: np.pad(x[box], around, constant_values=value)


@pytest.mark.parametrize(
    ("pads", "mode", "value", "axes"),
    [
        ([0, 0, 1, 2, 0, 0, 3, 0], "constant", None, None),
        ([0, 0, 1, 2, 0, 0, 3, 0], "constant", 1.5, None),
        ([0, 0, 1, 2, 0, 0, 0, 0], "constant", -1e30, None),
        ([0, 1, -2, 2, 0, -1, 1, -3], "constant", 0.5, None),
        ([1, 2, 0, 1], "constant", 2.0, [-1, 2]),
        ([0, 0, -1, 0, 0, 0, 0, -2], "constant", 7.0, None),
        ([0, 0, 2, 1, 0, 0, 1, 3], "reflect", None, None),
        ([0, 1, 2, 1, 0, 0, 1, 3], "edge", None, None),
        ([0, 0, 2, 1, 0, 0, 1, 3], "wrap", None, None),
        ([0, 0, 0, 0, 0, 0, 0, 0], "constant", 3.0, None),
    ],
)
def test_pads(pads, mode, value, axes):
    constants = [ints(*pads), None if value is None else np.float32(value), None if axes is None else ints(*axes)]
    while constants[-1] is None:
        constants.pop()
    same(model("Pad", [X], constants, mode=mode), [X], None if min(pads) >= 0 else cut_and_padded(pads, value))


@pytest.mark.parametrize(
    ("kind", "shapes", "constants", "attributes"),
    [
        ("Slice", [(2, 7, 9)], [ints(1, -8), ints(2**63 - 1, -1), ints(1, 2), ints(2, 3)], {}),
        ("Slice", [(2, 7, 9)], [ints(6), ints(7), ints(1), ints(5)], {}),
        ("Gather", [(2, 7, 9)], [ints(-1, 2, 3, 0)], {"axis": 1}),
        ("Gather", [(2, 7, 9)], [np.array(-2)], {"axis": -1}),
        ("Gather", [(2, 7, 9)], [np.array([[0, 1], [5, 5]])], {"axis": 1}),
        ("GatherND", [(5, 2, 3)], [np.array([[3], [0], [-1]])], {}),
        ("Expand", [(2, 1, 3)], [ints(4, 1, 5, 1)], {}),
        ("Expand", [(2, 1, 3)], [ints(1)], {}),
        ("Where", [(4, 5)], None, {}),
        ("Trilu", [(2, 4, 5)], [np.array(-1)], {"upper": 0}),
        ("DepthToSpace", [(2, 8, 3, 5)], [], {"blocksize": 2, "mode": "CRD"}),
        ("SpaceToDepth", [(2, 2, 4, 6)], [], {"blocksize": 2}),
        ("MatMul", [(2, 1, 3, 4), (5, 4, 2)], [], {}),
        ("MatMul", [(2, 3, 4), (4,)], [], {}),
        ("Attention", [(2, 5, 24), (2, 7, 12), (2, 7, 12)], [], {"q_num_heads": 4, "kv_num_heads": 2, "scale": 0.3}),
        ("Attention", [(2, 4, 5, 6), (2, 4, 5, 6), (2, 4, 5, 6)], [], {"is_causal": 1}),
        ("Attention", [(2, 5, 8), (2, 7, 8), (2, 7, 8)], [np.abs(np.arange(2, 7)[:, None] - np.arange(7)) < 3],
         {"q_num_heads": 2, "kv_num_heads": 2}),
        ("Attention", [(2, 4, 5, 6), (2, 4, 5, 6), (2, 4, 5, 6)],
         [np.where(np.tri(5, 5, 1) > 0, 0, -np.inf)[None].astype(np.float32)], {"is_causal": 1}),
        ("Attention", [(2, 4, 5, 6), (2, 4, 5, 6), (2, 4, 5, 6)], [numbers(4, 5, 5)], {"is_causal": 1}),
        ("Attention", [(2, 5, 8), (2, 7, 8), (2, 7, 8)], [numbers(2, 1, 5, 7)], {"q_num_heads": 2, "kv_num_heads": 2}),
        ("Attention", [(2, 5, 8), (2, 7, 8), (2, 7, 8)], [np.arange(70).reshape(2, 1, 5, 7) % 3 > 0],
         {"q_num_heads": 2, "kv_num_heads": 2}),
        ("Attention", [(2, 4, 5, 6), (2, 4, 5, 6), (2, 4, 5, 6), (1, 1, 5, 5)], [], {}),
        ("RotaryEmbedding", [(2, 3, 5, 8)], [*angles(9, 4), ints(*[2, 0, 1, 7, 7] * 2).reshape(2, 5)], {}),
        ("RotaryEmbedding", [(2, 5, 24)], [*angles(9, 3), ints(*range(10)).reshape(2, 5) % 9],
         {"num_heads": 3, "rotary_embedding_dim": 6, "interleaved": 1}),
        ("RotaryEmbedding", [(2, 5, 24)], [t.reshape(2, 5, 4) for t in angles(10, 4)], {"num_heads": 3}),
        ("Einsum", [(2, 3, 4), (2, 5, 4)], [], {"equation": "bqd,bkd->bqk"}),
        ("Einsum", [(2, 5, 3, 4), (2, 6, 3, 4)], [], {"equation": "bqhd, bkhd -> bhqk"}),
        ("Einsum", [(2, 3, 4), (4, 6)], [], {"equation": "btd,dk->kbt"}),
        ("Mul", [(2, 1, 4), (2, 3, 1)], [], {}),
        ("Sub", [(3, 1), (2, 1, 4)], [], {}),
        ("Max", [(3, 4), (2, 1, 4)], [], {}),
        ("Mean", [(3, 4), (3, 4), (1, 4)], [], {}),
        ("Min", [(3, 4)], [np.float32(0.2)], {}),
        ("ReduceMax", [(2, 3, 4, 5)], [ints(1, 3)], {"keepdims": 0}),
        ("ReduceMin", [(2, 3, 4)], [ints(-1)], {}),
        ("ReduceL2", [(2, 3, 4)], [ints(1)], {}),
        ("ReduceMean", [(2, 3, 4, 5)], [ints(2, 3)], {"keepdims": 0}),
        ("ReduceSum", [(2, 3, 4)], [], {"noop_with_empty_axes": 1}),
        ("LogSoftmax", [(2, 3, 4)], [], {"axis": 1}),
        ("Split", [(2, 7)], [], {"axis": 1, "num_outputs": 1}),
        ("Clip", [(2, 7)], [None, np.float32(0.3)], {}),
        ("Clip", [(2, 7)], [], {}),
        ("Gelu", [(2, 7)], [], {"approximate": "tanh"}),
        ("HardSigmoid", [(2, 7)], [], {}),
        ("Celu", [(2, 7)], [], {"alpha": 0.5}),
        ("ThresholdedRelu", [(2, 7)], [], {"alpha": 0.2}),
        ("InstanceNormalization", [(2, 4, 7)], [numbers(4), numbers(4)], {"epsilon": 0.1}),
        ("GroupNormalization", [(2, 4, 5, 3)], [numbers(4), numbers(4)], {"num_groups": 2, "epsilon": 0.1}),
        ("LayerNormalization", [(2, 4, 5)], [numbers(5), None], {}),
        ("Resize", [(1, 2, 5, 6)], [None, None, ints(1, 2, 8, 4)], {"mode": "linear"}),
        ("Resize", [(1, 2, 5, 6)], [None, np.float32([1, 1, 1.6, 2])], {"mode": "cubic", "cubic_coeff_a": -0.5}),
        ("Resize", [(1, 2, 5, 6)], [None, None, ints(10, 12)], {"axes": [2, 3], "mode": "nearest"}),
    ],
    ids=str,
)  # fmt: skip
def test_operators(kind, shapes, constants, attributes):
    if kind == "Where":
        made = model(kind, shapes, [np.float32(-1e30)], **attributes)
        made.graph.node[0].input[:] = ["mask", "x0", "c0"]
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.tri(4, 5, dtype=bool), "mask"))
    else:
        made = model(kind, shapes, constants, opset=23 if kind in SINCE_23 else 21, **attributes)
    same(made, shapes)


def test_group_normalization_had_a_scale_per_group():
    shape, groups = (2, 6, 4, 3), 3
    made = model("GroupNormalization", [shape], [numbers(groups), numbers(groups)], opset=18, num_groups=groups)
    same(made, [shape])


def test_constants_of_training_are_frozen():
    mask = np.tri(4, 5, dtype=bool)
    made = model("Where", [(4, 5)], [np.float32(-1)])
    made.graph.node[0].input[:] = ["mask", "x0", "c0"]
    made.graph.initializer.append(onnx.numpy_helper.from_array(mask, "mask"))
    layers = [layer for layer in walk(made, "m", Given())[0].finished() if layer["type"] != "Input"]
    assert [layer["type"] for layer in layers] == ["Scale", "Bias"]
    assert all(layer["param"] == [{"lr_mult": 0, "decay_mult": 0}] for layer in layers)


def test_outputs_that_nobody_reads_do_not_count():
    same(model("LayerNormalization", [(2, 5)], [numbers(5)], outputs=3), [(2, 5)])
    same(model("MaxPool", [X], outputs=2, kernel_shape=[2, 2]), [X])
    same(model("Dropout", [(2, 5)], outputs=2), [(2, 5)])


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (model("Add", [(2, 3, 3)], [numbers(3)], opset=6, broadcast=1, axis=1), "does not know axis = 1"),
        (model("BatchNormalization", [(2, 3, 4, 4)], [numbers(3)] * 4, opset=6, is_test=1, spatial=0), "spatial = 0"),
        (model("Resize", [(1, 1, 8, 8)], [None, None, ints(1, 1, 4, 4)], mode="linear", antialias=1), "antialias = 1"),
        (model("Conv", [X], [numbers(4, 3, 3, 3)], kernel_shape=[2, 2]), "kernel_shape is [2, 2]"),
        (model("Slice", [(5,)], [ints(4), ints(0), ints(0), ints(-1)]), "goes forward"),
        (model("Reshape", [(2, 3)], [ints(0, 3)], allowzero=1), "no elements (allowzero=1)"),
        (model("Pad", [(2, 3)], [ints(0, -2, 0, -1)]), "leave nothing"),
        (model("Pad", [(2, 3)], [ints(0, 3, 0, 0)], mode="reflect"), "reflects 3 of the 3 elements"),
        (model("Gather", [(2, 3)], [ints(5)], axis=1), "its places are 5"),
        (model("Einsum", [(2, 2), (2, 2)], equation="ii,ij->j"), "minidnn reads those of two values"),
        (model("Expand", [(2, 3)], [ints(2, 2)]), "cannot be broadcast to one"),
        (model("Cast", [(2, 3)], to=FLOAT + 9), "casts to float16"),
        (model("LayerNormalization", [(2, 5)], [numbers(5)], stash_type=16), "stash_type is 16"),
        (model("MaxPool", [X], kernel_shape=[2, 2], dilations=[2, 2]), "dilations are [2, 2]"),
        (model("Trilu", [(1, 10**5, 10**5)]), "a constant of 10000000000 numbers"),
        (model("Pad", [(2, 3)], [ints(0, 2**30, 0, 0), np.float32(1)]), "numbers; 67108864 are the most"),
        (model("Pad", [(2, 3)], [ints(0, 2**40, 0, 0)], mode="wrap"), "adds 1099511627776 elements"),
        (model("MaxPool", [X], kernel_shape=[2, 2], pads=[2**40] * 4), "padding is as wide as its windows"),
        (model("MaxPool", [X], kernel_shape=[2**40] * 2, pads=[2**40 - 1] * 4), "are the most"),
        (model("Resize", [(1, 1, 2, 2)], [None, np.float32([1, 1, 1e9, 1])]), "in a line are the most"),
        (model("Resize", [(1, 1, 9999, 2)], [None, np.float32([1, 1, 1.5, 1])]), "needs a matrix of"),
        (model("CumSum", [(2, 3)], [np.array(1)]), "minidnn has no layers for it"),
        (lstm(direction="reverse"), "its direction is 'reverse'"),
        (lstm(bias=False, direction="bidirectional"), "its direction is 'bidirectional'"),
        (lstm(layout=1), "its layout is 1"),
        (lstm(clip=1.0), "neither clip"),
        (lstm(activations=["Sigmoid", "Relu", "Tanh"]), "its activations are ['sigmoid', 'relu', 'tanh']"),
        (lstm([ints(5, 3, 5).astype(np.int32)]), "its sequence_lens are [5, 3, 5], and minidnn's layers take all 5"),
        (lstm([None, None, None, numbers(1, 6)]), "it has peepholes"),
        (model("GRU", *of_cell(3), hidden_size=2), "its linear_before_reset is 0"),
        (model("LSTM", [(5, 3, 4)], [numbers(1, 8, 4), numbers(1, 6, 2)], hidden_size=2), "its R has shape (1, 6, 2)"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_is_refused_has_a_reason(made, reason):
    assert reason in refused(made)


def test_what_nobody_reads_is_no_output():
    net = from_model(model("Split", [(2, 4)], outputs=2, axis=1, num_outputs=2), "model", Given()).net
    assert [layer.type for layer in net.layers] == ["Input", "Slice", "Silence"]
    assert net.layers[2].bottom == net.layers[1].top[1:]
