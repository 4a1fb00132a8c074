"""Softmax, losses, accuracy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.op_examples.maker import Example, Maker, attrs


def losses(m: Maker) -> Iterator[Example]:
    for shape, axis in [
        ((4, 10), 1),
        ((2, 5, 3, 4), 1),
        ((2, 3, 4), 1),
        ((2, 3, 4), 2),
        ((64, 1000), -1),
        ((2, 21, 40, 50), 1),
    ]:
        x, dy = m.normal(*shape) * 3, m.normal(*shape)
        e = np.exp(x - x.max(axis, keepdims=True))
        prob = e / e.sum(axis, keepdims=True)
        yield m.example("softmax.forward", [x], [shape], attrs(axis=axis), inplace=[(0, 0)], note=f"axis {axis}")
        yield m.example(
            "softmax.backward", [prob, dy], [shape], attrs(axis=axis), inplace=[(1, 0)], note=f"axis {axis}"
        )
        if axis % len(shape) != 1:
            continue
        labels = (shape[0],) if len(shape) == 2 else (shape[0], *shape[2:])
        for ignore, mode in ((None, "VALID"), (2, "VALID"), (2, "FULL"), (None, "BATCH_SIZE"), (0, "NONE")):
            label = m.random.integers(0, shape[1], labels).astype(np.int32)
            a = attrs(axis=axis, ignore_label=ignore, normalization=mode, loss_weight=0.5, label_smoothing=0.0)
            note = f"ignore {ignore} {mode}"
            yield m.example("softmax_loss.forward", [x, label], [(1,), shape], a, note=note)
            yield m.example("softmax_loss.backward", [prob, label], [shape], a, inplace=[(0, 0)], note=note)
        for top_k, ignore in ((1, None), (3, None), (1, 1)):
            a = attrs(top_k=top_k, axis=axis, ignore_label=ignore)
            scores = np.round(x)  # ties
            yield m.example("accuracy.forward", [scores, label], [(1,)], a, note=f"top {top_k} ignore {ignore}")
            yield m.example("accuracy.by_class", [scores, label], [(shape[axis],)], a, note=f"top {top_k} {ignore}")
    ones = [np.float32([v]) for v in (0.5, 2.0, -1.0)]
    yield m.example("objective.forward", ones, [(1,)], attrs(weights=(1.0, 0.3, 0.3)))


def objectives(m: Maker) -> Iterator[Example]:
    """Any top as a loss: the sum of its elements, and its gradient, which is one number."""
    for shape in [(1,), (7,), (4, 13), (3, 5, 6, 7), (2, 3, 4), (70001,), (2, 64, 28, 28)]:
        yield m.example("objective.sum", [m.normal(*shape)], [(1,)])
        yield m.example("gradient.fill", [], [shape], attrs(value=0.3), exact=True)
        yield m.example("gradient.fill", [np.float32([8, 3])], [shape], attrs(value=-0.3), exact=True, note="scaled")
