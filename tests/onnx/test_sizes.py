"""Reading takes time in proportion to the file."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

import onnx

from minidnn.onnx import InvalidModel, read

h = onnx.helper


def info(name, *shape):
    return h.make_tensor_value_info(name, 1, shape)


def chain(n, operator="Relu", **attributes):
    nodes = [h.make_node(operator, [f"x{i}"], [f"x{i + 1}"], **attributes) for i in range(n)]
    return nodes, [info("x0", 4, 4)], info(f"x{n}", 4, 4), []


def inputs(n):
    nodes = [h.make_node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(n)]
    return nodes, [info(f"x{i}", 1, 4) for i in range(n)], info("y0", 1, 4), []


def names(n):
    """Names without a letter of ASCII, of which the same names of layers are made."""
    greek = [f"\N{GREEK SMALL LETTER ALPHA}{chr(0x3B1 + i % 20)}{chr(0x4E00 + i)}" for i in range(n + 1)]
    nodes = [h.make_node("Relu", [greek[i]], [greek[i + 1]]) for i in range(n)]
    return nodes, [info(greek[0], 1, 4)], info(greek[n], 1, 4), []


def slices(n):
    nodes = [h.make_node("Slice", ["x", f"s{i}", f"e{i}", "axis"], [f"y{i}"]) for i in range(n)]
    given = {"axis": 1, **{f"s{i}": i for i in range(n)}, **{f"e{i}": i + 1 for i in range(n)}}
    values = [onnx.numpy_helper.from_array(np.array([v]), name) for name, v in given.items()]
    return nodes, [info("x", 1, n)], info("y0", 1, 1), values


def constants(n):
    nodes = [h.make_node("Add", [f"c{i}", "c0"], [f"c{i + 1}"]) for i in range(n)]
    nodes.append(h.make_node("Mul", ["x", f"c{n}"], ["y"]))
    return nodes, [info("x", 1, 4)], info("y", 1, 4), [onnx.numpy_helper.from_array(np.ones(1, np.float32), "c0")]


def lines(path, parts):
    """How many lines of minidnn's Python run as the file is read."""
    nodes, given, output, values = parts
    graph = h.make_graph(nodes, "g", given, [output], initializer=values)
    path.write_bytes(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString())
    count = 0

    def trace(frame, event, what):
        nonlocal count
        count += event == "line"
        return trace if "minidnn" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        net, _ = read(path)
    finally:
        sys.settrace(before)
    assert net.layers
    return count


@pytest.mark.parametrize("parts", [chain, inputs, names, slices, constants])
def test_twice_the_nodes_take_twice_the_work(tmp_path, parts):
    lines(tmp_path / "m.onnx", parts(2))  # the first time imports
    few, more = lines(tmp_path / "m.onnx", parts(60)), lines(tmp_path / "m.onnx", parts(120))
    assert more < 2.1 * few


def test_a_long_chain_of_moves_is_read(tmp_path):
    assert lines(tmp_path / "m.onnx", chain(1100, "Transpose", perm=[1, 0])) > 1100


def test_a_message_has_a_hundred_lines_at_most(tmp_path):
    with pytest.raises(InvalidModel) as refused:
        lines(tmp_path / "m.onnx", chain(300, "Det"))
    assert len(str(refused.value).splitlines()) == 1  # the others read what is lost
    with pytest.raises(InvalidModel) as refused:
        nodes = [h.make_node("Det", ["x"], [f"y{i}"]) for i in range(300)]
        nodes.append(h.make_node("Sum", [f"y{i}" for i in range(300)], ["z"]))
        lines(tmp_path / "m.onnx", (nodes, [info("x", 4, 4)], info("z", 1), []))
    *shown, rest = str(refused.value).splitlines()
    assert len(shown) == 100 and rest == "and 200 more errors"
