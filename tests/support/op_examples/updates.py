"""From gradients to weights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from minidnn.programs.ranks import KeepAttrs, MergeAttrs
from minidnn.programs.sum_tree import SumAttrs
from tests.support.op_examples.maker import Example, Maker, attrs, together


def updates(m: Maker) -> Iterator[Example]:
    rate, clip = np.float32([0.1]), np.float32([0.7])
    for shape in [(7,), (5, 3, 3, 3), (70001,)]:
        w, dw, h = m.normal(*shape), m.normal(*shape), m.normal(*shape)
        for objective in (1.0, float("nan"), float("inf")):
            for decay, regularization in ((0.0, "L2"), (0.01, "L2"), (0.01, "L1")):
                for momentum in (0.0, 0.9):
                    for clipped in (False, True):
                        a = attrs(momentum=momentum, decay=decay, regularization=regularization, lr_mult=2.0,
                                  scale=0.5, clipped=clipped)  # fmt: skip
                        reads = [w, dw, rate, np.float32([objective])]
                        reads += ([h] if momentum else []) + ([clip] if clipped else [])
                        note = f"{regularization} {decay} momentum {momentum} clipped {clipped} objective {objective}"
                        yield m.example("sgd.update", reads, [0, 4] if momentum else [0], a, note=note)


def micro_batches(m: Maker) -> Iterator[Example]:
    """Gradients that are added to those of other micro-batches. Values differ in size, so that an order shows."""
    for size, (every, k) in product((7, 70001), ((2, 0), (3, 1), (4, 2), (8, 3), (8, 6), (16, 7))):
        sums, dw = m.normal((every.bit_length() - 1) * size) * 1e4, m.normal(size)
        reads = [sums, dw, np.array([5 * every + k])]
        yield m.example("gradient.accumulate", reads, [0], SumAttrs(every), note=f"{k} of {every}", exact=True)
        if k in (0, 1, 3):
            yield m.example("gradient.total", [sums, dw], [(size,)], SumAttrs(every), note=f"{every}", exact=True)
            over = dict(inplace=[(1, 0)], note=f"{every} over dw", exact=True)
            yield m.example("gradient.total", [sums, dw], [(size,)], SumAttrs(every), **over)


def kept(m: Maker) -> Iterator[Example]:
    """Statistics of a micro-batch, beside those of the others."""
    for c, every, k in ((5, 3, 0), (70001, 2, 1), (64, 4, 3)):
        rows = [m.normal(every * c), m.normal(every * c)]
        reads = [*rows, m.normal(c), m.normal(c), np.array([6 * every + k])]
        yield m.example("batch_norm.keep", reads, [0, 1], KeepAttrs(every), note=f"{k} of {every}", exact=True)


def merges(m: Maker) -> Iterator[Example]:
    """Shards of all ranks' gradients, of which the last rank's is shorter."""
    for ranks, size, own in ((2, 7, 7), (3, 7, 5), (4, 9000, 9000), (5, 9000, 300), (8, 70001, 70001)):
        rows, dw = m.normal(ranks * size) * 10.0 ** m.random.integers(-3, 4, ranks * size), m.normal(3)
        reads = [rows.astype(np.float32), dw]
        yield m.example(
            "gradient.merge", reads, [(size,)], MergeAttrs(ranks, own), note=f"{own} of {ranks}", exact=True
        )


RULES = {  # rule -> (its numbers, how many numbers of history, whether it reads the iteration)
    "nesterov": ((0.9,), 1, False),
    "adagrad": ((1e-8,), 1, False),
    "rmsprop": ((0.98, 1e-8), 1, False),
    "adadelta": ((0.95, 1e-6), 2, False),
    "adam": ((0.9, 0.999, 1e-8), 2, True),
    "adamw": ((0.9, 0.999, 1e-8), 2, True),
}


def rules(m: Maker) -> Iterator[Example]:
    """Updates of the other optimizers."""
    rate, finite = np.float32([0.1]), np.float32([1.0])
    cases = list(product((0.0, 0.01), ("L2", "L1"), (False, True), (0, 9)))
    for shape in [(7,), (5, 3, 3, 3), (70001,)]:
        for (rule, (numbers, count, counted)), (decay, how, clipped, iteration) in product(RULES.items(), cases):
            if (how == "L1" and (rule == "adamw" or not decay)) or (iteration and not counted):
                continue
            a = rule_attrs(numbers, decay, how, clipped)
            objective = np.float32([np.nan]) if clipped and decay and how == "L2" else finite
            history = [m.normal(*shape) if rule == "nesterov" else m.normal(*shape) ** 2 for _ in range(count)]
            reads = [m.normal(*shape), m.normal(*shape), rate, objective, *history]
            reads += [np.array([iteration])] if counted else []
            reads += [np.float32([0.7])] if clipped else []
            note = f"{how} {decay} clipped {clipped} iteration {iteration} objective {objective[0]}"
            yield m.example(f"{rule}.update", reads, [0, *range(4, 4 + count)], a, note=note)


def rule_attrs(numbers, decay, regularization, clipped, lr_mult=2.0):
    return attrs(numbers=numbers, decay=decay, regularization=regularization, lr_mult=lr_mult, scale=0.5,
                 clipped=clipped, every=2)  # fmt: skip


def ruled(m: Maker) -> Iterator[Example]:
    """Several updates in one, of each rule, more than one launch of a GPU takes; and a few."""
    sizes = (70001, 1, 3, 4, 5, 4096, 4097, 12288, *range(1, 120, 2))
    one, iteration, clip = np.float32([1.0]), np.array([9]), np.float32([0.7])
    for rule, (numbers, count, counted) in [*RULES.items(), ("lars", ((0.9, 0.001), 1, False))]:
        for clipped in (False, True):
            ones = []
            for k, n in enumerate(sizes):
                a = rule_attrs(numbers, 0.01 * (k % 2), "L2", clipped, lr_mult=1.0 + k % 3)
                reads = [m.normal(n), m.normal(n), np.float32([0.1]), one, *(m.normal(n) ** 2 for _ in range(count))]
                reads += [iteration] if counted else [np.float32([0.3 * (k % 4)])] if rule == "lars" else []
                reads += [clip] if clipped else []
                ones.append(m.example(f"{rule}.update", reads, [0, *range(4, 4 + count)], a))
            shared = (2, 3, *([4 + count] if counted else []), *([-1] if clipped else []))
            yield together(ones[1:8], f"clipped {clipped}", shared)
            yield together(ones, f"clipped {clipped}", shared)
    ones, numbers = [], (0.9, 0.999, 1e-6)
    for k, n in enumerate(sizes):
        reads = [m.normal(n), np.float32([0.1]), m.normal(n), m.normal(n) ** 2, iteration, np.float32([0.3 * (k % 4)])]
        ones.append(
            m.example("lamb.update", reads, [0], rule_attrs(numbers, 0.01 * (k % 2), "L2", False, lr_mult=1.0 + k % 3))
        )
    yield together(ones[1:8], "", (1, 4))
    yield together(ones, "", (1, 4))


def several(m: Maker) -> Iterator[Example]:
    """Several small ops in one. Some have more members than one launch of a GPU takes."""
    casts = [m.example("cast.forward", [m.normal(n)], [(n,)], exact=True) for n in (1, 7, 70001, 8, 4096, 4097, 12288)]
    yield together(casts[1:2])
    yield together(casts)
    yield together([m.example("cast.forward", [m.normal(n)], [(n,)], exact=True) for n in range(1, 300)], "many")
    norms = []
    for k, c in enumerate((1, 5, 255, 256, 257, 2048, *range(1, 80))):
        reads = [m.normal(c), m.normal(c) ** 2, m.normal(c), m.normal(c) ** 2, np.float32([k])]
        a = attrs(eps=1e-5, fraction=0.9 + 0.001 * k, count=1 + 7 * k)
        norms.append(m.example("batch_norm.statistics", reads, [2, 3, 4], a))
    yield together(norms[:1])
    yield together(norms)
    for momentum, clipped in ((0.9, False), (0.0, True), (0.9, True)):
        for objective in (1.0, float("nan")):
            ones = []
            for k, n in enumerate((70001, 1, 3, 4, 5, 4096, 4097, 12288, *range(1, 200, 2))):
                reads = [m.normal(n), m.normal(n), np.float32([0.1]), np.float32([objective])]
                reads += ([m.normal(n)] if momentum else []) + ([np.float32([0.7])] if clipped else [])
                a = attrs(momentum=momentum, decay=0.01 * (k % 2), regularization="L2", lr_mult=1.0 + k % 3, scale=0.5,
                          clipped=clipped)  # fmt: skip
                ones.append(m.example("sgd.update", reads, [0, 4] if momentum else [0], a))
            note = f"momentum {momentum} clipped {clipped} objective {objective}"
            shared = (2, 3, -1) if clipped else (2, 3)
            yield together(ones[:3], note, shared)
            yield together(ones, note, shared)
