"""Kernels that move and combine values, with values stored in 16 bits: the reference's result on the same numbers,
rounded once. (bf16 and fp16 on the CPU are rounded by other code than on a GPU, whose own instructions do it.)"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from minidnn.backends.cuda import (
    activation,
    attention,
    dropout,
    elementwise,
    gather,
    group_norm,
    join,
    matmul,
    move,
    pooling,
    recurrent,
    resize,
    rotary,
    row_norm,
    summary,
)
from minidnn.backends.reference import KERNELS
from minidnn.program import Tensor
from tests.support.cuda import host as cuda_host
from tests.support.cuda.code import ptx
from tests.support.cuda.host import HostCuda
from tests.support.cuda.op_examples import all_examples
from tests.support.cuda.storage import DTYPE, SPACING, narrow, widen
from tests.support.op_examples import Example, expected, run

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to compile CUDA sources for the CPU with"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

KINDS = [
    activation,
    attention,
    dropout,
    elementwise,
    gather,
    group_norm,
    join,
    matmul,
    move,
    pooling,
    recurrent,
    resize,
    rotary,
    row_norm,
    summary,
]
KINDS = sorted(k for module in KINDS for k in module.KINDS)
KINDS += ["broadcast.multiply", "broadcast.add"]
KINDS.remove("prelu.backward_filter")  # a sum: test_reductions.py
KINDS += ["gradient.accumulate", "gradient.total", "scale.forward", "scale.backward_data"]
FROM_BOTTOMS = {  # kind -> what stays float32 where the factor or the constant is not learned, but a bottom
    "broadcast.multiply": ("r2",),
    "broadcast.add": (),
    "broadcast.sum": (),
    "broadcast.sum_products": (),
}
ALL: dict[str, list[Example]] = defaultdict(list)
for _e in all_examples():
    floats = any(t.dtype == "float32" for t in _e.op.tensors)
    kinds = (*KINDS, *FROM_BOTTOMS)
    if _e.op.kind in kinds and floats and sum(t.size for t in _e.op.tensors) < 1 << 16:
        ALL[_e.op.kind].append(_e)
FLOAT = {  # kind -> what stays float32, of its reads and writes
    "gradient.accumulate": ("r0",),
    "gradient.total": ("r0", "w0"),
    "gradient.fill": ("r0",),
    "broadcast.multiply": ("r1", "r2"),  # as they are learned
    "broadcast.add": ("r1",),
    "scale.forward": ("r1", "r2"),
    "scale.backward_data": ("r0",),
    "dropout.factors": ("w0",),
    "group_norm.forward": ("r1", "r2", "w1", "w2"),
    "group_norm.backward": ("r2", "r3", "r4", "w0", "w1"),
    "row_norm.forward": ("r1", "r2", "w1", "w2"),
    "row_norm.backward_data": ("r2", "r3", "r4"),
    "row_norm.backward_filter": ("r2", "r3", "w0", "w1"),
    "attention.forward": ("w1",),
    "argmax.forward": ("w0",),
    "prelu.forward": ("r1",),
    "prelu.backward_data": ("r1",),
    "cast.forward": ("r0",),
    "cast.backward": ("w0",),  # scaled: ("r0", "r1")
}


def stored(e: Example, storage: str, stay: tuple[str, ...] | None = None) -> tuple[Example, Example]:
    """(the example in that format, the same numbers as float32). `stay`: what stays float32, if not FLOAT's"""
    floats = _floats(e) if stay is None else stay
    kept = [t for t in e.op.tensors if t.dtype != "float32" or t.name in floats]
    names = {t: t if t in kept else Tensor(t.name, t.shape, DTYPE[storage]) for t in e.op.tensors}
    op = replace(
        e.op,
        reads=tuple(names[t] for t in e.op.reads),
        writes=tuple(names[t] for t in e.op.writes),
        inplace=tuple((names[a], names[b]) for a, b in e.op.inplace if names[a].dtype == names[b].dtype),
    )
    data = {t: x if t in kept else narrow(x, storage) for t, x in e.data.items()}
    wide = {t: x if t in kept else widen(data[t], storage) for t, x in e.data.items()}
    return Example(e.name, op, {names[t]: x for t, x in data.items()}, e.exact), Example(e.name, e.op, wide)


def _floats(e: Example) -> tuple[str, ...]:
    """The reads and writes that stay float32."""
    if e.op.kind == "cast.backward" and len(e.op.reads) > 1:
        return "r0", "r1"
    if e.op.kind == "cast.forward_multi_tensor":
        return tuple(t.name for t in e.op.reads)
    if e.op.kind == "attention.backward":  # the logarithms of sums
        return (f"r{2 if e.op.attrs.packed else 4}",)
    if e.op.family == "recurrent":  # LSTM's cells
        names = e.op.attrs.named(e.op.reads, e.op.writes)
        return tuple(t.name for name, t in names.items() if name == "cells")
    return FLOAT.get(e.op.kind, ())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("storage", ["bf16", "fp16"])
def test_sixteen_bits(storage, kind):
    device = HostCuda(storage=storage)
    for e in ALL[kind]:
        narrowed, same = stored(e, storage)
        want = expected(KERNELS, same)
        for algorithm in device.algorithms(narrowed.op):
            for together in (False, True):
                got = run(device, narrowed, algorithm, together=together)
                for t, g, w in zip(narrowed.op.writes, got, want, strict=True):
                    if e.op.family == "recurrent":  # a step goes on with the state of the one before as it is stored
                        limit = len(w) * SPACING[storage] * max(float(np.abs(w).max(initial=0)), 1)
                        wide = g if t.dtype == "float32" else widen(g, storage)
                        assert (np.abs(wide - w) <= limit).all(), f"{e.name}: {t.name}"
                        continue
                    if t.dtype != DTYPE[storage]:
                        exact = e.exact or g.dtype.kind != "f"
                        limit = 0 if exact else 2e-5 * max(1.0, float(np.abs(w).max(initial=0)))
                        assert (np.abs(g - w) <= limit).all(), f"{e.name}: {t.name}"
                        continue
                    passes = len(elementwise._passes(len(e.op.reads)))  # at most so many store a result
                    limit = passes * SPACING[storage] * max(float(np.abs(w).max(initial=0)), 1e-3)
                    exact = np.array_equal(g, narrow(w, storage))
                    close = np.abs(widen(g, storage) - w) <= limit
                    assert exact or (not e.exact and close.all()), f"{e.name}: {t.name}, in place: {together}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", FROM_BOTTOMS)
@pytest.mark.parametrize("storage", ["bf16", "fp16"])
def test_a_factor_may_be_of_the_net_s_format_or_float32_and_a_sum_too(storage, kind):
    device = HostCuda(storage=storage)
    for e in ALL[kind]:
        for stay in (FROM_BOTTOMS[kind], ("w0",) if "sum" in kind else FLOAT[kind]):
            narrowed, same = stored(e, storage, stay)
            (want,), (algorithm,) = expected(KERNELS, same), device.algorithms(narrowed.op)
            (got,) = run(device, narrowed, algorithm)
            spacing = 1e-5 if "w0" in stay else SPACING[storage]
            wide = got if "w0" in stay else widen(got, storage)
            assert np.abs(wide - want).max() <= spacing * max(float(np.abs(want).max()), 1), f"{e.name}: {stay}"


@pytest.mark.parametrize("storage", ["bf16", "fp16"])
def test_every_number_comes_back(storage):
    """A copy goes through float and must give each of the 65536 bit patterns back; NaN as some NaN."""
    x = np.arange(1 << 16, dtype=np.uint16)
    y = np.zeros_like(x)
    lib = cuda_host.library("elementwise", storage=storage)
    lib.bind("copy", [x.ctypes.data, y.ctypes.data, np.int64(x.size)], 64, 256, 0, False)()
    numbers = [widen(v.view(np.float16) if storage == "fp16" else v, storage) for v in (x, y)]
    ordinary = ~np.isnan(numbers[0])
    assert np.array_equal(x[ordinary], y[ordinary]) and np.isnan(numbers[1][~ordinary]).all()
    assert ordinary.sum() == {"fp16": 65536 - 2 * 1023, "bf16": 65536 - 2 * 127}[storage]


@pytest.mark.parametrize(("storage", "load"), [("float", "v4.f32"), ("bf16", "v4.u32"), ("fp16", "v4.u32")])
def test_sixteen_bytes_move_at_once_and_all_loads_come_before_the_stores(nvrtc, storage, load):
    """Without that the compiler loads nothing before the former store, since y may have the bytes of x."""
    moves = re.findall(r"(ld|st)\.global\.([\w.]*)", ptx(nvrtc, "elementwise", storage)["add"])
    together = 4 if storage == "float" else 2
    main = [*[("ld", load)] * 2 * together, *[("st", load)] * together]
    assert any(moves[i : i + len(main)] == main for i in range(len(moves))), moves
