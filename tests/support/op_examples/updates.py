"""From gradients to weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

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
    for threshold in (1.0, 1e6):
        dws = [m.normal(70001), m.normal(3, 4, 2, 2), m.normal(5)]
        yield m.example("gradient.clip", dws, [(1,)], attrs(threshold=threshold), note=f"threshold {threshold}")
    for threshold, good in ((-1.0, 3), (1.0, 4), (1e6, 5)):
        dws = [m.normal(70001), m.normal(3, 4, 2, 2), *(m.normal(5) for _ in range(8))]
        a = attrs(threshold=threshold, period=5, most=2.0**24, least=2.0**-24)
        reads = [np.float32([1024, good]), np.float32([0.5]), *dws]
        yield m.example("gradient.unscale", reads, [0, (1,)], a, note=f"threshold {threshold}, {good} good steps")


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
