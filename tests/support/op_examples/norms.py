"""Sums of squares by blocks, clipping, the loss's scale, and the ratios of LARS and LAMB."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from minidnn.backends.reference.squares import squares
from minidnn.optimizers.squares import Blocks
from minidnn.program import Tensor
from minidnn.ranks import shards
from tests.support.op_examples.maker import Example, Maker, attrs
from tests.support.op_examples.updates import rule_attrs


def norms(m: Maker) -> Iterator[Example]:
    dws = [m.normal(70001), m.normal(3, 4, 2, 2), *(m.normal(5) for _ in range(8)), m.normal(4096), m.normal(8193)]
    yield squared(m, dws[:1])
    yield squared(m, dws)
    for threshold, ranks in product((1.0, 1e6), (1, 3)):
        blocks, sums = summed(dws, ranks)
        note = f"threshold {threshold}, {ranks} ranks"
        yield m.example("gradient.clip", [sums], [(1,)], attrs(threshold=threshold, blocks=blocks), note=note)
    many = attrs(threshold=1.0, blocks=Blocks((5000, 1, 5000), 2))
    yield m.example("gradient.clip", [m.random.random(2 * 10001)], [(1,)], many, note="many blocks")
    for (threshold, good), ranks in product(((-1.0, 3), (1.0, 4), (1e6, 5)), (1, 3)):
        blocks, sums = summed(dws, ranks)
        a = attrs(threshold=threshold, blocks=blocks, period=5, most=2.0**24, least=2.0**-24)
        note = f"threshold {threshold}, {good} good steps, {ranks} ranks"
        reads = [np.float32([1024, good]), np.float32([0.5]), sums]
        yield m.example("gradient.unscale", reads, [0, (1,)], a, note=note)
    a = attrs(threshold=1.0, blocks=Blocks((5000, 1, 5000), 2), period=5, most=2.0**24, least=2.0**-24)
    reads = [np.float32([1024, 3]), np.float32([0.5]), m.random.random(2 * 10001)]
    yield m.example("gradient.unscale", reads, [0, (1,)], a, note="many blocks")


def squared(m: Maker, xs: list[np.ndarray], note: str = "") -> Example:
    """The sums of these tensors' blocks."""
    tensors = [Tensor(f"x{i}", x.shape) for i, x in enumerate(xs)]
    sums = Blocks.of(tensors).sums("sums")
    return m.example("gradient.squares", xs, [sums.shape], dtypes={0: sums.dtype}, note=note)


def summed(xs: list[np.ndarray], ranks: int = 1) -> tuple[Blocks, np.ndarray]:
    """The sums of these tensors' blocks, as if each of so many ranks had these shards; and where they lie."""
    blocks = Blocks.of([Tensor(f"x{i}", x.shape) for i, x in enumerate(xs)], ranks)
    row = squares(*xs)
    return blocks, np.concatenate([row * (1 + k) for k in range(ranks)])


def ratios(m: Maker) -> Iterator[Example]:
    rate, finite = np.float32([0.1]), np.float32([1.0])
    for shape in [(7,), (5, 3, 3, 3), (70001,)]:
        for adapted, clipped, objective in product((False, True), (False, True), (1.0, np.nan)):
            w, dw, clip = m.normal(*shape), m.normal(*shape), [np.float32([0.7])] if clipped else []
            o, note = np.float32([objective]), f"adapted {adapted} clipped {clipped} objective {objective}"
            lars, lamb = (rule_attrs(numbers, 0.01, "L2", clipped) for numbers in ((0.9, 0.001), (0.9, 0.999, 1e-6)))
            for (kind, own), ranks in product((("lars.ratio", lars), ("lamb.ratio", lamb)), (1, 2)):
                blocks, sums = summed([w, dw], ranks)
                a, sums = (attrs(rule=own, blocks=blocks), [sums]) if adapted else (attrs(rule=own, blocks=None), [])
                yield m.example(kind, [*sums, o, *clip], [(1,)], a, note=f"{note} {ranks} ranks")
            ratio = np.float32([0.3 if adapted else 0.0])
            yield m.example(
                "lars.update", [w, dw, rate, finite, m.normal(*shape), ratio, *clip], [0, 4], lars, note=note
            )
            moments, t = [m.normal(*shape), m.normal(*shape) ** 2], np.array([3])
            sums = [(2 * shards.blocks(w.size),)] if adapted else []
            if objective == 1.0:
                yield m.example(
                    "lamb.moments",
                    [w, dw, o, *moments, t, *clip],
                    [3, 4, *sums],
                    lamb,
                    dtypes={2: "float64"},
                    note=note,
                )
            yield m.example("lamb.update", [w, rate, *moments, t, ratio], [0], lamb, note=note)
    for kind, numbers in (("lars.ratio", (0.9, 0.001)), ("lamb.ratio", (0.9, 0.999, 1e-6))):
        many = attrs(rule=rule_attrs(numbers, 0.01, "L2", False), blocks=Blocks((5000, 5000), 2))
        yield m.example(kind, [m.random.random(20000), finite], [(1,)], many, note="many blocks")
        for at, which in enumerate(("a weight of zeros", "a step of zeros")):
            x = [m.normal(3, 4), m.normal(3, 4)]
            x[at] *= 0
            blocks, sums = summed(x)
            yield m.example(
                kind,
                [sums, finite],
                [(1,)],
                attrs(rule=rule_attrs(numbers, 0.0, "L2", False), blocks=blocks),
                note=which,
            )
