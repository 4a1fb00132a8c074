"""Attention: on tensor cores (kernels/tensor_attention.cu), for heads that are not too deep for the registers, and in
float32 without (kernels/attention.cu), which also take a bias."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from minidnn.backends import philox
from minidnn.backends.cuda import tensor_cores
from minidnn.backends.cuda.recipe import (
    BLOCK,
    MOST_BLOCKS,
    Argument,
    Launch,
    Pointer,
    Read,
    Recipe,
    Scratch,
    Write,
    int32,
    over,
    plain,
)
from minidnn.errors import BadInput
from minidnn.program import Op

ROWS = 64  # queries, or keys, of a block
DEPTHS = 64, 128, 256  # for heads of at most so many numbers there are kernels
OTHERS = {  # (bytes of a number, depth) -> keys, or queries, that a block on tensor cores meets at a time
    (2, 64): 64, (2, 128): 32, (4, 64): 32, (4, 128): 16,
}  # fmt: skip
THREADS = 128  # of such a block


class TooDeep(BadInput, ValueError):
    """Heads have more numbers than any kernel takes; the message says how many."""


@dataclass(frozen=True)
class Kernels:
    """Those of one source for an op's heads: the algorithm's name, which numbers of a head they take, and what their
    launches have besides an op's geometry. `others`: see OTHERS; 0: the tiles have a fixed place in shared memory."""

    algorithm: str
    source: str
    deep: int
    block: int = BLOCK
    others: int = 0
    extra: tuple[Argument, ...] = ()

    def launch(
        self, op: Op, kernel: str, ends: tuple[Argument, ...], items: int, own: int, kv_pitch: int | None = None
    ) -> Launch:
        """own: how many tensors' rows a block keeps in shared memory; it meets rows of two others. `kv_pitch`: that of
        k and v that do not lie as the op's reads have them."""
        shared = (own * ROWS + 2 * self.others) * (self.deep * op.reads[0].itemsize + tensor_cores.UNIT)
        name = f"{self.source}{kernel}_{self.deep}"
        arguments = (*ends, *self.extra, *_geometry(op, items, kv_pitch))
        return Launch(self.source, name, arguments, min(items, MOST_BLOCKS), self.block, shared if self.others else 0)


def forward(op: Op) -> list[Recipe]:
    """One recipe for q k v (bias) (iteration) -> y (lse), or for one tensor that has q, k and v."""
    return [_forward(op, _without_tensor_cores(op))]


def forward_kept(op: Op) -> list[Recipe]:
    """One recipe for q k v, or one tensor that has all three, keys values places -> y keys values."""
    a, samples = op.attrs, op.reads[0].shape[0]
    q, k, v = _three(op, Read)
    places, width = Read(len(op.reads) - 1), a.kv_heads * a.depth
    fresh = (a.heads + 2 * a.kv_heads) * a.depth if a.packed else width
    sizes = np.int64(samples), *(int32(n) for n in (a.queries, a.keys, width, fresh))
    keep = k, v, places, Write(1), Write(2), *sizes
    ends, items = (q, Write(1), Write(2), places, Write(0)), samples * a.heads * -(-a.queries // ROWS)
    return [
        plain(
            Launch("attention", "attention_keep", keep, over(samples * a.queries * width)),
            _without_tensor_cores(op).launch(op, "_kept", ends, items, own=1, kv_pitch=width),
        )
    ]


def backward(op: Op) -> list[Recipe]:
    """One recipe for q k v y lse dy (bias) (iteration) -> dq dk dv dbias, those that are wanted, or for packed ones."""
    return [_backward(op, _without_tensor_cores(op))]


def forward_on_tensor_cores(op: Op) -> list[Recipe]:
    """As `forward`; none if heads are too deep, or for a bias."""
    return [_forward(op, kernels) for kernels in _on_tensor_cores(op)]


def backward_on_tensor_cores(op: Op) -> list[Recipe]:
    """As `backward`; none if heads are too deep, or for a bias."""
    return [_backward(op, kernels) for kernels in _on_tensor_cores(op)]


def _without_tensor_cores(op: Op) -> Kernels:
    depth = op.attrs.depth
    if depth > DEPTHS[-1]:
        raise TooDeep(
            f"layer {op.layer}: heads of {depth} numbers; the cuda backend's kernels take at most {DEPTHS[-1]}: "
            "more heads have fewer"
        )
    return Kernels("default", "attention", next(d for d in DEPTHS if depth <= d), extra=_bias(op))


def _on_tensor_cores(op: Op) -> Iterator[Kernels]:
    size, depth = op.reads[0].itemsize, op.attrs.depth
    if op.attrs.bias is not None:
        return
    for deep in sorted(d for s, d in OTHERS if s == size and depth <= d)[:1]:
        unit = int32(tensor_cores.unit(depth * size))
        yield Kernels(tensor_cores.NAME, "tensor_attention", deep, THREADS, OTHERS[size, deep], (unit,))


def _forward(op: Op, kernels: Kernels) -> Recipe:
    a, samples = op.attrs, op.reads[0].shape[0]
    lse = Write(1) if len(op.writes) == 2 else Write(0)
    ends = *_three(op, Read), _iteration(op), Write(0), lse, int32(len(op.writes) == 2)
    launch = kernels.launch(op, "", ends, samples * a.heads * -(-a.queries // ROWS), own=1)
    return plain(launch, name=kernels.algorithm)


def _backward(op: Op, kernels: Kernels) -> Recipe:
    a, samples, scratch = op.attrs, op.reads[0].shape[0], Scratch()
    y, lse, dy = (Read(a.inputs + i) for i in range(3))
    rows = samples * a.queries * a.heads
    delta = scratch.take(4 * rows)
    places = (Write(i) for i in range(3))
    packed = a.packed and a.gradients[0]
    dq, dk, dv = _three(op, Write) if packed else [next(places) if wanted else None for wanted in a.gradients]
    given = *_three(op, Read), lse, dy, _iteration(op), delta
    ends = y, dy, delta, np.int64(rows), int32(a.depth)
    steps = [Launch(kernels.source, "attention_delta", ends, over(rows))]
    if dq is not None:
        items = samples * a.heads * -(-a.queries // ROWS)
        steps.append(kernels.launch(op, "_to_queries", (*given, dq), items, own=2))
    if dk is not None or dv is not None:
        to: list[Argument] = [dk or dv, dv or dk, int32(dk is not None), int32(dv is not None)]  # type: ignore[list-item]
        items = samples * a.kv_heads * -(-a.keys // ROWS)
        steps.append(kernels.launch(op, "_to_keys", (*given, *to), items, own=2))
    if a.bias_gradient:
        steps += _to_bias(op, scratch, given)
    return scratch.recipe(kernels.algorithm, *steps)


def _to_bias(op: Op, scratch: Scratch, given: tuple[Argument, ...]) -> list[Launch]:
    """The launches for the bias's gradient, in as many pieces as make enough blocks."""
    a, size, samples = op.attrs, op.writes[-1].size, op.reads[0].shape[0]
    sharing, pieces = a.sharing(samples), a.pieces(samples)
    items = pieces * math.prod(a.bias) * -(-a.queries // ROWS) * -(-a.keys // ROWS)
    partial = scratch.take(4 * pieces * size)
    numbers = partial, np.int64(sharing), np.int64(-(-sharing // pieces)), *_bias(op), *_geometry(op, items, None)
    return [
        Launch("attention", "attention_to_bias", (*given, *numbers), min(items, MOST_BLOCKS), BLOCK),
        Launch(
            "attention",
            "attention_sum_pieces",
            (partial, Write(len(op.writes) - 1), np.int64(pieces), np.int64(size)),
            over(size),
        ),
    ]


def _bias(op: Op) -> tuple[Argument, ...]:
    """The arguments BIAS of the kernels; without a bias its pointer is not read."""
    a, shares = op.attrs, op.attrs.bias or (0, 1)
    place = a.inputs + (3 if op.kind == "attention.backward" else 0)
    return Read(place if a.bias else 0), *(int32(n) for n in shares)


def _geometry(op: Op, items: int, kv_pitch: int | None) -> tuple[np.generic, ...]:
    a = op.attrs
    both = (a.heads + 2 * a.kv_heads) * a.depth
    pitches = (both, both) if a.packed else (a.heads * a.depth, a.kv_heads * a.depth)
    pitches = (pitches[0], pitches[1] if kv_pitch is None else kv_pitch)
    sizes = a.queries, a.keys, a.heads, a.kv_heads, a.depth, *pitches, a.causal, a.window or 0
    words = a.key, a.seed, a.seed >> 32, philox.threshold(a.ratio)
    return (
        np.int64(items), *(int32(n) for n in sizes), np.float32(a.scale),
        *(np.uint32(w & 0xFFFFFFFF) for w in words), np.float32(1 / (1 - a.ratio)),
    )  # fmt: skip


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
ON_TENSOR_CORES = {
    "attention.forward": forward_on_tensor_cores,
    "attention.backward": backward_on_tensor_cores,
}
