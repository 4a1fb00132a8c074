"""Optimizers other than SGD (optimizers/rule.py, optimizers/trust.py), each written like its formula."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.multi_tensor import multi_tensor
from minidnn.backends.reference.squares import squares
from minidnn.program import MULTI_TENSOR


def counts(objective, clip):
    """Whether the step counts: the objective, and the factor if there is one, are finite."""
    return np.isfinite(objective[0]) and all(np.isfinite(c[0]) for c in clip)


def gradient(a, w, dw, clip, decay=True):
    """dw times the factor, if there is one, and 1 / iter_size; and, if `decay`, what the decay adds."""
    number = w.dtype.type
    g = dw * clip[0][0] if len(clip) else dw
    g = g * number(a.scale)
    if a.decay and decay:
        g = g + number(a.decay) * (w if a.regularization == "L2" else np.sign(w))
    return g


def number_of(a, iteration):
    """The number of the update, from 1."""
    return int(iteration[0]) // a.every + 1


def nesterov(a, g, rate, _, h):
    (m,) = a.numbers
    before, h = h, m * h + rate * g
    return (1 + m) * h - m * before, h


def adagrad(a, g, rate, _, h):
    (delta,) = a.numbers
    h = h + g * g
    return rate * g / (np.sqrt(h) + delta), h


def rmsprop(a, g, rate, _, h):
    d, delta = a.numbers
    h = d * h + (1 - d) * (g * g)
    return rate * g / (np.sqrt(h) + delta), h


def adadelta(a, g, rate, _, h, k):
    m, delta = a.numbers
    h = m * h + (1 - m) * (g * g)
    u = g * np.sqrt((k + delta) / (h + delta))
    return rate * u, h, m * k + (1 - m) * (u * u)


def adam(a, g, rate, t, m, v):
    b1, b2, delta = a.numbers
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * (g * g)
    correction = np.sqrt(1 - b2**t) / (1 - b1**t)
    return rate * correction * m / (np.sqrt(v) + delta), m, v


def adamw(a, g, rate, t, m, v):
    b1, b2, _ = a.numbers
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * (g * g)
    return rate * corrected(a, t, m, v), m, v


def corrected(a, t, m, v):
    """The mean over the root of the squares' mean, both corrected for the first steps."""
    b1, b2, delta = a.numbers
    return m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + delta)


def update(rule, counted=False, apart=False):
    """The kernel of a rule: w dw rate objective state .. (iteration) (clip) -> w state .. In float64; results are
    rounded once. Nothing changes in a step that does not count.

    counted: whether it reads the iteration; apart: whether the decay is apart from the gradient"""

    def kernel(a, reads, writes):
        w, dw, rate, objective, *rest = reads
        clip = [rest.pop()] if a.clipped else []
        t = number_of(a, rest.pop()) if counted else 0
        if not counts(objective, clip):
            return
        wide = w.astype(np.float64)
        r = float(rate[0]) * a.lr_mult
        g = gradient(a, wide, dw.astype(np.float64), clip, not apart)
        step, *state = rule(a, g, r, t, *(h.astype(np.float64) for h in rest))
        for to, value in zip(writes[1:], state, strict=True):
            to[...] = value
        writes[0][...] = (wide * (1 - r * a.decay) if apart else wide) - step

    return kernel


def lars_update(a, reads, writes):
    """w dw rate objective h ratio (clip) -> w h."""
    w, dw, rate, objective, h, ratio, *clip = reads
    if ratio[0] == 0 or not counts(objective, clip):
        return
    wide = w.astype(np.float64)
    g = gradient(a, wide, dw.astype(np.float64), clip)
    step = a.numbers[0] * h.astype(np.float64) + float(rate[0]) * a.lr_mult * float(ratio[0]) * g
    writes[1][...] = step
    writes[0][...] = wide - step


def lamb_moments(a, reads, writes):
    """w dw objective m v iteration (clip) -> m v (sums). In a step that does not count, the means stay, and the sums
    are zeros."""
    (w, dw, objective, m, v, iteration, *clip), (to_m, to_v, *sums) = reads, writes
    if not counts(objective, clip):
        for zeros in sums:
            zeros[...] = 0
        return
    wide, (b1, b2, _) = w.astype(np.float64), a.numbers
    g = gradient(a, wide, dw.astype(np.float64), clip, decay=False)
    to_m[...], to_v[...] = b1 * m.astype(np.float64) + (1 - b1) * g, b2 * v.astype(np.float64) + (1 - b2) * g * g
    if sums:
        sums[0][...] = squares(wide, lamb_step(a, wide, to_m, to_v, iteration))


def lamb_step(a, w, m, v, iteration):
    return corrected(a, number_of(a, iteration), m.astype(np.float64), v.astype(np.float64)) + a.decay * w


def lamb_update(a, reads, writes):
    """w rate m v iteration ratio -> w."""
    w, rate, m, v, iteration, ratio = reads
    if ratio[0] != 0:
        u = lamb_step(a, w.astype(np.float64), m, v, iteration)
        writes[0][...] = w - float(rate[0]) * a.lr_mult * float(ratio[0]) * u


UPDATES = {
    "nesterov.update": update(nesterov),
    "adagrad.update": update(adagrad),
    "rmsprop.update": update(rmsprop),
    "adadelta.update": update(adadelta),
    "adam.update": update(adam, counted=True),
    "adamw.update": update(adamw, counted=True, apart=True),
    "lars.update": lars_update,
    "lamb.update": lamb_update,
}
KINDS = {
    **UPDATES,
    **{f"{kind}{MULTI_TENSOR}": multi_tensor(kernel) for kind, kernel in UPDATES.items()},
    "lamb.moments": lamb_moments,
}
