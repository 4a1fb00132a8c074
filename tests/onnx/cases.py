"""ONNX's own tests of single nodes, whose data take seconds to be computed: once for all tests."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any


@cache
def node_cases() -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX computes what it expects, infinities too
        return load_model_tests(kind="node")
