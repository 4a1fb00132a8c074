"""Losses of elements with targets or labels, of pairs of vectors, and softmax losses that smooth or weigh."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.op_examples.maker import Example, Maker, attrs

SHAPES = [(1, 1), (3, 5), (2, 5, 3, 4), (7, 3, 2), (33, 129), (6, 21, 30, 31)]


def pointwise(m: Maker) -> Iterator[Example]:
    """Losses with a target for each element, without weights and with one or two."""
    for k, shape in enumerate(SHAPES):
        x, t = m.normal(*shape) * 3, m.normal(*shape)
        for function, ignored, mode, weights in (
            ("SIGMOID_CROSS_ENTROPY", None, "BATCH_SIZE", 0),
            ("SIGMOID_CROSS_ENTROPY", 1, ("VALID", "FULL", "NONE")[k % 3], 0),
            ("SQUARE", None, "BATCH_SIZE", 0),
            ("SMOOTH_L1", None, "BATCH_SIZE", k % 3),
        ):
            target = np.abs(t) * 2 if function.startswith("SIGMOID") else t
            reads = [x, target, *(np.abs(m.normal(*shape)) for _ in range(weights))]
            yield from _both(m, "pointwise_loss", reads, function, ignored, mode, k)


def labelled(m: Maker) -> Iterator[Example]:
    """Losses with a label for each sample."""
    for k, (n, c) in enumerate([(1, 1), (6, 5), (13, 17), (3, 40), (70, 300)]):
        x, label = m.normal(n, c) * 2, m.random.integers(0, c, n).astype(np.int32)
        for function in ("HINGE_L1", "HINGE_L2", "LOGISTIC"):
            scores = np.abs(x) if function == "LOGISTIC" else x
            reads = [scores, label.reshape((n,) if k % 2 else (n, 1, 1, 1))]
            yield from _both(m, "pointwise_loss", reads, function, None, "BATCH_SIZE", k)


def _both(m: Maker, kind, reads, function, ignored, mode, k) -> Iterator[Example]:
    shape, two = reads[0].shape, function in ("SQUARE", "SMOOTH_L1")
    given = dict(function=function, normalization=mode, ignore_label=ignored, sigma=(1.0, 3.0, 0.7)[k % 3])
    note = f"{function} {mode}"
    yield m.example(f"{kind}.forward", reads, [(1,)], attrs(**given, loss_weight=1.0, into=()), note=note)
    for into in ((0,), (0, 1), (1,))[: 3 if two else 1]:
        a = attrs(**given, loss_weight=0.5, into=into)
        pairs = [(i, j) for j, i in enumerate(into)]
        yield m.example(f"{kind}.backward", reads, [shape] * len(into), a, inplace=pairs, note=f"{note} into {into}")


def pairs(m: Maker) -> Iterator[Example]:
    """Pairs of vectors: some are similar, some near, some equal."""
    for k, shape in enumerate([(1, 1), (5, 2), (9, 17), (4, 6, 1, 1), (130, 140)]):
        x, y = m.normal(*shape), m.normal(*shape)
        y[: len(y) // 3] = x[: len(x) // 3]
        similar = m.random.integers(0, 3, len(x)).astype(np.int32)
        for legacy in (False, True):
            a = dict(margin=float((1, 3)[k % 2] * shape[1] ** 0.5), legacy=legacy)
            note = f"legacy {legacy}"
            one = attrs(**a, loss_weight=1.0, into=())
            yield m.example("contrastive_loss.forward", [x, y, similar], [(1,)], one, note=note)
            for into in ((0, 1), (0,), (1,)):
                one = attrs(**a, loss_weight=0.5, into=into)
                yield m.example(
                    "contrastive_loss.backward", [x, y, similar], [shape] * len(into), one,
                    inplace=[(i, j) for j, i in enumerate(into)], note=f"{note} into {into}",
                )  # fmt: skip


def softened(m: Maker) -> Iterator[Example]:
    """Softmax losses with label smoothing, or with a matrix of what mistakes cost."""
    for k, shape in enumerate([(4, 10), (2, 5, 3, 4), (3, 1), (70, 300), (2, 21, 30, 31)]):
        x = m.normal(*shape) * 3
        e = np.exp(x - x.max(1, keepdims=True))
        prob, classes = e / e.sum(1, keepdims=True), shape[1]
        label = m.random.integers(0, classes, (shape[0], *shape[2:])).astype(np.int32)
        for smoothing, ignored, mode in ((0.1, None, "VALID"), (1.0, 0, "FULL"), (0.0, 2, "VALID")):
            matrix = [] if smoothing else [np.abs(m.normal(classes, classes))]
            a = attrs(axis=1, ignore_label=ignored, normalization=mode, loss_weight=0.5, label_smoothing=smoothing)
            note = f"smoothing {smoothing} ignore {ignored}"
            if matrix and k % 2:
                matrix = [matrix[0].reshape(1, 1, classes, classes)]
            yield m.example("softmax_loss.forward", [x, label, *matrix], [(1,), shape], a, note=note)
            yield m.example("softmax_loss.backward", [prob, label, *matrix], [shape], a, inplace=[(0, 0)], note=note)
