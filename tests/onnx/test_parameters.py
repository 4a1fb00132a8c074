"""What of an ONNX file is trained: parameters, each once; constants never; what is computed from both, by layers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

from onnx import helper as h
from onnx import numpy_helper

import minidnn
from minidnn.errors import InvalidInput
from minidnn.onnx import InvalidModel, read

random = np.random.default_rng(0)


def file(tmp_path, nodes, inputs, numbers, shape):
    """The path of a model with these nodes, inputs {name: (type, shape)} and initializers."""
    infos = [h.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()]
    given = [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()]
    graph = h.make_graph(nodes, "g", infos, [h.make_tensor_value_info("y", 1, shape)], given)
    path = tmp_path / "m.onnx"
    path.write_bytes(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


def numbers(*shape):
    return random.standard_normal(shape).astype(np.float32)


def trained(net):
    graph = net.graph("TRAIN")
    return {n.tensor_name(p) for n in graph.layers for p in n.parameters if p.learnable and p.lr_mult}


def test_constants_are_frozen_and_no_optimizer_moves_them(tmp_path):
    mask = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    nodes = [h.make_node("Add", ["x", "val_12"], ["a"]), h.make_node("Softmax", ["a"], ["b"]),
             h.make_node("MatMul", ["b", "head.weight"], ["y"])]  # fmt: skip
    path = file(tmp_path, nodes, {"x": (1, [3, 4])}, {"val_12": mask[:3], "head.weight": numbers(4, 5)}, [3, 5])
    with pytest.warns(UserWarning, match=r"frozen, as constants of the file: val_12 \(3x4\)"):
        net, weights = read(path, loss=True)
    assert trained(net) == {"head.w"}
    x, y = numbers(3, 4), np.arange(3, dtype=np.int32)
    for kind in ("AdamW", "LARS"):
        fields = {"weight_decay": 0.5, "momentum": 0.9, "base_lr": 0.1, "max_iter": 3, "type": kind}
        with minidnn.Solver(net, data=(x, y), weights=weights, **fields) as solver:
            solver.step(3)
            np.testing.assert_array_equal(solver.params["a"]["beta"], weights["a/beta"])
            assert not np.array_equal(solver.params["head"]["w"], weights["head/w"])


def test_the_caller_decides_what_is_trained(tmp_path):
    nodes = [h.make_node("Mul", ["x", "val_1"], ["a"]), h.make_node("MatMul", ["a", "w"], ["y"])]
    path = file(tmp_path, nodes, {"x": (1, [2, 4])}, {"val_1": numbers(4), "w": numbers(4, 3)}, [2, 3])
    assert trained(read(path, notes=[])[0]) == {"y.w"}
    assert trained(read(path, trained=["val_1"], notes=[])[0]) == {"a.gamma"}
    assert trained(read(path, trained=lambda name: True, notes=[])[0]) == {"a.gamma", "y.w"}
    with pytest.raises(InvalidInput, match=r"trained: it has no numbers called 'val_2' \(did you mean 'val_1'"):
        read(path, trained=["val_2"])


@pytest.mark.parametrize("turned", [False, True])
def test_a_table_and_a_product_share_a_weight_in_both_orders(tmp_path, turned):
    table = numbers(5, 5 if not turned else 4)
    nodes = [h.make_node("Gather", ["table", "x"], ["a"])]
    nodes += [h.make_node("Transpose", ["table"], ["t"], perm=[1, 0])] if turned else []
    nodes += [h.make_node("MatMul", ["a", "t" if turned else "table"], ["y"])]
    path = file(tmp_path, nodes, {"x": (7, [2, 3])}, {"table": table}, [2, 3, 5])
    net, weights = read(path, loss=True, notes=[])
    assert trained(net) == {"a.w"} and list(weights) == ["a/w"]
    x = np.array([[0, 1, 2], [3, 4, 0]], np.int32)
    with minidnn.Session(net, device="reference") as session:
        (y,) = session.forward({"x": x}).values()
    np.testing.assert_allclose(y, table[x] @ (table.T if turned else table), rtol=1e-5)


def test_a_bias_that_is_a_table_too_is_one_weight(tmp_path):
    nodes = [h.make_node("Add", ["x", "bias"], ["a"]), h.make_node("Reshape", ["bias", "to"], ["b"]),
             h.make_node("Mul", ["a", "b"], ["y"])]  # fmt: skip
    values = {"bias": numbers(4), "to": np.array([1, 4])}
    path = file(tmp_path, nodes, {"x": (1, [2, 4])}, values, [2, 4])
    net, weights = read(path, notes=[])
    assert len(trained(net)) == 1
    x = numbers(2, 4)
    with minidnn.Session(net, device="reference") as session:
        (y,) = session.forward({"x": x}).values()
    np.testing.assert_allclose(y, (x + values["bias"]) * values["bias"], rtol=1e-5)
    assert [value.shape for value in weights.values()] == [(4,)]


def test_what_is_computed_from_parameters_is_computed_or_refused_by_name(tmp_path):
    nodes = [h.make_node("Exp", ["w.weight"], ["e"]), h.make_node("MatMul", ["x", "e"], ["y"])]
    values = {"w.weight": numbers(4, 3)}
    net, _ = read(file(tmp_path, nodes, {"x": (1, [2, 4])}, values, [2, 3]), trained=["w.weight"], notes=[])
    x = numbers(2, 4)
    with minidnn.Session(net, device="reference") as session:
        (y,) = session.forward({"x": x}).values()
    np.testing.assert_allclose(y, x @ np.exp(values["w.weight"]), rtol=1e-5)
    nodes = [h.make_node("Exp", ["w.weight"], ["e"]), h.make_node("Conv", ["x", "e"], ["y"])]
    path = file(tmp_path, nodes, {"x": (1, [1, 2, 5, 5])}, {"w.weight": numbers(3, 2, 3, 3)}, [1, 3, 3, 3])
    with pytest.raises(InvalidModel, match="node 1, Conv: its weight, 'e', is computed as the net runs"):
        read(path, trained=["w.weight"])
    nodes = [h.make_node("RandomUniformLike", ["c"], ["r"]), h.make_node("Mul", ["x", "r"], ["y"])]
    path = file(tmp_path, nodes, {"x": (1, [2, 4])}, {"c": numbers(4)}, [2, 4])
    with pytest.raises(InvalidModel, match="RandomUniformLike: it draws new random numbers in each run"):
        read(path)


def test_a_constant_that_is_added_and_subtracted_is_two(tmp_path):
    nodes = [h.make_node("Sub", ["x", "c"], ["a"]), h.make_node("Relu", ["a"], ["b"]),
             h.make_node("Add", ["b", "c"], ["y"])]  # fmt: skip
    c, x = numbers(4), numbers(2, 4)
    net, _ = read(file(tmp_path, nodes, {"x": (1, [2, 4])}, {"c": c}, [2, 4]), notes=[])
    with minidnn.Session(net, device="reference") as session:
        (y,) = session.forward({"x": x}).values()
    np.testing.assert_allclose(y, np.maximum(x - c, 0) + c, rtol=1e-5)


def test_free_lengths_and_labels_of_each_token(tmp_path):
    nodes = [h.make_node("Gather", ["table", "x"], ["a"]), h.make_node("MatMul", ["a", "w"], ["y"])]
    values = {"table": numbers(9, 4), "w": numbers(4, 6)}
    path = file(tmp_path, nodes, {"x": (7, ["N", "T"])}, values, ["N", "T", 6])
    for given in ({"batch": 2, "lengths": {"T": 3}}, {"shapes": {"x": (2, 3)}}):
        net, _ = read(path, loss=True, notes=[], **given)
        shapes = {b.name: b.tensor.shape for b in net.graph("TRAIN").blobs}
        assert shapes["x"] == shapes["label"] == (2, 3) and shapes["y"] == (2, 3, 6)
    with pytest.raises(InvalidModel, match=r"axis 1 \(T\) has no length; give one by lengths=\{'T': N\}, or shapes"):
        read(path)
    with pytest.raises(InvalidModel, match=r"lengths: it has no free axis 'S'"):
        read(path, lengths={"S": 3})
