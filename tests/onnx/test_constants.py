"""What is computed as a file is read: as ONNX's own tests of its operators say, within bounds, or refused in words."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

import onnx

from minidnn.onnx.constants import FOLDED, Budget, fold
from minidnn.onnx.node import Node, Refused
from tests.onnx.cases import node_cases

h = onnx.helper


@cache
def cases():
    """operator -> the models of one node of it in ONNX's own tests, with their data."""
    result: dict[str, list] = {}
    for case in node_cases():
        if len(case.model.graph.node) == 1:
            result.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return result


def compute(proto, inputs, version=21, size=0):
    return fold(Node(proto, version, "n"), inputs, Budget(size))


def arrays(values):
    """The values as arrays; None if one is a sequence, or nothing."""
    result = [onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in values]
    return [np.asarray(v) for v in result] if all(isinstance(v, np.ndarray | np.generic) for v in result) else None


@pytest.mark.parametrize("operator", sorted(FOLDED))
def test_cases_of_an_operator(operator):
    """Each computes the expected numbers, or is refused with a reason."""
    computed = 0
    for case in cases()[operator]:
        (proto,) = case.model.graph.node
        names = [v.name for v in case.model.graph.input]
        for inputs, outputs in case.data_sets:
            given, wanted = arrays(inputs), arrays(outputs)
            if given is None or wanted is None:
                continue
            known = dict(zip(names, given, strict=True))
            try:
                ours = compute(proto, [known.get(n) for n in proto.input], case.model.opset_import[0].version)
            except Refused as reason:
                assert str(reason), case.name
                continue
            computed += 1
            for mine, theirs in zip(ours, wanted, strict=True):
                assert mine.shape == theirs.shape and mine.dtype == theirs.dtype, case.name
                np.testing.assert_allclose(
                    mine.astype(np.float64), theirs.astype(np.float64), rtol=1e-5, atol=1e-6, err_msg=case.name
                )
    assert computed


I64 = np.int64
BILLION = np.array([10**9, 4], I64)
ONE = np.ones(1, np.float32)
BOMBS = [
    (h.make_node("Range", ["a", "b", "c"], ["y"]), [np.array(0, I64), np.array(5 * 10**8, I64), np.array(1, I64)]),
    (h.make_node("Range", ["a", "b", "c"], ["y"]), [np.float32(0), np.float32(1e30), np.float32(1e-30)]),
    (h.make_node("Expand", ["a", "b"], ["y"]), [ONE, np.array([2**62], I64)]),
    (h.make_node("Expand", ["a", "b"], ["y"]), [np.ones(0, np.float32), np.array([2**62, 2**62, 0], I64)]),
    (h.make_node("ConstantOfShape", ["a"], ["y"]), [BILLION]),
    (h.make_node("Tile", ["a", "b"], ["y"]), [ONE, BILLION[:1]]),
    (h.make_node("Pad", ["a", "b"], ["y"]), [ONE, BILLION]),
    (h.make_node("OneHot", ["a", "b", "c"], ["y"]), [np.zeros(4, I64), BILLION[:1], np.zeros(2, np.float32)]),
    (h.make_node("Add", ["a", "b"], ["y"]), [np.ones((30000, 1), I64), np.ones((1, 30000), I64)]),
    (h.make_node("MatMul", ["a", "b"], ["y"]), [np.ones((4000, 4000), np.float32)] * 2),
    (h.make_node("GatherND", ["a", "b"], ["y"]), [np.ones((9, 9000), np.float32), np.zeros((90000, 1), I64)]),
    (h.make_node("Gather", ["a", "b"], ["y"]), [np.ones((9, 9000), np.float32), np.zeros(90000, I64)]),
]


@pytest.mark.parametrize(("proto", "inputs"), BOMBS, ids=[p.op_type for p, _ in BOMBS])
def test_no_node_takes_more_than_the_budget(proto, inputs):
    with pytest.raises(Refused, match=r"costs \d+ bytes, and|would have the shape|too large"):
        compute(proto, inputs)


def test_nodes_share_a_budget_in_proportion_to_the_file():
    proto, shape = h.make_node("ConstantOfShape", ["a"], ["y"]), [np.array([1000, 1000], I64)]

    def computed(size):
        budget, count = Budget(size), 0
        with pytest.raises(Refused):
            while True:
                fold(Node(proto, 21, "n"), shape, budget)
                count += 1
        return count

    assert 50 < computed(0) < 100
    assert computed(10_000_000) == computed(0) + 20


def test_views_cost_nothing():
    budget = Budget(0)
    x = np.ones((1000, 1000), np.float32)
    for _ in range(10_000):
        (x,) = fold(Node(h.make_node("Transpose", ["x"], ["y"]), 21, "n"), [x], budget)
    assert budget.left == budget.all


WRONG = [
    ("Reshape", [np.ones(6), np.array([7], I64)], {}, "cannot reshape array of size 6"),
    ("Reshape", [np.ones(6), np.array([0, 0, 6], I64)], {}, "0 means the axis of its input"),
    ("Reshape", [np.ones(6), np.array([-2, 3], I64)], {}, r"its shape is \[-2, 3\]"),
    ("Reshape", [np.ones(6), np.ones(300, I64)], {}, "300 entries"),
    ("Gather", [np.ones(1), np.array(5, I64)], {}, "index 5 is out of an axis of 1"),
    ("Gather", [np.ones(1), np.array(-2, I64)], {}, "index -2 is out of an axis of 1"),
    ("Gather", [np.ones(1), np.array(0.5)], {}, "whole numbers are needed"),
    ("Div", [np.ones(2, I64), np.array([1, 0], I64)], {}, "divides whole numbers by 0"),
    ("Mod", [np.ones(2, I64), np.array([1, 0], I64)], {}, "divides whole numbers by 0"),
    ("Pow", [np.ones(1, I64) * 2, np.array([-1], I64)], {}, "negative powers"),
    ("Add", [np.ones(3), np.ones(4)], {}, "do not fit"),
    ("Add", [np.ones(3), np.ones(3, np.float32)], {}, "float64 and float32"),
    ("Cast", [np.array([np.nan])], {"to": 7}, "nan to nan into int64"),
    ("Cast", [np.array([3e9])], {"to": 6}, "into int32"),
    ("Cast", [np.ones(1)], {"to": 8}, "type"),
    ("Cast", [np.ones(1)], {"to": 999}, "no type of number 999"),
    ("Range", [np.array(0), np.array(5), np.array(0)], {}, "in steps of 0"),
    ("Range", [np.float32(0), np.float32("nan"), np.float32(1)], {}, "from 0.0 to nan"),
    ("Squeeze", [np.ones((2, 3)), np.array([0])], {}, "do not fit"),
    ("Unsqueeze", [np.ones((2, 3)), np.array([9])], {}, "axis 9 does not exist among 3"),
    ("Concat", [np.ones((2, 3)), np.ones(4)], {"axis": 0}, "do not fit"),
    ("Slice", [np.ones(4), np.array([0]), np.array([4]), np.array([0]), np.array([0])], {}, "do not fit"),
    ("Split", [np.ones(4), np.array([1, 1])], {}, "of an axis of 4"),
    ("RandomNormal", [], {"shape": [2]}, "are random"),
    ("Loop", [], {}, "without branches and loops"),
    ("Det", [np.eye(2)], {}, "minidnn does not evaluate this operator on constants"),
]


@pytest.mark.parametrize(("operator", "inputs", "attributes", "reason"), WRONG)
def test_wrong_constants_are_refused(operator, inputs, attributes, reason):
    names = [f"x{i}" for i in range(len(inputs))]
    with pytest.raises(Refused, match=reason):
        compute(h.make_node(operator, names, ["y", "z"][: 1 + (operator == "Split")], **attributes), inputs)


def test_whole_numbers_are_divided_towards_zero():
    a, b = np.array([7, -7, 7, -7, -6]), np.array([2, 2, -2, -2, 3])
    (y,) = compute(h.make_node("Div", ["a", "b"], ["y"]), [a, b])
    assert y.tolist() == [3, -3, -3, 3, -2]
