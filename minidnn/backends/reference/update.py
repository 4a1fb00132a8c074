"""From gradients to weights: Caffe's SGD."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.multi_tensor import multi_tensor
from minidnn.backends.reference.rules import counts, gradient


def sgd(a, reads, writes):
    """g = dw clip / iter_size, + decay w (L2) or decay sign(w) (L1); h = momentum h + rate lr_mult g; w -= h.

    If the objective is not finite, nothing changes, so that the failing step can be run again and examined. If the
    factor (clip) is not finite, nothing changes either: the step does not count.
    """
    w, dw, rate, objective, *rest = reads
    if not counts(objective, rest[-1:] if a.clipped else ()):
        return
    g = gradient(a, w, dw, [rest.pop()] if a.clipped else ())
    step = (rate[0] * w.dtype.type(a.lr_mult)) * g
    if rest:
        step = w.dtype.type(a.momentum) * rest[0] + step
        writes[1][...] = step
    np.subtract(w, step, out=writes[0])


KINDS = {
    "sgd.update": sgd,
    "sgd.update_multi_tensor": multi_tensor(sgd),
}
