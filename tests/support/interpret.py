"""The plainest machine: it runs a program's ops one after another, each tensor in an array of its own.

Arrays are poisoned until they are written. While an op runs, arrays that it only reads are locked. Every pair that an
op declares in place is also run in place, and must give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from minidnn.backends.reference import KERNELS
from minidnn.program import Op, Program, Tensor

Values = dict[str, np.ndarray]


def run(program: Program, values: Mapping[str, np.ndarray], real: str = "float32") -> Values:
    """All tensors' final values by name. values: inputs and persistent tensors. real: the dtype to use for float32."""
    program.check()
    missing = [t.name for t in (*program.inputs, *program.persistent) if t.name not in values]
    assert not missing, f"no values for {missing}"
    return run_ops(program.ops, values, real)


def run_ops(ops: Iterable[Op], values: Mapping[str, np.ndarray], real: str = "float32") -> Values:
    held = {
        name: np.array(array, real if np.asarray(array).dtype.kind == "f" else None) for name, array in values.items()
    }
    for op in ops:
        for t in op.writes:
            if t not in op.reads:
                held[t.name] = _poisoned(t, real)
        before = {t.name: held[t.name].copy() for t in op.reads}
        _call(op, held)
        for read, write in op.inplace:
            _in_place(op, read, write, before, held, real)
    return held


def _poisoned(t: Tensor, real: str) -> np.ndarray:
    if t.dtype == "float32":
        return np.full(t.shape, np.nan, real)
    return np.full(t.shape, 0xAB, t.dtype)


def _call(op: Op, held: Mapping[str, np.ndarray]) -> None:
    written = {t.name for t in op.writes}
    for t in op.reads:
        held[t.name].flags.writeable = t.name in written
    KERNELS[op.kind](op.attrs, [held[t.name] for t in op.reads], [held[t.name] for t in op.writes])
    for t in op.reads:
        held[t.name].flags.writeable = True
    for t in op.writes:
        assert held[t.name].shape == t.shape
        assert not np.isnan(held[t.name]).any(), f"{op.name} left {t.name} unwritten"


def _in_place(op: Op, read: Tensor, write: Tensor, before: Values, apart: Values, real: str) -> None:
    again = {t.name: before[t.name].copy() if t.name in before else _poisoned(t, real) for t in op.tensors}
    again[write.name] = again[read.name].reshape(write.shape)
    KERNELS[op.kind](op.attrs, [again[t.name] for t in op.reads], [again[t.name] for t in op.writes])
    for t in op.writes:
        assert np.array_equal(again[t.name], apart[t.name]), f"{op.name} in place on {read.name} is another {t.name}"
