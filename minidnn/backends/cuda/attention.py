"""Attention (kernels/attention.cu), in float32 without tensor cores."""

from __future__ import annotations

import numpy as np

from minidnn.backends import philox
from minidnn.backends.cuda.recipe import (
    MOST_BLOCKS,
    Argument,
    Launch,
    Pointer,
    Read,
    Recipe,
    Scratch,
    Write,
    over,
    plain,
)
from minidnn.errors import BadInput
from minidnn.program import Op

TILE = 64  # queries, or keys, of a block
DEPTHS = 64, 128, 256  # for heads of at most so many numbers there are kernels


class TooDeep(BadInput, ValueError):
    """Heads have more numbers than any kernel takes; the message says how many."""


def forward(op: Op) -> list[Recipe]:
    """One recipe for q k v (iteration) -> y (lse), or for one tensor that has all three."""
    a, samples = op.attrs, op.reads[0].shape[0]
    lse = Write(1) if len(op.writes) == 2 else Write(0)
    ends = *_three(op, Read), _iteration(op), Write(0), lse, np.int32(len(op.writes) == 2)
    return [plain(_launch(op, "attention", ends, samples * a.heads * -(-a.queries // TILE)))]


def forward_kept(op: Op) -> list[Recipe]:
    """One recipe for q k v, or one tensor that has all three, keys values places -> y keys values."""
    a, samples = op.attrs, op.reads[0].shape[0]
    q, k, v = _three(op, Read)
    places, width = Read(len(op.reads) - 1), a.kv_heads * a.depth
    fresh = (a.heads + 2 * a.kv_heads) * a.depth if a.packed else width
    sizes = np.int64(samples), *(np.int32(n) for n in (a.queries, a.keys, width, fresh))
    keep = k, v, places, Write(1), Write(2), *sizes
    items = samples * a.heads * -(-a.queries // TILE)
    return [
        plain(
            Launch("attention", "attention_keep", keep, over(samples * a.queries * width)),
            _launch(op, "attention_kept", (q, Write(1), Write(2), places, Write(0)), items, kv_pitch=width),
        )
    ]


def backward(op: Op) -> list[Recipe]:
    """One recipe for q k v y lse dy (iteration) -> dq dk dv, those that are wanted, or for packed ones."""
    a, samples, scratch = op.attrs, op.reads[0].shape[0], Scratch()
    first = 1 if a.packed else 3
    y, lse, dy = (Read(first + i) for i in range(3))
    rows = samples * a.queries * a.heads
    delta = scratch.take(4 * rows)
    places = (Write(i) for i in range(3))
    dq, dk, dv = _three(op, Write) if a.packed else [next(places) if wanted else None for wanted in a.gradients]
    given = *_three(op, Read), lse, dy, _iteration(op), delta
    steps = [Launch("attention", "attention_delta", (y, dy, delta, np.int64(rows), np.int32(a.depth)), over(rows))]
    if dq is not None:
        steps.append(_launch(op, "attention_to_queries", (*given, dq), samples * a.heads * -(-a.queries // TILE)))
    if dk is not None or dv is not None:
        to: list[Argument] = [dk or dv, dv or dk, np.int32(dk is not None), np.int32(dv is not None)]  # type: ignore[list-item]
        steps.append(_launch(op, "attention_to_keys", (*given, *to), samples * a.kv_heads * -(-a.keys // TILE)))
    return [scratch.recipe("default", *steps)]


def _launch(op: Op, kernel: str, ends: tuple[Argument, ...], items: int, kv_pitch: int | None = None) -> Launch:
    """`kv_pitch`: that of k and v that do not lie as the op's reads have them."""
    a = op.attrs
    deep = next((d for d in DEPTHS if a.depth <= d), None)
    if deep is None:
        raise TooDeep(
            f"layer {op.layer}: heads of {a.depth} numbers; the cuda backend's kernels take at most {DEPTHS[-1]}: "
            "more heads have fewer"
        )
    both = (a.heads + 2 * a.kv_heads) * a.depth
    pitches = (both, both) if a.packed else (a.heads * a.depth, a.kv_heads * a.depth)
    pitches = (pitches[0], pitches[1] if kv_pitch is None else kv_pitch)
    sizes = a.queries, a.keys, a.heads, a.kv_heads, a.depth, *pitches, a.causal, a.window or 0
    words = a.key, a.seed, a.seed >> 32, philox.threshold(a.ratio)
    geometry = (
        np.int64(items), *(np.int32(n) for n in sizes), np.float32(a.scale),
        *(np.uint32(w & 0xFFFFFFFF) for w in words), np.float32(1 / (1 - a.ratio)),
    )  # fmt: skip
    return Launch("attention", f"{kernel}_{deep}", (*ends, *geometry), min(items, MOST_BLOCKS))


def _three(op: Op, end: type[Read] | type[Write]) -> list[Pointer]:
    """q, k and v, or their gradients."""
    a = op.attrs
    if not a.packed:
        return [end(i) for i in range(3)]
    behind = op.reads[0].nbytes // op.reads[0].size * a.depth
    return [end(0), end(0, behind * a.heads), end(0, behind * (a.heads + a.kv_heads))]


def _iteration(op: Op) -> Read:
    """Without dropout it is not read."""
    return Read(len(op.reads) - 1)


KINDS = {"attention.forward": forward, "attention.forward_kept": forward_kept, "attention.backward": backward}
