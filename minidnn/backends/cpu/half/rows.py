"""Ops that go over their rows in blocks, as ops in parts of the batch do (memory/parts/)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from minidnn.backends import layout, parts
from minidnn.backends.choice import choose
from minidnn.backends.cpu.half import outputs
from minidnn.backends.cpu.half.copies import WIDER, Convert, Of, around, at_once, block, widened
from minidnn.backends.cpu.recipe import Arrays, Call, Recipe, chained
from minidnn.memory.execution.device import Device
from minidnn.memory.parts.kinds import operands
from minidnn.memory.parts.passes import passes
from minidnn.memory.parts.split import part_of
from minidnn.memory.parts.whole import BY, by_parts
from minidnn.program import Algorithm, Op, Tensor


class _Blocks(Device):
    """A device for the ops of a block (backends/parts.py)."""

    def __init__(self, of: Of, convert: Convert) -> None:
        self._of, self._convert = of, convert

    def _recipes(self, op: Op) -> list[Recipe]:
        return outputs.recipes(self._of, self._convert, op) or at_once(self._of, self._convert, op)

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]:
        return tuple(recipe.algorithm for recipe in self._recipes(op))

    def array(self, buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
        return layout.view(buffer, tensor)

    def prepare(self, op: Op, algorithm: Algorithm, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray) -> Call:
        recipe = choose(self._recipes(op), op, algorithm, workspace.nbytes, "a block")
        return chained(recipe.bind([views[t] for t in op.reads], [views[t] for t in op.writes], workspace))


def recipes(of: Of, convert: Convert, op: Op) -> list[Recipe] | None:
    """The recipes that go over the op's rows in blocks; None: one block has them all, or the op needs all at once."""
    wide = widened(op, op.tensors)
    uses = [use for one in passes(wide) or (wide,) if (use := operands(one))]
    if len(uses) < len(passes(wide) or (wide,)):
        return None
    with_rows = {t for use in uses for t in use.tensors}
    nbytes = sum(t.nbytes for t in wide.tensors if t in with_rows)
    others = sum(t.nbytes for t in wide.tensors if t not in with_rows)
    count, step = uses[0].rows, uses[0].step
    if count % step:
        return None
    rows = step * _divisor(count // step, max(block(nbytes), WIDER * others) * count // nbytes // step)
    if rows == count:
        return None
    later = outputs.pays(op) and not uses[0].sums  # each block widens its weights
    mixed = op if later else widened(op, [t for t in op.tensors if t not in with_rows])
    device = _Blocks(of, convert)
    return [around(convert, op, mixed, recipe) for recipe in _of_parts(device, mixed, rows)]


def _divisor(n: int, wanted: int) -> int:
    """The largest divisor of n that is not above `wanted`; if that is far below, the smallest above."""
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    below = max((d for d in divisors if d <= wanted), default=0)
    return below if 4 * below > min(wanted, n) else next(d for d in divisors if d > wanted)


def _of_parts(device: Device, op: Op, rows: int) -> Iterator[Recipe]:
    """The recipes of an op that compute so many rows at a time. What they do not write by rows is float32."""
    blocks = [part_of(one, (0, rows), op if one is not op else None) for one in passes(op) or (op,)]
    offered = [{a.name: by_parts(one, a) for a in device.algorithms(one)} for one in blocks]
    for name in offered[0]:
        if all(name in each for each in offered):
            most = max(each[name].workspace for each in offered)
            yield Recipe(Algorithm(name, most), partial(_bind, device, op, Algorithm(f"{name}{BY}{rows}", most), rows))


def _bind(
    device: Device, op: Op, algorithm: Algorithm, rows: int, reads: Arrays, writes: Arrays, workspace: np.ndarray
) -> list[Call]:
    views = dict(zip((*op.reads, *op.writes), (*reads, *writes), strict=True))
    return [parts.prepared(device, op, algorithm, views, workspace, rows)]
