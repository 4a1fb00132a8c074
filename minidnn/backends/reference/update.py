"""What becomes of weight gradients: accumulation, clipping, and Caffe's SGD."""

from __future__ import annotations

import numpy as np


def accumulate(a, reads, writes):
    (total, dw), (out,) = reads, writes
    np.add(total, dw, out=out)


def clear(a, reads, writes):
    writes[0].fill(0)


def clip(a, reads, writes):
    """threshold / norm where the norm of all gradients together exceeds the threshold, else 1."""
    norm = norm_of(reads)
    writes[0][0] = a.threshold / norm if norm > a.threshold else 1.0


def norm_of(gradients):
    return np.sqrt(sum(float(np.vdot(dw.astype(np.float64), dw.astype(np.float64))) for dw in gradients))


def unscale(a, reads, writes):
    """The factor that undoes the scale, and clips; not a number where the step does not count. The scale's next value.

    With an objective that is not finite nothing changes."""
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

    With an objective that is not finite nothing is changed, so that the failing step can be run again and looked at;
    nor with a factor (clip) that is not: the step does not count.
    """
    w, dw, rate, objective, *rest = reads
    if not np.isfinite(objective[0]) or (a.clipped and not np.isfinite(rest[-1][0])):
        return
    number = w.dtype.type
    g = dw * rest.pop()[0] if a.clipped else dw
    g = g * number(a.scale)
    if a.decay:
        g = g + number(a.decay) * (w if a.regularization == "L2" else np.sign(w))
    step = (rate[0] * number(a.lr_mult)) * g
    if rest:
        step = number(a.momentum) * rest[0] + step
        writes[1][...] = step
    np.subtract(w, step, out=writes[0])
