"""Attention, head by head: y = softmax(scale * q k' + bias) v, for some queries at a time: bytes grow with the keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidnn.backends import philox
from minidnn.backends.reference.products import products

BLOCK = 256  # queries


def heads(a, arrays):
    """q (N, T, heads, d), k and v (N, S, kv_heads, d), or their gradients, as views; from the packed one, or three."""
    counts = a.heads, a.kv_heads, a.kv_heads
    if a.packed:
        each = arrays[0].reshape(*arrays[0].shape[:2], sum(counts), a.depth)
        return tuple(np.split(each, np.cumsum(counts)[:2], axis=2))
    return tuple(x.reshape(*x.shape[:2], count, a.depth) for x, count in zip(arrays, counts, strict=True))


def factors(a, row, queries, iteration, dtype):
    """The factors of probabilities: 0 for those that are dropped. A row of them begins a block of words of its own.

    row: the number of the head's first query among all heads and samples"""
    blocks = philox.blocks_of(a.keys)
    count = (row + queries[-1] + 1) * blocks - (first := (row + queries[0]) * blocks)
    words = philox.words(4 * count, a.seed, iteration, a.key, first).reshape(len(queries), -1)[:, : a.keys]
    return np.where(words >= philox.threshold(a.ratio), dtype.type(1 / (1 - a.ratio)), dtype.type(0))


def product(left, right, transpose_left=False, transpose_right=False):
    """The product of two matrices, whose bits depend on their shapes alone."""
    return products(left[None], right[None], transpose_left, transpose_right)[0]


def biases(a, tensor):
    """The bias, or its gradient, as a function of sample and head: (all queries, keys), or None if there is none."""
    if tensor is None:
        return lambda n, h: None
    each = tensor.reshape(*a.bias, a.queries, a.keys)
    return lambda n, h: each[n % a.bias[0], h % a.bias[1]]


def scores_of(a, q, k, queries, bias=None, place=None):
    """scale * q k' + bias, -inf where a query does not see the key: (queries, keys). `place`: that of query 0, if
    told."""
    scores = product(q[queries], k, transpose_right=True) * q.dtype.type(a.scale)
    if bias is not None:
        scores += bias[queries]
    return np.where(a.seen(queries[:, None], np.arange(a.keys), place), scores, -np.inf).astype(q.dtype)


def blocks(a, samples) -> Iterator[tuple[int, int, int, int, np.ndarray]]:
    """(sample, head, head of k and v, the head's first row of all, queries) for each block of queries of each head."""
    for n in range(samples):
        for h in range(a.heads):
            for first in range(0, a.queries, BLOCK):
                queries = np.arange(first, min(first + BLOCK, a.queries))
                yield n, h, h // (a.heads // a.kv_heads), (n * a.heads + h) * a.queries, queries


def forward(a, reads, writes):
    """q k v, or one that has all three, (bias) (iteration) -> y (lse): the logarithms of the sums of e^score."""
    (q, k, v), (y, *lse) = heads(a, reads[: a.inputs]), writes
    bias = biases(a, reads[a.inputs] if a.bias else None)
    attend(a, q, k, v, y, lse, int(reads[-1][0]) if a.ratio else None, bias=bias)


def forward_kept(a, reads, writes):
    """q k v, or one that has all three, keys values places -> y keys values: those of the places are k and v."""
    (q, k, v), places, (y, *kept) = heads(a, reads[: a.inputs]), reads[-1], writes
    keys, values = (x.reshape(*x.shape[:2], a.kv_heads, a.depth) for x in kept)
    keys[:, places], values[:, places] = k, v
    attend(a, q, keys, values, y, place=int(places[0]), bias=biases(a, None))


def attend(a, q, k, v, y, lse=(), iteration=None, place=None, *, bias):
    """Leaves y, and the logarithms of the sums."""
    out = y.reshape(*y.shape[:2], a.heads, a.depth)
    for n, h, kv, row, queries in blocks(a, len(q)):
        scores = scores_of(a, q[n, :, h], k[n, :, kv], queries, bias(n, h), place)
        most = scores.max(1, keepdims=True)
        weights = np.exp(scores - most)
        total = weights.sum(1, keepdims=True)
        if a.ratio:
            weights *= factors(a, row, queries, iteration, y.dtype)
        out[n, queries, h] = product(weights, v[n, :, kv]) / total
        if lse:
            lse[0][n, queries, h] = (most + np.log(total))[:, 0]


def gradients(a, given, writes):
    """dq, dk and dv in the shapes of q, k and v; None for those that are not wanted."""
    places = iter(writes)
    return [next(places).reshape(t.shape) if wanted else None for t, wanted in zip(given, a.gradients, strict=True)]


def backward(a, reads, writes):
    """q k v, or one that has all three, y lse dy (bias) (iteration) -> dq dk dv, those that are wanted, or one of all
    three, (dbias).

    With the probabilities p = e^(scores - lse), their factors f of dropout, and g = f (dy v'), dv = (f p)' dy, the
    scores' gradient is p (g - the sum of dy y), dq = scale * that k, and dk = scale * its transpose q. The bias's is
    the sum of the scores' over all samples and heads that share it."""
    (q, k, v), (y, lse, dy) = heads(a, reads[: a.inputs]), reads[a.inputs : a.inputs + 3]
    out, arriving = (x.reshape(*x.shape[:2], a.heads, a.depth) for x in (y, dy))
    dq, dk, dv = heads(a, writes) if a.packed and a.gradients[0] else gradients(a, (q, k, v), writes)
    bias, to_bias = biases(a, reads[a.inputs + 3] if a.bias else None), writes[-1] if a.bias_gradient else None
    for d in (dk, dv, to_bias):
        if d is not None:
            d[...] = 0
    dbias = biases(a, to_bias)
    for n, h, kv, row, queries in blocks(a, len(q)):
        own = arriving[n, queries, h]
        p = np.exp(scores_of(a, q[n, :, h], k[n, :, kv], queries, bias(n, h)) - lse[n, queries, h, None])
        g, kept = product(own, v[n, :, kv], transpose_right=True), p
        if a.ratio:
            f = factors(a, row, queries, int(reads[-1][0]), y.dtype)
            g, kept = g * f, p * f
        slopes = p * (g - (own * out[n, queries, h]).sum(1, keepdims=True))
        if to_bias is not None:
            dbias(n, h)[queries] += slopes
        slopes *= y.dtype.type(a.scale)
        if dv is not None:
            dv[n, :, kv] += product(kept, own, transpose_left=True)
        if dk is not None:
            dk[n, :, kv] += product(slopes, q[n, queries, h], transpose_left=True)
        if dq is not None:
            dq[n, queries, h] = product(slopes, k[n, :, kv])


KINDS = {"attention.forward": forward, "attention.forward_kept": forward_kept, "attention.backward": backward}
