"""Sums of squares by blocks, clipping, the loss's scale, and the ratios of LARS and LAMB."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.rules import counts
from minidnn.backends.reference.squares import squares, totals


def gradient_squares(a, reads, writes):
    """x1 .. xn -> the sums of their blocks' squares."""
    writes[0][...] = squares(*reads)


def clip(a, reads, writes):
    """sums -> factor (1,): threshold / norm if the norm of all gradients exceeds the threshold, else 1."""
    norm = np.sqrt(sum(totals(a.blocks, reads[0])))
    writes[0][0] = a.threshold / norm if norm > a.threshold else 1.0


def unscale(a, reads, writes):
    """state objective sums -> state factor. The state (2,) is the loss scale and the good steps since it changed.

    The factor (1,) undoes the scale and clips. After a.period good steps the scale is doubled, but not above a.most. If
    the gradients are not finite, the scale is halved, but not below a.least. A halved scale makes the factor NaN, so
    that the step does not count. If the objective is not finite, the state stays as it is."""
    (scale, good), objective, sums = reads
    state, factor = writes
    norm = np.sqrt(sum(totals(a.blocks, sums))) / float(scale)
    factor[0] = (a.threshold / norm if 0 <= a.threshold < norm else 1.0) / float(scale)
    if not np.isfinite(objective[0]):
        return
    if np.isfinite(norm):
        due = good + 1 >= a.period
        state[...] = (scale * 2 if due and scale * 2 <= a.most else scale), (0 if due else good + 1)
    elif scale / 2 >= a.least:
        state[...] = scale / 2, 0
        factor[0] = np.nan


def norms(a, reads):
    """((the norm of the weight, that of the step), the reads behind the sums); zeros without sums."""
    return (np.sqrt(totals(a.blocks, reads[0])), reads[1:]) if a.blocks else ((0.0, 0.0), reads)


def lars_ratio(a, reads, writes):
    """(sums) objective (clip) -> ratio."""
    of, ((weight, gradient), (objective, *clip)) = a.rule, norms(a, reads)
    step = gradient * of.scale * (float(clip[0][0]) if clip else 1.0)
    ratio = of.numbers[1] * weight / (step + of.decay * weight) if weight > 0 and step > 0 else 1.0
    writes[0][0] = ratio if counts(objective, clip) else 0


def lamb_ratio(a, reads, writes):
    """(sums) objective (clip) -> ratio."""
    (weight, step), (objective, *clip) = norms(a, reads)
    ratio = weight / step if weight > 0 and step > 0 else 1.0
    writes[0][0] = ratio if counts(objective, clip) else 0


KINDS = {
    "gradient.squares": gradient_squares,
    "gradient.clip": clip,
    "gradient.unscale": unscale,
    "lars.ratio": lars_ratio,
    "lamb.ratio": lamb_ratio,
}
