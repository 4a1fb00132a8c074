"""Sums of gradients over micro-batches and ranks, along a balanced binary tree (programs/updates.py)."""

from __future__ import annotations

import numpy as np


def accumulate(a, reads, writes):
    """sums dw iteration -> sums: dw is a leaf of the tree (SumAttrs), as the micro-batch of that number."""
    (_, dw, iteration), (out,) = reads, writes
    sums, k = out.reshape(-1, dw.size), int(iteration[0]) % a.every
    total, waiting = dw.reshape(-1).astype(out.dtype), k.bit_count()
    while k & 1:
        waiting, k = waiting - 1, k >> 1
        total = sums[waiting] + total
    sums[waiting] = total


def total(a, reads, writes):
    """sums dw -> the sum of all micro-batches, of which dw is the last."""
    (sums, dw), (out,) = reads, writes
    sums, result = sums.reshape(-1, dw.size), dw.reshape(-1).astype(out.dtype)
    for waiting in reversed(range((a.every - 1).bit_count())):
        result = sums[waiting] + result
    out[...] = result.reshape(dw.shape)


def merge(a, reads, writes):
    """rows (dw) -> shard: the sum of the rows, one of each rank, along the tree (SumAttrs), then zeros."""
    rows, (out,) = reads[0].reshape(a.ranks, -1), writes
    waiting: list[np.ndarray] = []
    for k in range(a.ranks):
        result = rows[k, : a.own].astype(out.dtype)
        while k & 1:
            result, k = waiting.pop() + result, k >> 1
        waiting.append(result)
    while len(waiting) > 1:
        last = waiting.pop()
        waiting[-1] = waiting[-1] + last
    out[: a.own] = waiting[0]
    out[a.own :] = 0


KINDS = {"gradient.accumulate": accumulate, "gradient.total": total, "gradient.merge": merge}
