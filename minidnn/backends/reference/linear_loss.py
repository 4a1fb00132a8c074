"""The softmax loss of an inner product, and its gradients, some rows at a time."""

from __future__ import annotations

import numpy as np

from minidnn.backends.reference.loss import TINY, divided_by, softmax, valid_labels
from minidnn.backends.reference.products import products

ROWS = 256


def forward(a, reads, writes):
    """x w label (b) -> loss (dx) (dw) (db). The loss is that of SoftmaxWithLoss, of the scores x w' + b. The gradients
    are of the loss times a.loss_weight."""
    (x, w, label, *b), (loss, *gradients) = reads, writes
    dx, dw, db = (dict(zip(a.gradients, gradients, strict=True)).get(name) for name in ("dx", "dw", "db"))
    x = x.reshape(-1, w.shape[1])
    flat, counts = valid_labels(label, len(w), a.ignore_label)
    divisor = divided_by(a.normalization, len(flat), int(counts.sum()), len(flat))
    total, to_x = 0.0, np.empty_like(x)
    for d in (dw, db):
        if d is not None:
            d[...] = 0
    for first in range(0, len(x), ROWS):
        rows = slice(first, first + ROWS)
        scores = products(x[None, rows], w[None], transpose_right=True)[0]
        if b:
            scores += b[0]
        p, there, own = softmax(scores, 1), counts[rows], flat[rows]
        places = np.arange(len(own))
        terms = -np.log(np.maximum(p[places, own], TINY))
        if a.label_smoothing:
            logs = scores.max(1) - np.log(p.max(1)) - scores.mean(1)
            terms = (1 - a.label_smoothing) * terms + a.label_smoothing * logs
        total += terms[there].sum(dtype=np.float64)
        if gradients:
            slopes = p - a.label_smoothing / len(w)
            slopes[places, own] -= 1 - a.label_smoothing
            slopes[~there] = 0
            slopes = (slopes * (a.loss_weight / divisor)).astype(x.dtype)
            if dx is not None:
                to_x[rows] = products(slopes[None], w[None])[0]
            if dw is not None:
                dw += products(slopes[None], x[None, rows], transpose_left=True)[0]
            if db is not None:
                db += slopes.sum(0)
    if dx is not None:
        dx[...] = to_x.reshape(dx.shape)
    loss[0] = total / divisor


KINDS = {"linear_loss.forward": forward}
