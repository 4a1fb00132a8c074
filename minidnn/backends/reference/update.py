"""From gradients to weights: clipping, loss scaling, and Caffe's SGD."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.each import each
from minidnn.backends.reference.rules import counts, gradient


def clip(a, reads, writes):
    """dw1 .. dwn -> factor (1,): threshold / norm if the norm of all gradients exceeds the threshold, else 1."""
    norm = norm_of(reads)
    writes[0][0] = a.threshold / norm if norm > a.threshold else 1.0


def norm_of(gradients):
    """The L2 norm of all gradients as one vector, in float64."""
    return np.sqrt(sum(float(np.vdot(dw.astype(np.float64), dw.astype(np.float64))) for dw in gradients))


def unscale(a, reads, writes):
    """state objective dw1 .. dwn -> state factor. The state (2,) is the loss scale and the good steps since it changed.

    The factor (1,) undoes the scale and clips. After a.period good steps the scale is doubled, but not above a.most. If
    the gradients are not finite, the scale is halved, but not below a.least. A halved scale makes the factor NaN, so
    that the step does not count. If the objective is not finite, the state stays as it is."""
    (scale, good), objective, *gradients = reads
    state, factor = writes
    norm = norm_of(gradients) / float(scale)
    factor[0] = (a.threshold / norm if 0 <= a.threshold < norm else 1.0) / float(scale)
    if not np.isfinite(objective[0]):
        return
    if np.isfinite(norm):
        due = good + 1 >= a.period
        state[...] = (scale * 2 if due and scale * 2 <= a.most else scale), (0 if due else good + 1)
    elif scale / 2 >= a.least:
        state[...] = scale / 2, 0
        factor[0] = np.nan


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
    "gradient.clip": clip,
    "gradient.unscale": unscale,
    "sgd.update": sgd,
    "sgd.update_each": each(sgd),
}
