"""What oneDNN hides: its max pooling passes over NaN, its softmax clamps it away, and a run that has diverged would
train on with a loss that looks right. Both are looked at afterwards or before, and where a value is not finite the
reference's kernel, the definition of right, does the whole op. That is where no C compiler is: our own kernels
(native/) keep NaN by themselves.

Cost: NumPy's largest and smallest of what is read or written, at the speed of memory and without allocating. The
reference's kernel does allocate; such a step is a training's last, for its loss is not finite.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from minidnn.backends import reference
from minidnn.backends.cpu import dnnl as d
from minidnn.backends.cpu.layout import flat

LOWEST = np.finfo(np.float32).min  # what the library's max pooling begins with, where -inf belongs


def finite(run: np.ndarray) -> bool:
    """Whether all elements are (or False where the largest less the smallest is more than a float32 holds)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(np.maximum.reduce(run) - np.minimum.reduce(run))


def softmax(attrs, x: np.ndarray, y: np.ndarray, fast: d.Call) -> d.Call:
    """`fast` where all scores are finite. Looked at before: the result may lie on them."""
    scores, slow = flat(x), partial(reference.KERNELS["softmax.forward"], attrs, [x], [y])

    def call() -> None:
        (fast if finite(scores) else slow)()

    return call


def max_pooling(attrs, reads, writes, fast: d.Call) -> d.Call:
    """`fast`, then the reference if there is a NaN, or a window of nothing but -inf."""
    x, y = flat(reads[0]), flat(writes[0])
    slow = partial(reference.KERNELS["pooling.forward"], attrs, list(reads), list(writes))

    def call() -> None:
        fast()
        with np.errstate(invalid="ignore"):
            hides = math.isnan(np.maximum.reduce(x)) or np.minimum.reduce(y) <= LOWEST
        if hides:
            slow()

    return call
