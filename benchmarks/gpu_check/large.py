"""Cases of item a: convolutions and inner products whose tensors have more than 2^31 elements.

cuDNN gets them in slices (backends/cuda/slices.py). The batch repeats a few images, and the reference computes these
alone. Each image has the results of the one that it repeats. The gradient of the weights is that of the few, times the
number of repeats. The check looks at the first images, those around element 2^31, and the last ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu_check.rounding import Precision, allowed, distance, examples_in, wanted
from benchmarks.gpu_check.run import Run, Wrong
from minidnn.backends.cuda.device import CudaDevice
from minidnn.formats import widened
from minidnn.memory.schedule import aligned
from minidnn.program import Algorithm, Op, Tensor
from tests.support.op_examples import Example, Maker, attrs

FEW = 5  # images that the batch repeats; no slice has a multiple of them, so that one at a wrong image shows
FORMAT = Precision("bfloat16")
TRIED = 3  # algorithms of each op
LOOKED = 2  # images that are looked at, at each place
WRITTEN = 32 << 20  # bytes that are written at a time


def cases(run: Run) -> None:
    """A case per kind."""
    with run.place.counting():
        device = run.place.device()
        for e, batch in examples(run.place.large_maps, run.place.large_products):
            run.case(f"{e.op.kind} of 2^31 elements", partial(check, device, e, batch), needs=8)


def examples(images: tuple[int, ...], product: tuple[int, int, int]) -> list[tuple[Example, int]]:
    """Examples of a few images, or rows, and the batch that repeats them. images: (batch, channels, side); product:
    (rows, inputs, outputs)"""
    (n, c, side), (rows, inputs, outputs), m = images, product, Maker(11)
    a = attrs(kernel=(3, 3), stride=(1, 1), pad=(1, 1), dilation=(1, 1), group=1)
    found = []
    for family, x, w, y, of, batch in (
        ("convolution", (FEW, c, side, side), (c, c, 3, 3), (FEW, c, side, side), a, n),
        ("inner_product", (FEW, inputs), (outputs, inputs), (FEW, outputs), None, rows),
    ):
        data = {"x": m.normal(*x), "w": m.normal(*w) / math.sqrt(math.prod(w[1:])), "y": m.normal(*y)}
        for verb, reads, written in (("forward", "xw", y), ("backward_data", "wy", x), ("backward_filter", "xy", w)):
            e = m.example(f"{family}.{verb}", [data[name] for name in reads], [written], of)
            found += [(each, batch) for each in examples_in(FORMAT, [e])]
    return found


def check(device: CudaDevice, e: Example, batch: int) -> dict[str, Any]:
    """Raises Wrong if a result is not the reference's."""
    times, (want,) = batch // FEW, wanted(e)
    repeats = {t: t.shape[0] == FEW and not _is_weight(e.op, t) for t in e.op.tensors}
    large = {t: replace(t, shape=(batch, *t.shape[1:])) if repeats[t] else t for t in e.op.tensors}
    op = replace(e.op, reads=tuple(large[t] for t in e.op.reads), writes=tuple(large[t] for t in e.op.writes))
    (written,) = e.op.writes
    want = want if repeats[written] else want * times
    algorithms, limit = device.algorithms(op)[:TRIED], allowed(e, written, FORMAT)
    pairs = _found(device, e, op, algorithms, repeats, times, want)
    worst = max(distance(got, expected, False) for got, expected in pairs)
    values = {
        "elements": max(t.size for t in op.tensors), "algorithms": [a.name for a in algorithms], "worst": worst,
        "tolerance": limit,
    }  # fmt: skip
    if not worst <= limit:
        raise Wrong(f"off by {worst:.3g} of the largest value", values)
    return values


def _is_weight(op: Op, t: Tensor) -> bool:
    return t is {"forward": op.reads[1], "backward_data": op.reads[0]}.get(op.kind.partition(".")[2], op.writes[0])


def _found(
    device: CudaDevice, e: Example, op: Op, algorithms: Sequence[Algorithm], repeats: dict[Tensor, bool], times: int,
    want: np.ndarray,
) -> list[tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """Parts of each algorithm's result, each with the values that are right."""
    places, at = {}, 0
    for t, big in zip(e.op.tensors, op.tensors, strict=True):
        places[t], at = at, at + aligned(big.nbytes)
    (written,), (result,) = e.op.writes, op.writes
    bench, pairs = device.runtime(at + max(a.workspace for a in algorithms), 0, 0.0, 0), []
    try:
        arena = bench.arena
        for t in e.op.reads:
            few = np.empty(t.nbytes, np.uint8)
            device.array(few, t)[...] = e.data[t]
            _repeat(bench, places[t], few, times if repeats[t] else 1)
        views = {b: arena[places[t] : places[t] + b.nbytes] for t, b in zip(e.op.tensors, op.tensors, strict=True)}
        for algorithm in algorithms:
            bench.fill(views[result], 0xFF)()
            device.prepare(op, algorithm, views, arena[at : at + algorithm.workspace])()
            if not repeats[written]:
                pairs.append((_read(device, bench, places[written], written), want))
                continue
            one = replace(written, shape=(LOOKED, *written.shape[1:]))
            for first in _looked_at(result):
                got = _read(device, bench, places[written] + first * (one.nbytes // LOOKED), one)
                pairs.append((got, np.stack([want[(first + i) % FEW] for i in range(LOOKED)])))
        return pairs
    except Exception:
        bench.broken = True
        raise
    finally:
        bench.close()


def _repeat(bench: Any, at: int, few: np.ndarray, times: int) -> None:
    """Write these bytes so many times, one behind the other."""
    many = np.tile(few, max(1, min(times, WRITTEN // few.nbytes)))
    end = at + times * few.nbytes
    for first in range(at, end, many.nbytes):
        bench.write(bench.arena[first : min(first + many.nbytes, end)], many[: end - first])


def _looked_at(result: Tensor) -> Sequence[int]:
    """The first of the images that are looked at, at each place."""
    batch = result.shape[0]
    across = (1 << 31) // (result.size // batch)
    return sorted({0, min(max(across, 0), batch - LOOKED), batch - LOOKED})


def _read(device: CudaDevice, bench: Any, at: int, t: Tensor) -> np.ndarray:
    return widened(np.array(device.array(bench.read(bench.arena[at : at + t.nbytes]), t)))
