"""The examples of ops by kind, the same with values that are not finite, and the tolerance of results."""

from __future__ import annotations

from itertools import product

import numpy as np

from minidnn.program import Tensor
from tests.support.op_examples import Example, by_kind, examples, hides

ALL = examples()

TOLERANCE = 2e-5  # relative to the largest value; float32 sums of a few thousand products differ so with their order


def close(got: np.ndarray, want: np.ndarray, exact: bool) -> bool:
    if exact or want.dtype.kind != "f":
        return np.array_equal(got, want)
    return bool(np.all(np.abs(got - want) <= TOLERANCE * max(1.0, float(np.abs(want).max(initial=0)))))


MANY = 50  # reads of an op: merged parts


def spoiled(kind: str, every: bool = True) -> list[tuple[Example, Tensor]]:
    """(example, tensor): the kind's examples in which one tensor has values that are not finite: one, some or all. Not
    `every`: NaN is one, inf are some, and -inf all."""
    found = []
    for e in by_kind(kind):
        if hides(e):
            continue
        random = np.random.default_rng(0)
        for t in e.op.reads if len(e.op.reads) < MANY else (*e.op.reads[:2], *e.op.reads[-2:]):  # the rest are alike
            if t.dtype != "float32" or t.size > 1 << 14:
                continue
            some, linear = -(-t.size // 9), kind.startswith(("convolution", "inner_product"))
            values, counts = (np.nan, np.inf, -np.inf), (1, some, t.size)
            if linear:  # sums treat all three alike
                cases = {(np.nan, some)}
            else:
                cases = dict.fromkeys(product(values, counts) if every else zip(values, counts, strict=True))
            for value, count in cases:
                x = e.data[t].copy()
                x.reshape(-1)[random.choice(t.size, count, replace=False)] = value
                name = f"{e.name} with {count} {value} in {t.name}"
                found.append((Example(name, e.op, {**e.data, t: x}), t))
    return found
