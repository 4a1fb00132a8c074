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
    norm = np.sqrt(sum(float(np.vdot(dw.astype(np.float64), dw.astype(np.float64))) for dw in reads))
    writes[0][0] = a.threshold / norm if norm > a.threshold else 1.0


def sgd(a, reads, writes):
    """g = dw clip / iter_size, + decay w (L2) or decay sign(w) (L1); h = momentum h + rate lr_mult g; w -= h.

    With an objective that is not finite nothing is changed, so that the failing step can be run again and looked at.
    """
    w, dw, rate, objective, *rest = reads
    if not np.isfinite(objective[0]):
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
