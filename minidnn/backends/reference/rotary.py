"""RotaryEmbedding: pairs of each head's numbers turned by angles that grow with the token's place."""

from __future__ import annotations

import numpy as np


def turn(a, x, y, sign, places=None):
    """y is x with each pair (u, v) turned to (u cos - v sin, v cos + u sin); sign -1 turns back. y may be x."""
    places = np.arange(a.first, a.first + a.tokens) if places is None else places
    half, rotated = a.depth // 2, a.heads * a.depth
    angles = places[:, None] * a.base ** (-2 * np.arange(half) / a.depth)
    cos, sin = (f(angles)[:, None].astype(x.dtype) for f in (np.cos, np.sin))
    heads = x[..., :rotated].reshape(*x.shape[:2], a.heads, a.depth)
    u, v = (heads[..., ::2], heads[..., 1::2]) if a.interleaved else (heads[..., :half], heads[..., half:])
    turned = u * cos - sign * v * sin, v * cos + sign * u * sin
    y[..., rotated:] = x[..., rotated:]
    both = np.stack(turned, -1) if a.interleaved else np.concatenate(turned, -1)
    y[..., :rotated] = both.reshape(*x.shape[:2], rotated)


def forward(a, reads, writes):
    """x (places) -> y."""
    turn(a, reads[0], writes[0], 1, *reads[1:])


def backward(a, reads, writes):
    """dy -> dx."""
    turn(a, reads[0], writes[0], -1)


KINDS = {"rotary.forward": forward, "rotary.backward": backward}
