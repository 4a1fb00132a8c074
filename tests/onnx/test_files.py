"""Nets written as ONNX and read back; files that are none."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

import onnx
from onnx.reference import ReferenceEvaluator

import minidnn
from minidnn.nets.net import Net
from minidnn.nets.scores import with_scores
from minidnn.onnx import InvalidModel, NotExported, read, write
from minidnn.onnx.package import NoOnnx
from minidnn.zoo.swin import SwinTiny

MIXED = """
name: mixed
layer:
- {name: data, type: Input, top: data, input_param: {shape: {dim: [3, 4, 9, 11]}}}
- {name: conv, type: Convolution, bottom: data, top: conv, convolution_param: {num_output: 6, kernel_size: 3, group: 2,
   stride: 2, weight_filler: {type: msra}}}
- {name: bn, type: BatchNorm, bottom: conv, top: conv}
- {name: scale, type: Scale, bottom: conv, top: conv, scale_param: {bias_term: true}}
- {name: relu, type: ReLU, bottom: conv, top: conv, relu_param: {negative_slope: 0.1}}
- {name: lrn, type: LRN, bottom: conv, top: lrn}
- {name: within, type: LRN, bottom: conv, top: within, lrn_param: {norm_region: WITHIN_CHANNEL, local_size: 3}}
- {name: max, type: Pooling, bottom: lrn, top: max, pooling_param: {kernel_size: 3, stride: 2}}
- {name: ave, type: Pooling, bottom: within, top: ave, pooling_param: {pool: AVE, kernel_size: 3, stride: 2, pad: 1}}
- {name: one, type: Convolution, bottom: ave, top: one, convolution_param: {num_output: 6, kernel_size: 2,
   weight_filler: {type: msra}}}
- {name: many, type: Concat, bottom: [one, one], top: many}
- {name: half, type: Convolution, bottom: many, top: half, convolution_param: {num_output: 6, kernel_size: 1,
   weight_filler: {type: msra}}}
- {name: sum, type: Eltwise, bottom: [half, one], top: sum, eltwise_param: {coeff: [1, -0.5]}}
- {name: most, type: Eltwise, bottom: [sum, one], top: most, eltwise_param: {operation: MAX}}
- {name: drop, type: Dropout, bottom: most, top: most}
- {name: flat, type: Flatten, bottom: most, top: flat}
- {name: ip, type: InnerProduct, bottom: flat, top: ip, inner_product_param: {num_output: 5,
   weight_filler: {type: xavier}}}
- {name: prob, type: Softmax, bottom: ip, top: prob}
- {name: label, type: Input, top: label, input_param: {shape: {dim: 3}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""


def weights_of(net: Net) -> dict[str, np.ndarray]:
    """Random weights in Caffe's shapes; running variances are positive."""
    random = np.random.default_rng(0)
    found = {}
    for node in net.graph("TEST").layers:
        for p in node.parameters:
            value = random.standard_normal(p.blob_shape or p.shape).astype(np.float32)
            found[f"{node.name}/{p.name}"] = np.abs(value) + 0.5 if p.name in ("variance_sum", "factor") else value
    return found


def outputs(net, weights, x):
    with minidnn.Session(net, device="reference") as session:
        for name, value in weights.items():
            layer, blob = name.rsplit("/", 1)
            session.params[layer][blob] = value
        return session.forward(x if isinstance(x, dict) else {"data": x})


@pytest.fixture(scope="module", params=[17, 23])
def written(request, tmp_path_factory):
    net = Net.from_text(MIXED)
    weights = weights_of(net)
    path = tmp_path_factory.mktemp("onnx") / "mixed.onnx"
    write(net, weights, path, request.param)
    return net, weights, path, np.random.default_rng(1).standard_normal((3, 4, 9, 11)).astype(np.float32)


def test_onnxruntime_computes_the_same(written):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (the extra `onnx-test`)")
    net, weights, path, x = written
    ours = outputs(net, weights, x)
    (prob,) = ort.InferenceSession(str(path)).run(["prob.y"], {"data": x})
    np.testing.assert_allclose(ours["prob"], prob, rtol=1e-4, atol=1e-6)


def test_what_was_written_is_read_again(written):
    net, weights, path, x = written
    again, found = read(path, batch=3)
    ours = outputs(again, found, x)["prob"]
    np.testing.assert_allclose(ours, outputs(net, weights, x)["prob"], rtol=1e-5, atol=1e-7)


TODAY = """
name: today
layer:
- {name: data, type: Input, top: data, input_param: {shape: {dim: [3, 4, 9, 11]}}}
- {name: pad, type: Pad, bottom: data, top: pad, pad_param: {before: [1, 0], after: 2}}
- {name: group, type: GroupNorm, bottom: pad, top: group, group_norm_param: {num_groups: 2, eps: 0.1, affine: false}}
- {name: rms, type: RMSNorm, bottom: group, top: rms, rms_norm_param: {axis: 1}}
- {name: erf, type: Erf, bottom: rms, top: erf}
- {name: sigmoid, type: HardSigmoid, bottom: erf, top: sigmoid, hard_sigmoid_param: {alpha: 0.4}}
- {name: channels, type: LayerNorm, bottom: sigmoid, top: channels, layer_norm_param: {axis: 1, num_axes: 1,
   affine: false}}
- {name: swish, type: HardSwish, bottom: channels, top: swish}
"""


@pytest.mark.parametrize("opset", [17, 23])
def test_layers_of_today_s_nets_go_and_come_back(opset, tmp_path):
    net, x = Net.from_text(TODAY), np.random.default_rng(1).standard_normal((3, 4, 9, 11)).astype(np.float32)
    write(net, {}, tmp_path / "today.onnx", opset)
    again, found = read(tmp_path / "today.onnx", batch=3)
    np.testing.assert_allclose(outputs(again, found, x)["swish"], outputs(net, {}, x)["swish"], rtol=1e-5, atol=1e-6)


def kinds(path):
    return [node.op_type for node in onnx.load(path).graph.node]


def agree(net, x, path, weights=None):
    """Assert that ONNX Runtime, and the net read again, compute what the net does."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (the extra `onnx-test`)")
    (want,) = outputs(net, weights or {}, x).values()
    again, found = read(path, batch=len(next(iter(x.values()))))
    np.testing.assert_allclose(next(iter(outputs(again, found, x).values())), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ort.InferenceSession(str(path)).run(None, x)[0], want, rtol=1e-4, atol=1e-6)
    return [node.layer for node in again.graph("TEST").layers if node.bottoms]


def tokens(bottoms, layers):
    inputs = [
        f"- {{name: x{i}, type: Input, top: x{i}, input_param: {{shape: {{dim: {[*s]}}}}}}}"
        for i, s in enumerate(bottoms)
    ]
    net, random = Net.from_text("\n".join(["name: a", "layer:", *inputs, *layers])), np.random.default_rng(1)
    return net, {f"x{i}": random.standard_normal(s).astype(np.float32) for i, s in enumerate(bottoms)}


@pytest.mark.parametrize(
    ("fields", "plain"),
    [
        ("num_heads: 4, num_kv_heads: 2", True),
        ("num_heads: 4, num_kv_heads: 2, causal: true", True),
        ("num_heads: 2, num_kv_heads: 1, window: 2, scale: 0.3", False),
        ("num_heads: 2, num_kv_heads: 1, window: 2, causal: true", False),
    ],
)
@pytest.mark.parametrize("bottoms", [[(3, 5, 32)], [(3, 5, 16), (3, 6, 8), (3, 6, 8)]], ids=len)
@pytest.mark.parametrize("opset", [None, 22, 17])
def test_attention_goes_and_comes_back(fields, plain, bottoms, opset, tmp_path):
    names = ", ".join(f"x{i}" for i in range(len(bottoms)))
    it = f"- {{name: it, type: Attention, bottom: [{names}], top: it, attention_param: {{{fields}}}}}"
    net, x = tokens(bottoms, [it])
    write(net, {}, tmp_path / "it.onnx", opset)
    (*_, it) = agree(net, x, tmp_path / "it.onnx")
    if opset is None:
        node = next(n for n in onnx.load(tmp_path / "it.onnx").graph.node if n.op_type == "Attention")
        alike = len(bottoms) == 1 or "causal" not in fields
        assert (len(node.input) == 3) == (plain and alike)
        given = net.graph("TEST").layers[-1].layer.param
        assert (it.param.causal, it.param.window) == (given.causal, given.window)


@pytest.mark.parametrize("shape", [(5, 6), (4, 5, 6), (8, 5, 6), (2, 1, 5, 6), (6, 4, 5, 6)], ids=str)
@pytest.mark.parametrize("fields", ["num_kv_heads: 2", "causal: true"])
@pytest.mark.parametrize("opset", [None, 17])
def test_a_learned_bias_of_attention_goes_and_comes_back(shape, fields, opset, tmp_path):
    layers = [
        f"- {{name: bias, type: Parameter, top: bias, parameter_param: {{shape: {{dim: {[*shape]}}}}}}}",
        "- {name: it, type: Attention, bottom: [x0, x1, x1, bias], top: it, "
        f"attention_param: {{num_heads: 4, {fields}}}}}",
    ]
    width = 8 if "kv" in fields else 16
    net, x = tokens([(6, 5, 16), (6, 6, width)], layers)
    weights = {"bias/blob": np.random.default_rng(2).standard_normal(shape).astype(np.float32)}
    write(net, weights, tmp_path / "it.onnx", opset)
    made = onnx.load(tmp_path / "it.onnx").graph
    assert [i.name for i in made.input] == ["x0", "x1"] and "bias.blob" in [i.name for i in made.initializer]
    agree(net, x, tmp_path / "it.onnx", weights)


@pytest.mark.parametrize("opset", [None, 17])
def test_shifted_windows_go_and_come_back(opset, tmp_path):
    net = SwinTiny(batch=3, size=32, depths=(2, 2), width=8, heads=(2, 4), window=4)
    weights = weights_of(net)
    x = {"data": np.random.default_rng(1).standard_normal((3, 3, 32, 32)).astype(np.float32)}
    write(net, weights, tmp_path / "it.onnx", opset)
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (the extra `onnx-test`)")
    want = outputs(net, weights, x)["head"]
    assert np.abs(ort.InferenceSession(str(tmp_path / "it.onnx")).run(None, x)[0] - want).max() < 1e-4 * abs(want).max()
    again, found = read(tmp_path / "it.onnx", batch=3)
    (got,) = outputs(again, found, x).values()
    assert np.abs(got - want).max() < 1e-4 * abs(want).max()
    made = onnx.load(tmp_path / "it.onnx").graph
    assert [w.name for w in made.initializer if w.name.startswith(("apart", "mask"))] == ["apart.4", "mask.4.2.2.2"]


def test_the_head_of_a_loss_goes_as_an_inner_product(tmp_path):
    layers = [
        "- {name: label, type: Input, top: label, input_param: {shape: {dim: [3, 5]}}}",
        "- {name: it, type: InnerProductWithLoss, bottom: [x0, label], top: loss, "
        "inner_product_param: {num_output: 4, axis: 2}}",
    ]
    net, x = tokens([(3, 5, 8)], layers)
    weights = weights_of(net)
    write(net, weights, tmp_path / "it.onnx")
    assert {w.name: tuple(w.dims) for w in onnx.load(tmp_path / "it.onnx").graph.initializer}["it.bias"] == (4,)
    agree(with_scores(net), x, tmp_path / "it.onnx", weights)


@pytest.mark.parametrize("opset", [None, 17])
def test_layers_share_what_hides_keys_and_the_file_has_no_byte_for_a_pair(opset, tmp_path):
    length = 512
    layers = [
        f"- {{name: a{i}, type: Attention, bottom: {below}, top: a{i}, attention_param: {{num_heads: 1, {fields}}}}}"
        for i, (below, fields) in enumerate(
            [("[x0, x1, x1]", "window: 9"), ("[a0, x1, x1]", "window: 9, causal: true"), ("[a1, x1, x1]", "window: 9")]
        )
    ]
    net, x = tokens([(3, length, 2), (3, length, 2)], layers)
    path = tmp_path / "it.onnx"
    write(net, {}, path, opset)
    assert path.stat().st_size < 8000 and kinds(path).count("Abs") == 2
    agree(net, x, path)


@pytest.mark.parametrize(
    "fields",
    [
        "num_heads: 2, head_dim: 6",
        "num_heads: 1, head_dim: 8, interleaved: true, base: 50",
        "num_heads: 3, head_dim: 4",
    ],
)
@pytest.mark.parametrize("opset", [None, 17])
def test_rotations_go_and_come_back(fields, opset, tmp_path):
    layers = [
        f"- {{name: {top}, type: RotaryEmbedding, bottom: {below}, top: {top}, rotary_embedding_param: {{{fields}}}}}"
        for below, top in (("x0", "one"), ("one", "two"))
    ]
    net, x = tokens([(3, 5, 12)], layers)
    write(net, {}, tmp_path / "it.onnx", opset)
    found = [layer.param for layer in agree(net, x, tmp_path / "it.onnx") if layer.type == "RotaryEmbedding"]
    model = onnx.load(tmp_path / "it.onnx")
    assert len([i for i in model.graph.initializer if i.name.startswith("cos")]) == 1
    assert found == ([] if opset else [node.layer.param for node in net.graph("TEST").layers[1:]])


def test_versions_of_the_operators_that_are_not_written_are_refused(tmp_path):
    net, _ = tokens([(3, 4)], ["- {name: it, type: ReLU, bottom: x0, top: it}"])
    with pytest.raises(NotExported, match="opset 13: files are written in 17 to 23"):
        write(net, {}, tmp_path / "it.onnx", 13)
    write(net, {}, tmp_path / "it.onnx")
    assert onnx.load(tmp_path / "it.onnx").opset_import[0].version == 17


RECURRENT = """
layer:
- {name: data, type: Input, top: data, input_param: {shape: {dim: [5, 3, 2, 2]}}}
- {name: x, type: Permute, bottom: data, top: x, permute_param: {order: [1, 0]}}
"""
STATE = """
- {{name: {0}, type: InnerProduct, bottom: data, top: {0}, inner_product_param: {{num_output: 4}}}}
- {{name: {0}_0, type: Reshape, bottom: {0}, top: {0}_0, reshape_param: {{shape: {{dim: [1, 5, 4]}}}}}}
"""
BACK = "- {{name: {0}.back, type: Permute, bottom: {0}, top: {0}.back, permute_param: {{order: [1, 0, 2]}}}}\n"


@pytest.mark.parametrize("kind, states", [("LSTM", "hc"), ("GRU", "h"), ("LSTM", ""), ("GRU", "")])
def test_recurrent_layers_go_and_come_back(kind, states, tmp_path):
    """As ONNX's evaluator runs them, too."""
    bottoms, tops = (", ".join([first, *(f"{s}_{end}" for s in states)]) for first, end in (("x", "0"), ("it", "T")))
    it = f"- {{name: it, type: {kind}, bottom: [{bottoms}], top: [{tops}], "
    it += f"recurrent_param: {{num_output: 4, expose_hidden: {str(bool(states)).lower()}}}}}\n"
    net = Net.from_text(
        RECURRENT + "".join(map(STATE.format, states)) + it + "".join(map(BACK.format, tops.split(", ")))
    )
    weights, x = weights_of(net), np.random.default_rng(1).standard_normal((5, 3, 2, 2)).astype(np.float32)
    write(net, weights, tmp_path / "it.onnx")
    again, found = read(tmp_path / "it.onnx", batch=5)
    want, got = outputs(net, weights, x), outputs(again, found, x)
    names = [name for name in want if name != "c_T.back"]  # which the evaluator lacks
    theirs = ReferenceEvaluator(str(tmp_path / "it.onnx")).run([f"{name}.y" for name in names], {"data": x})
    assert len(want) == 1 + len(states)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-6)
    for name, value in zip(names, theirs, strict=True):
        np.testing.assert_allclose(value, want[name], rtol=1e-4, atol=1e-5)


def test_breaks_within_a_sequence_do_not_go_to_onnx(tmp_path):
    inputs = "".join(
        f"- {{name: {n}, type: Input, top: {n}, input_param: {{shape: {{dim: {s}}}}}}}\n"
        for n, s in (("x", [3, 2, 4]), ("cont", [3, 2]))
    )
    it = "- {name: it, type: LSTM, bottom: [x, cont], top: it, recurrent_param: {num_output: 4}}"
    net = Net.from_text(f"layer:\n{inputs}{it}")
    with pytest.raises(NotExported, match="layer 'it': ONNX's LSTM has neither cont nor x_static"):
        write(net, weights_of(net), tmp_path / "it.onnx")


@pytest.mark.parametrize(
    "layer",
    [
        "GroupNorm, group_norm_param: {num_groups: 2, eps: 0.1}",
        "InstanceNorm",
        "InstanceNorm, instance_norm_param: {affine: false}",
    ],
)
def test_norms_of_groups_come_back(layer, tmp_path):
    text = f"""
name: norms
layer:
- {{name: data, type: Input, top: data, input_param: {{shape: {{dim: [3, 4, 5, 6]}}}}}}
- {{name: norm, bottom: data, top: norm, type: {layer}}}
"""
    net, x = Net.from_text(text), np.random.default_rng(1).standard_normal((3, 4, 5, 6)).astype(np.float32)
    weights = weights_of(net)
    write(net, weights, tmp_path / "it.onnx")
    again, found = read(tmp_path / "it.onnx", batch=3, trained=("norm.gamma", "norm.beta").__contains__)
    want = outputs(net, weights, x)["norm"]
    assert {k.rpartition("/")[2]: v.tolist() for k, v in found.items()} == {
        k.rpartition("/")[2]: v.tolist() for k, v in weights.items()
    }
    np.testing.assert_allclose(list(outputs(again, found, x).values())[-1], want, rtol=1e-5, atol=1e-6)


def test_a_class_token_goes_to_any_number_of_samples(tmp_path):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (the extra `onnx-test`)")
    text = """
name: tokens
layer:
- {name: data, type: Input, top: data, input_param: {shape: {dim: [3, 4, 5]}}}
- {name: token, type: ClassToken, bottom: data, top: token}
- {name: skip, type: StochasticDepth, bottom: token, top: skip}
"""
    net, x = Net.from_text(text), np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)
    weights, path = weights_of(net), tmp_path / "tokens.onnx"
    write(net, weights, path)
    want = outputs(net, weights, x)["skip"]
    assert (want[:, 0] == weights["token/token"][0]).all()
    for n in (3, 2):
        np.testing.assert_array_equal(ort.InferenceSession(str(path)).run(None, {"data": x[:n]})[0], want[:n])
    again, found = read(path, batch=3, trained=lambda name: name == "token.token")
    np.testing.assert_array_equal(found.pop("token.token/blob"), weights["token/token"])
    assert "Parameter" in {layer.type for layer in again.layers} and not found


def test_a_free_batch_takes_the_number_that_is_given(written):
    again, _ = read(written[2], batch=7)
    assert again.graph("TEST").layers[0].tops[0].tensor.shape == (7, 4, 9, 11)


def test_files_that_are_no_models_are_refused(tmp_path):
    for name, content in (("empty", b""), ("text", b"name: net\n"), ("torn", b"\x08\x08\x12\x05minid")):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(InvalidModel, match=r"\.onnx: not a valid ONNX model: "):
            read(path)


def test_every_operator_without_a_layer_is_named(tmp_path):
    h = onnx.helper
    info = h.make_tensor_value_info
    nodes = [
        h.make_node("Det", ["x"], ["a"], name="first"),
        h.make_node("Relu", ["a"], ["b"]),
        h.make_node("NonZero", ["x"], ["c"]),
    ]
    graph = h.make_graph(nodes, "g", [info("x", 1, [2, 3, 3])], [info("b", 1, [2]), info("c", 7, [3, "k"])])
    path = tmp_path / "m.onnx"
    path.write_bytes(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]).SerializeToString())
    with pytest.raises(InvalidModel) as refused:
        read(path)
    first, second = str(refused.value).splitlines()
    assert "Det 'first': minidnn has no layers for it; it has for Abs" in first and "node 2, NonZero" in second


def test_layers_without_an_operator_are_named(tmp_path):
    net = Net.from_text(MIXED + "- {name: top1, type: Accuracy, bottom: [prob, label], top: top1}\n")
    write(net, weights_of(net), tmp_path / "ok.onnx")  # losses and accuracies are left out

    class Odd(minidnn.layers.base.Layer):
        type = "Odd"

        def shapes(self, bottoms):
            return list(bottoms)

    minidnn.layers.LAYERS["Odd"] = Odd
    try:
        odd = Net.from_text(MIXED + "- {name: odd, type: Odd, bottom: prob, top: odd}\n")
        with pytest.raises(NotExported, match="layer 'odd': ONNX has no operator for Odd"):
            write(odd, weights_of(odd), tmp_path / "odd.onnx")
    finally:
        del minidnn.layers.LAYERS["Odd"]


def test_without_the_package_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "m.onnx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(NoOnnx, match=r"^ONNX files need the package onnx .*pip install 'minidnn\[onnx\]'$"):
        read(tmp_path / "m.onnx")
