"""Runs a whole op part by part, for devices whose arrays lie in the host's memory (memory/parts/whole.py).

The rows of the first axis are outermost in every layout. So a part works on runs of the op's own bytes, and nothing is
copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minidnn.memory.execution.device import Device
from minidnn.memory.parts.kinds import operands
from minidnn.memory.parts.split import part_of, sum_of
from minidnn.memory.parts.whole import BY
from minidnn.memory.schedule import aligned
from minidnn.program import Algorithm, Op, Tensor


def prepared(
    device: Device, op: Op, algorithm: Algorithm, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray, rows: int
) -> Callable[[], None]:
    """The op bound to its addresses, `rows` rows at a time. Raises ValueError if the device has no such algorithm for
    a part of it."""
    result = operands(op)
    assert result is not None, f"{op.name} cannot run in parts"
    name = algorithm.name.removesuffix(f"{BY}{rows}")
    partial: dict[Tensor, np.ndarray] = {}  # of each gradient, the place of a part's own
    at = 0
    for t in result.sums:
        partial[t] = device.view(workspace[at : at + t.nbytes], t)
        at += aligned(t.nbytes)
    calls: list[Callable[[], Any]] = []
    for first in range(0, result.rows, rows):
        one = part_of(op, (first, first + rows))
        bound: dict[Tensor, Any] = {}
        for whole, some in zip((*op.reads, *op.writes), (*one.reads, *one.writes), strict=True):
            if whole in partial:
                bound[some] = partial[whole] if first else views[whole]
            else:
                bound[some] = views[whole] if some is whole else views[whole][first : first + rows]
        inner = next((a for a in device.algorithms(one) if a.name == name), None)
        if inner is None:
            raise ValueError(f"{op.name}: no algorithm {name} for {rows} rows at a time")
        calls.append(device.prepare(one, inner, bound, workspace[at:]))
        for t, more in partial.items() if first else ():
            add = sum_of(one, t, next(w for w, o in zip(one.writes, op.writes, strict=True) if o == t))
            bound = dict(zip((*add.reads, *add.writes), (views[t], more, views[t]), strict=True))
            calls.append(device.prepare(add, device.algorithms(add)[0], bound, workspace[at:]))

    def call() -> None:
        for one in calls:
            one()

    return call
