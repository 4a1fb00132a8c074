"""BatchNorm (normalization.c), alone or fused with the Scale and the ReLU after it (programs/fusion/).

Each direction makes two passes over memory. Forward reads x twice and writes y; fused, each pass is an op of its own.
The normalized x, which the gradient of Scale needs, is not stored: backward recomputes it from x, and also the sign of
the ReLU's input.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch
from minidnn.backends.layout import channels_last
from minidnn.program import Op

HEIGHT = 128  # most rows of a piece, whose sums are float32
SHARES = 8  # the number of pieces is a multiple of this, so that up to 8 threads have equal shares


class Geometry(Mirrored):
    twin = "normalization"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "c", "height", "rectified", "threads")),
        ("eps", ctypes.c_double),
    )


def forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y mean variance."""
    return _recipes(native, op, "batch_norm_forward", _strides)


def moments(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> mean variance."""
    return _recipes(native, op, "batch_norm_moments", _strides)


def normalize(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x mean variance gamma beta -> y."""
    return _recipes(native, op, "batch_norm_normalize", _strides)


def _strides(reads: list[int], writes: list[int]) -> list[int]:
    return [*reads, *writes]


def inference(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x mean_sum variance_sum factor (gamma beta) -> y."""

    def arguments(reads: list[int], writes: list[int]) -> list[int]:
        return [*reads, *([] if len(reads) == 6 else [0, 0]), *writes]

    return _recipes(native, op, "batch_norm_inference", arguments)


def backward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x mean variance (gamma beta) dy -> dx (dgamma dbeta)."""

    def arguments(reads: list[int], writes: list[int]) -> list[int]:
        x, mean, variance, *scale, dy = reads
        dx, *gradients = writes
        return [x, mean, variance, *(scale or [0, 0]), dy, dx, *(gradients or [0, 0])]

    return _recipes(native, op, "batch_norm_backward", arguments)


def _recipes(native: Native, op: Op, name: str, arguments: Callable[[list[int], list[int]], list[int]]) -> list[Recipe]:
    """One recipe if channels are innermost, else none. `arguments` puts the addresses in the order of the C function
    `name`, with 0 for a tensor that is absent."""
    x = op.reads[0]
    if not channels_last(x.shape):
        return []
    c = x.shape[1]
    rows = x.size // c
    pieces = -(-rows // (HEIGHT * SHARES)) * SHARES
    geometry = Geometry(rows, c, -(-rows // pieces), op.kind.endswith("_relu"), native.threads, op.attrs.eps)
    run = native.function(name)
    scratch = Scratch()
    piece = scratch.take(native.bytes("batch_norm_bytes", geometry))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        given = arguments([address(t) for t in reads], [address(t) for t in writes])
        return [bound(run, geometry, *given, piece.address(workspace))]

    return [scratch.recipe(NAME, bind)]


FIRST = {
    "batch_norm.forward": forward,
    "batch_norm.moments": moments,
    **{f"batch_norm.normalize_scale{relu}": normalize for relu in ("", "_relu")},
    **{f"batch_norm.inference{behind}": inference for behind in ("", "_scale", "_scale_relu")},
    **{f"batch_norm.backward{behind}": backward for behind in ("", "_scale", "_scale_relu")},
}
