"""Runs a whole op part by part, for devices whose arrays lie in the host's memory (memory/parts/whole.py).

The rows of the batch, or the tokens of one sequence, are outermost in every layout. So a part works on runs of the op's
own bytes, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from minidnn.memory.execution.device import Device
from minidnn.memory.parts.kinds import axis_of, operands
from minidnn.memory.parts.passes import between, passes
from minidnn.memory.parts.split import merge_of, part_of, sum_of
from minidnn.memory.parts.whole import BY
from minidnn.memory.schedule import aligned
from minidnn.program import Algorithm, Op, Tensor


def prepared(
    device: Device, op: Op, algorithm: Algorithm, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray, rows: int
) -> Callable[[], None]:
    """The op bound to its addresses, `rows` rows at a time, in each of its passes if it has two. Raises ValueError if
    the device has no such algorithm for a part of it."""
    name = algorithm.name.removesuffix(f"{BY}{rows}")
    places, rest = _places(device, between(op), workspace)
    calls = [
        call
        for one in passes(op) or (op,)
        for call in _calls(device, one, name, {**views, **dict(zip(between(op), places, strict=True))}, rest, rows)
    ]

    def call() -> None:
        for one in calls:
            one()

    return call


def _calls(
    device: Device, op: Op, name: str, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray, rows: int
) -> Iterator[Callable[[], Any]]:
    """The calls of an op's parts, and those that put together what each part writes of its own."""
    result = operands(op)
    assert result is not None, f"{op.name} cannot run in parts"
    sums, workspace = _places(device, result.sums, workspace)
    partial = dict(zip(result.sums, sums, strict=True))  # of each gradient, the place of a part's own
    merged: dict[Tensor, np.ndarray] = {}  # what each part writes that is merged
    for first in range(0, result.rows, rows):
        one = part_of(op, (first, first + rows))
        bound: dict[Tensor, Any] = {}
        own = [some for whole, some in zip(op.writes, one.writes, strict=True) if whole in result.merged]
        places, workspace = _places(device, own, workspace)
        merged |= zip(own, places, strict=True)
        for whole, some in zip((*op.reads, *op.writes), (*one.reads, *one.writes), strict=True):
            if whole in partial:
                bound[some] = partial[whole] if first else views[whole]
            elif some not in merged:
                bound[some] = views[whole] if some is whole else _some(views[whole], axis_of(whole), first, rows)
        inner = next((a for a in device.algorithms(one) if a.name == name), None)
        if inner is None:
            raise ValueError(f"{op.name}: no algorithm {name} for {rows} rows at a time")
        yield device.prepare(one, inner, bound | merged, workspace)
        for t, more in partial.items() if first else ():
            add = sum_of(one, t, next(w for w, o in zip(one.writes, op.writes, strict=True) if o == t))
            bound = dict(zip((*add.reads, *add.writes), (views[t], more, views[t]), strict=True))
            yield device.prepare(add, device.algorithms(add)[0], bound, workspace)
    if result.merged:
        merge = merge_of(op, result.rows // rows)
        yield device.prepare(merge, device.algorithms(merge)[0], {**views, **merged}, workspace)


def _some(view: np.ndarray, axis: int, first: int, rows: int) -> np.ndarray:
    """So many rows of an array, from the first on."""
    return view[(slice(None),) * axis + (slice(first, first + rows),)]


def _places(device: Device, tensors: Iterable[Tensor], workspace: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Places of these tensors in a workspace, and what is left of it."""
    result, at = [], 0
    for t in tensors:
        result.append(device.view(workspace[at : at + t.nbytes], t))
        at += aligned(t.nbytes)
    return result, workspace[at:]
