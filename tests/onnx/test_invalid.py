"""Models that are none, or not as ONNX says: each is refused in a line that names the file."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

import onnx

from tests.fuzz.kind import command

h, numpy = onnx.helper, onnx.numpy_helper.from_array
node = h.make_node
RELU = [node("Relu", ["x"], ["y"])]
W = numpy(np.ones(4, np.float32), "w")
K = numpy(np.ones((1, 1, 2, 2), np.float32), "w")
ADD, CONV = [node("Add", ["x", "w"], ["y"])], (1, 1, 4, 4)


def model(nodes, shape=(1, 4), *values, versions=((17, ""),), kind=1, output="y", **more):
    given = [h.make_tensor_value_info("x", kind, shape)]
    graph = h.make_graph(nodes, "g", given, [h.make_tensor_value_info(output, 1, [1])], initializer=values, **more)
    opsets = [h.make_opsetid(domain, version) for version, domain in versions]
    return h.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def tensor(**fields):
    return onnx.TensorProto(name="w", **fields)


def integers(*values, name="s"):
    return numpy(np.array(values, np.int64), name)


def branches(count):
    """An If within an If, and so on."""
    info = h.make_tensor_value_info("t", 1, [1, 4])
    graph = h.make_graph([node("Relu", ["x"], ["t"])], "g", [], [info])
    for _ in range(count):
        inner = node("If", ["c"], ["t"], then_branch=graph, else_branch=graph)
        graph = h.make_graph([inner], "g", [], [info])
    return [node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)]


SPARSE = onnx.SparseTensorProto(values=W, indices=integers(0, 1, 2, 3), dims=[9])
CASES = {
    "a circle": (model([node("Relu", ["z"], ["y"]), node("Relu", ["y"], ["z"])]), "topologically sorted"),
    "a name twice": (model(RELU * 2), "single static assignment"),
    "an initializer twice": (model(ADD, (1, 4), W, W), "not unique"),
    "an input that is not there": (model([node("Relu", ["nothing"], ["y"])]), "'nothing'"),
    "no input": (model([node("Relu", [], ["y"])]), "input size 0"),
    "an output of nobody": (model(RELU, output="z"), "'z' is not an output of any node"),
    "a length below zero": (model(RELU, (1, -5)), "axis 1"),
    "a length of 2^62": (model(RELU, (1, 2**62)), "at most 2147483647, got 4611686018427387904"),
    "3,000 axes": (model(RELU, (1,) * 3000), "at most 32 axes, got 3000"),
    "a text as a number": (model([node("Softmax", ["x"], ["y"], axis="one")]), "attribute type"),
    "strides of 0": (model([node("Conv", ["x", "w"], ["y"], strides=[0, 0])], CONV, K), "must be positive"),
    "strides of 2^62": (model([node("Conv", ["x", "w"], ["y"], strides=[2**62, 1])], CONV, K), "at most 2147483647"),
    "no groups": (model([node("Conv", ["x", "w"], ["y"], group=0)], CONV, K), "group: expected at least 1, got 0"),
    "version 999": (model(RELU, versions=[(999, "")]), "its operators are of version 999"),
    "two versions": (model(RELU, versions=[(17, ""), (13, "")]), "the versions 13 and 17"),
    "no version": (model(RELU, versions=[]), "opset_import"),
    "another domain": (model([node("Relu", ["x"], ["y"], domain="a")], versions=[(17, ""), (1, "a")]), "domain 'a'"),
    "a torn file": (model(RELU)[:-7], "not a valid ONNX model: "),
    "zeros": (bytes(100), "not a valid ONNX model: "),
    "too few numbers": (model(ADD, (1, 4), tensor(data_type=1, dims=[4], float_data=[1, 2])), "too small"),
    "texts": (model(ADD, (1, 4), tensor(data_type=8, dims=[1], string_data=[b"a"])), "'w': it holds texts"),
    "complex numbers": (model(ADD, (1, 4), numpy(np.ones(4, np.complex64), "w")), "'w': it holds complex numbers"),
    "type 77": (model(ADD, (1, 4), tensor(data_type=77, dims=[1], raw_data=b"1")), "no type of number 77"),
    "an input of texts": (model(RELU, kind=8), "input 'x' holds texts"),
    "a sparse initializer": (model(ADD, sparse_initializer=[SPARSE]), "initializer 'w' is sparse"),
    "a branch": (model(branches(0), (1, 4), numpy(np.array(True), "c")), "without branches and loops"),
    "branches of branches": (model(branches(12), (1, 4), numpy(np.array(True), "c")), "without branches and loops"),
    "a shape of two zeros": (
        model([node("Reshape", ["x", "s"], ["y"])], (1, 4), integers(0, -1, 0)), "do not fit together",
    ),
    "a shape of a million": (
        model([node("Reshape", ["x", "s"], ["y"])], (1, 4), integers(*[1] * 10**6)), "1000000 entries",
    ),
    "an index out of its axis": (
        model([node("Gather", ["x", "s"], ["y"], axis=1)], (1, 4), numpy(np.array(7), "s")), "its places are 7",
    ),
    "an axis that is not there": (
        model([node("Unsqueeze", ["x", "s"], ["y"])], (1, 4), integers(9)), "axis 9",
    ),
    "parts of more than there is": (
        model([node("Split", ["x", "s"], ["y", "z"], axis=1)], (1, 4), integers(3, 3)), "[3, 3]",
    ),
    "terminal commands": (model([node("Det", ["x"], ["y"], name="\x1b[2J\n")], (4, 4)), r"Det '\x1b[2J\n': "),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_model_that_is_not_as_onnx_says_is_refused(name, tmp_path, monkeypatch):
    content, reason = CASES[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(content)
    ended = command("convert", "m.onnx", "net.yaml")
    assert ended.code == 2 and ended.err.startswith("minidnn: m.onnx: ") and reason in ended.err
    assert len(ended.err.splitlines()) == 1 and not (tmp_path / "net.yaml").exists()
