"""LRN, BatchNorm and Scale, alone and fused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tests.support.op_examples.maker import Example, Maker, attrs


def normalizations(m: Maker) -> Iterator[Example]:
    for shape in [(3, 5, 6, 7), (2, 16, 5, 5), (1, 3, 1, 1), (2, 40, 9, 8), (2, 96, 57, 50)]:
        for size, beta, k in ((5, 0.75, 2.0), (3, 0.5, 1.0)):
            for region in ("ACROSS_CHANNELS", "WITHIN_CHANNEL"):
                a = attrs(size=size, alpha=0.1, beta=beta, k=k, region=region, saved="x")
                x, dy = m.normal(*shape), m.normal(*shape)
                if x.size > 1e5 and (beta != 0.75 or region != "ACROSS_CHANNELS"):
                    continue  # the large one is there to be cut into chunks
                yield m.example("lrn.forward", [x], [shape], a, note=f"{region} size {size}")
                yield m.example("lrn.backward", [x, dy], [shape], a, note=f"{region} size {size}")
    for shape in [(3, 5, 6, 7), (2, 16, 5, 5), (7, 13), (2, 64, 9, 8), (2, 64, 28, 28), (64, 500)]:
        c = shape[1]
        count = int(np.prod(shape)) // c
        x, dy = m.normal(*shape) + 1, m.normal(*shape)
        mean, variance, sums, squares = m.normal(c), m.normal(c) ** 2 + 0.1, m.normal(c), m.normal(c) ** 2 + 0.1
        gamma, beta = m.normal(c), m.normal(c)
        a = attrs(eps=1e-5, fraction=0.999, count=count)
        rows = tuple(i for i in range(len(shape)) if i != 1)
        yield m.example("batch_norm.forward", [x], [shape, (c,), (c,)], a)
        real = [x, x.mean(rows), x.var(rows), dy]
        yield m.example("batch_norm.backward", real, [shape], a, inplace=[(3, 0)])
        yield m.example("batch_norm.statistics", [mean, variance, sums, squares, np.float32([2.5])], [2, 3, 4], a)
        for factor in (2.5, 0.0):
            f = np.float32([factor])
            note = f"factor {factor}"
            yield m.example("batch_norm.inference", [x, sums, squares, f], [shape], a, inplace=[(0, 0)], note=note)
            reads = [squares, f, dy]
            yield m.example("batch_norm.inference_backward", reads, [shape], a, inplace=[(2, 0)], note=note)
        yield m.example("scale.forward", [x, gamma, beta], [shape], inplace=[(0, 0)])
        yield m.example("scale.forward", [x, gamma], [shape], inplace=[(0, 0)])
        yield m.example("scale.backward_filter", [x, dy], [(c,)])
        yield m.example("scale.backward_bias", [dy], [(c,)])
        yield m.example("scale.backward_data", [gamma, dy], [shape], inplace=[(1, 0)])


def scaled(m: Maker) -> Iterator[Example]:
    """More fused ops: a BatchNorm with the Scale after it, or with the Scale and the ReLU after it, and perhaps a sum
    between these."""
    for shape in [(3, 5, 6, 7), (2, 16, 5, 5), (7, 13), (2, 3, 4), (2, 64, 28, 28), (2000, 17)]:
        c, rows = shape[1], tuple(i for i in range(len(shape)) if i != 1)
        x, dy, gamma, beta = m.normal(*shape) + 1, m.normal(*shape), m.normal(c), m.normal(c)
        a = attrs(eps=1e-5, fraction=0.999, count=x.size // c)
        statistics, channels = [x.mean(rows), x.var(rows)], [(c,), (c,)]
        yield m.example("batch_norm.moments", [x], channels, a)
        for relu in ("", "_relu"):
            reads = [x, *statistics, gamma, beta]
            yield m.example(f"batch_norm.normalize_scale{relu}", reads, [shape], a, [(0, 0)])
            reads = [x, *statistics, gamma, beta, dy]
            yield m.example(f"batch_norm.backward_scale{relu}", reads, [shape, *channels], a, [(5, 0), (0, 0)])
            reads = [x, m.normal(c), m.normal(c) ** 2 + 0.1, np.float32([2.5 if relu else 0]), gamma, beta]
            yield m.example(f"batch_norm.inference_scale{relu}", reads, [shape], a, [(0, 0)])
        yield from joined(m, x, statistics, gamma, beta, a)


def joined(
    m: Maker, x: np.ndarray, statistics: Sequence[np.ndarray], gamma: np.ndarray, beta: np.ndarray, a
) -> Iterator[Example]:
    """A BatchNorm with the Scale, the sum with a shortcut and the ReLU after it, over x and over the shortcut."""
    for over in (0, 1):
        reads, note = [x, m.normal(*x.shape), *statistics, gamma, beta], f"over {over}"
        yield m.example("batch_norm.normalize_scale_add_relu", reads, [x.shape], a, [(over, 0)], note=note)
        reads.insert(4, np.float32([2.5 * over]))
        yield m.example("batch_norm.inference_scale_add_relu", reads, [x.shape], a, [(over, 0)], note=note)


def two_passes(m: Maker) -> Iterator[Example]:
    """BatchNorm as it runs in parts of the batch: passes over a third of the values, and merged moments."""
    for shape in [(3, 5, 6, 7), (2, 16, 5, 5), (7, 13), (2, 3, 4), (2, 64, 28, 28), (2000, 17)]:
        c, rows = shape[1], tuple(i for i in range(len(shape)) if i != 1)
        x, dy, gamma, beta = m.normal(*shape) + 1, m.normal(*shape), m.normal(c), m.normal(c)
        a = attrs(eps=1e-5, fraction=0.999, count=3 * x.size // c)
        statistics, sums = [x.mean(rows), x.var(rows)], [m.normal(c) * x.size / c, m.normal(c) * x.size / c]
        yield m.example("batch_norm.normalize", [x, *statistics], [shape], a, [(0, 0)])
        for behind in ("", "_scale", "_scale_relu"):
            reads = [x, dy, *statistics, *([gamma, beta] if behind else [])]
            yield m.example(f"batch_norm.backward_sums{behind}", reads, [(c,), (c,)], a)
            inplace = [(1, 0), (0, 0)]
            yield m.example(f"batch_norm.backward_data{behind}", [*reads, *sums], [shape], a, inplace)
    for parts, c, far in ((2, 1, 0), (5, 33, 1e4), (500, 7, 1), (241, 3, -1e3), (3, 40_000, 0)):
        reads = [t for _ in range(parts) for t in (m.normal(c) + np.float32(far), m.normal(c) ** 2)]
        for what in ("moments", "sums"):
            yield m.example(f"batch_norm.merge_{what}", reads, [(c,), (c,)], note=f"of {parts}")
