"""ONNX's own tests of single nodes, of the operators that minidnn reads: each passes, or is refused with a reason."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed (the extra `onnx`)")

from minidnn.onnx import InvalidModel
from minidnn.onnx.backend import prepare
from minidnn.onnx.ops import OPS
from tests.onnx.cases import node_cases

FLOATS = {1, 6, 7}  # float32; int32 and int64, which are shapes and indices


@cache
def cases():
    """operator -> the test cases of models whose only operators minidnn reads, in float32."""
    found: dict[str, list] = {}
    for case in node_cases():
        kinds = {v.type.tensor_type.elem_type for v in case.model.graph.input}
        operators = [n.op_type for n in case.model.graph.node]
        if kinds <= FLOATS and set(operators) <= {*OPS, "Constant", "Shape"}:
            found.setdefault(operators[-1], []).append(case)
    return found


def array(value) -> np.ndarray:
    """The array; cases of casts are given as messages."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def outcome(case) -> str:
    """ "passed", or the reason why it is refused. Raises AssertionError for wrong numbers."""
    try:
        model = prepare(case.model, "reference")
        for inputs, outputs in case.data_sets:
            for ours, theirs in zip(model.run([array(v) for v in inputs]), map(array, outputs), strict=True):
                assert ours.shape == theirs.shape
                np.testing.assert_allclose(ours, theirs, rtol=case.rtol, atol=max(case.atol, 1e-6))
    except InvalidModel as refused:
        return str(refused)
    return "passed"


@pytest.mark.parametrize("operator", sorted(OPS))
def test_cases_of_an_operator(operator, record_property):
    found = Counter(outcome(case) for case in cases().get(operator, []))
    record_property("said", f"{operator}: {found.pop('passed', 0)} passed, {sum(found.values())} refused")
    assert all(": " in reason for reason in found)
