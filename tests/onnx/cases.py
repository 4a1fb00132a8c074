"""ONNX's own tests of single nodes, whose data take seconds to be computed: once for all processes that run tests, and
for later runs."""

from __future__ import annotations

import fcntl
import pickle
import warnings
from functools import cache
from typing import Any

from tests.support.paths import ROOT

KEPT = ROOT / ".pytest_cache"


@cache
def node_cases() -> list[Any]:
    import onnx

    KEPT.mkdir(exist_ok=True)
    file = KEPT / f"onnx_node_cases-{onnx.__version__}.pickle"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            made = file.with_suffix(".made")
            made.write_bytes(pickle.dumps(_computed()))
            made.replace(file)
    return pickle.loads(file.read_bytes())


def _computed() -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX computes what it expects, infinities too
        return load_model_tests(kind="node")
