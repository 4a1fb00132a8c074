"""Examples besides those of tests/support/op_examples for the cuda kernels that sum: other numbers of axes, many and
few rows, every axis, labels of other shapes, many gradients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np

from tests.support.op_examples import Example, Maker, attrs, slices, squared, summed
from tests.support.op_examples.normalizations import joined

COLUMNS = [
    (1, 1),
    (5, 3),
    (64, 1000),
    (3000, 7),
    (1, 4, 1, 1),
    (4, 6, 1, 1),
    (2, 129, 3, 3),
    (1, 516, 2, 2),
    (2, 1, 90, 90),
    (8, 96, 27, 27),
    (2, 3, 4),  # in shapes of three or five axes channels are not innermost
    (3, 70, 11),
    (3, 1, 2000),
    (2, 3, 2, 3, 2),
]
WINDOWS = [
    ((1, 1, 1, 1), 1),
    ((2, 7, 3, 4), 1),
    ((2, 7, 3, 4), 3),
    ((2, 7, 5, 4), 7),
    ((1, 3, 6, 5), 13),  # the window reaches beyond both edges
    ((2, 4, 3, 3), 9),  # computed in registers: one or many groups of four channels, every half window
    ((2, 8, 3, 3), 1),
    ((2, 8, 3, 3), 3),
    ((2, 8, 3, 3), 5),
    ((2, 12, 3, 3), 7),
    ((2, 64, 5, 6), 9),
    ((3, 96, 13, 13), 5),
    ((2, 64, 5, 6), 11),
    ((1, 5, 20, 3), 21),
    ((1, 1030, 2, 1), 5),
    ((1, 2600, 1, 2), 2501),  # too large for shared memory
]
SCORES = [
    (1,),
    (7,),
    (3000,),
    (5, 1),
    (4, 2100),
    (3, 4, 5),
    (300, 5, 9),
    (2, 3, 4, 5),
    (3, 1, 2, 2),
    (2, 40, 3, 1),
    (2, 5, 30, 40),
    (2, 3, 2, 3, 2),
]


def sums(m: Maker) -> Iterator[Example]:
    for shape in COLUMNS:
        c, count = shape[1], int(np.prod(shape)) // shape[1]
        x, dy, real = m.normal(*shape) + 2, m.normal(*shape), tuple(i for i in range(len(shape)) if i != 1)
        for kind in ("convolution", "scale"):
            yield m.example(f"{kind}.backward_bias", [dy], [(c,)])
        yield m.example("inner_product.backward_bias", [dy], [(c if len(shape) == 4 else shape[-1],)])
        yield m.example("scale.backward_filter", [x, dy], [(c,)])
        for slopes in (c, 1):
            yield m.example("prelu.backward_filter", [x - 2, dy], [(slopes,)])
        yield m.example("relu.backward_bias", [np.maximum(x - 2, 0), dy], [shape, (c,)], inplace=[(1, 0)])
        a = attrs(eps=1e-4, fraction=0.9, count=count)
        mean, variance, factor = x.mean(real), x.var(real) + np.float32(0.01), np.float32([3.5])
        yield m.example("batch_norm.forward", [x], [shape, (c,), (c,)], a)
        yield m.example("batch_norm.backward", [x, mean, variance, dy], [shape], a, inplace=[(3, 0)])
        yield m.example("batch_norm.inference", [x, mean, variance, factor], [shape], a, inplace=[(0, 0)])
        gamma, beta, channels = m.normal(c), m.normal(c), [(c,), (c,)]
        yield m.example("batch_norm.moments", [x], channels, a)
        for relu in ("", "_relu"):
            reads = [x, mean, variance, gamma, beta]
            yield m.example(f"batch_norm.normalize_scale{relu}", reads, [shape], a, inplace=[(0, 0)])
            reads = [x, mean, variance, gamma, beta, dy]
            yield m.example(f"batch_norm.backward_scale{relu}", reads, [shape, *channels], a, [(5, 0), (0, 0)])
            reads = [x, mean, variance, factor, gamma, beta]
            yield m.example(f"batch_norm.inference_scale{relu}", reads, [shape], a, inplace=[(0, 0)])
        yield from joined(m, x, [mean, variance], gamma, beta, a)
        wider = attrs(eps=1e-4, fraction=0.9, count=2 * count)
        for behind in ("", "_scale", "_scale_relu"):
            reads = [x, dy, mean, variance, *([gamma, beta] if behind else [])]
            yield m.example(f"batch_norm.backward_sums{behind}", reads, channels, a)
            reads += [(x * dy).sum(real), dy.sum(real)]
            yield m.example(f"batch_norm.backward_data{behind}", reads, [shape], wider, [(1, 0), (0, 0)])
        yield m.example("batch_norm.normalize", [x, mean, variance], [shape], a, inplace=[(0, 0)])
        yield m.example("batch_norm.inference_backward", [variance, factor, dy], [shape], a, inplace=[(2, 0)])
        yield m.example("batch_norm.statistics", [mean, variance, mean + 1, variance + 1, factor], [2, 3, 4], a)


def lrn(m: Maker) -> Iterator[Example]:
    for shape, size in WINDOWS:
        for beta, k in ((0.75, 1.5), (0.5, 0.0 if size >= 5 else 1.0), (1.0, 2.0), (0.0, 1.0)):
            for region in ("ACROSS_CHANNELS", "WITHIN_CHANNEL"):
                x, dy = m.normal(*shape), m.normal(*shape)
                note = f"{region} {size} {beta}"
                if size > 100 and (beta != 0.75 or region == "WITHIN_CHANNEL"):
                    continue  # one example is enough for windows too large for shared memory
                for saved in ("x", "xy"):
                    a = attrs(size=size, alpha=0.7, beta=beta, k=k, region=region, saved=saved)
                    reads = [x, x * 0, dy] if saved == "xy" else [x, dy]
                    yield m.example("lrn.backward", reads, [shape], a, note=note)
                yield m.example("lrn.forward", [x], [shape], a, note=note)


def softmaxes(m: Maker) -> Iterator[Example]:
    for shape in SCORES:
        for axis in range(len(shape)):
            x, dy = m.normal(*shape) * 5, m.normal(*shape)
            e = np.exp(x - x.max(axis, keepdims=True))
            prob = e / e.sum(axis, keepdims=True)
            a = attrs(axis=axis)
            yield m.example("softmax.forward", [x], [shape], a, inplace=[(0, 0)], note=f"axis {axis}")
            far = x * np.float32(1e4)
            yield m.example("softmax.forward", [far], [shape], a, inplace=[(0, 0)], note=f"far apart, axis {axis}")
            yield m.example("softmax.backward", [prob, dy], [shape], a, inplace=[(1, 0)], note=f"axis {axis}")
            yield from labelled(m, np.round(x), prob, axis)


def labelled(m: Maker, x: np.ndarray, prob: np.ndarray, axis: int) -> Iterator[Example]:
    """Losses and accuracies, with labels of every shape that has the right number of values."""
    shape = x.shape
    left = shape[:axis] + shape[axis + 1 :]
    classes, count = shape[axis], int(np.prod(left))
    shapes = {left, (count,), (*shape[:axis], 1, *shape[axis + 1 :])}
    if len(left) == 3:
        shapes |= {(left[0], 1, *left[1:]), (*left, 1), (1, *left)}
    for i, labels in enumerate(sorted(s for s in shapes if s)):
        label = m.random.integers(0, classes, labels).astype(np.int32)
        ignore, mode = [(None, "VALID"), (0, "VALID"), (-1, "FULL"), (255, "BATCH_SIZE"), (0, "NONE")][i % 5]
        if ignore not in (None, 0):
            label[m.random.random(labels) < 0.3] = ignore
        note = f"axis {axis} labels {labels} ignore {ignore} {mode}"
        a = attrs(axis=axis, ignore_label=ignore, normalization=mode, loss_weight=1.5, label_smoothing=0.0)
        yield m.example("softmax_loss.forward", [x, label], [(1,), shape], a, note=note)
        yield m.example("softmax_loss.backward", [prob, label], [shape], a, inplace=[(0, 0)], note=note)
        a = attrs(axis=axis, ignore_label=ignore, top_k=min(1 + i, classes))
        yield m.example("accuracy.forward", [x, label], [(1,)], a, note=note, exact=True)
        yield m.example("accuracy.by_class", [x, label], [(classes,)], a, note=note, exact=True)


def updates(m: Maker) -> Iterator[Example]:
    for n in (1, 2, 3, 4, 9):
        losses = [m.normal(1) for _ in range(n)]
        yield m.example("objective.forward", losses, [(1,)], attrs(weights=tuple(range(1, n + 1))))
    for count in (1, 7, 8, 9, 20):
        sizes = [int(s) for s in m.random.integers(1, 20000, count)]
        dws = [m.normal(n) for n in (1, 2, 3, *sizes)[-count:]]
        yield squared(m, dws, note=f"{count}")
        for threshold, ranks in product((0.0, 1.0, 1e9), (1, 2)):
            blocks, sums = summed(dws, ranks)
            note = f"{count} {threshold} {ranks} ranks"
            yield m.example("gradient.clip", [sums], [(1,)], attrs(threshold=threshold, blocks=blocks), note=note)


@cache
def every() -> tuple[Example, ...]:
    m = Maker(7)
    return (*sums(m), *lrn(m), *softmaxes(m), *updates(m), *slices(Maker(8)))
