"""BatchNorm (normalization.c), alone or fused with the Scale, the sum and the ReLU after it (programs/fusion/).

Each direction makes two passes over memory. Forward reads x twice and writes y; fused, each pass is an op of its own.
The normalized x, which the gradient of Scale needs, is not stored: backward recomputes it from x, and also the sign of
the ReLU's input.

In parts of the batch the passes of backward are ops of their own, too (memory/parts/passes.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from minidnn.backends.cpu.layout import address
from minidnn.backends.cpu.native import broadcast
from minidnn.backends.cpu.native.binding import NAME, Mirrored, Native, bound
from minidnn.backends.cpu.recipe import Call, Recipe, Scratch, plain
from minidnn.backends.layout import channels_last
from minidnn.program import Op

Arguments = Callable[[list[int], list[int]], list[int]]  # from the addresses of reads and of writes
HEIGHT = 128  # most rows of a piece, whose sums are float32
SHARES = 8  # the number of pieces is a multiple of this, so that up to 8 threads have equal shares


class Geometry(Mirrored):
    twin = "normalization"

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "c", "height", "rectified", "threads", "count")),
        ("eps", ctypes.c_double),
    )


class Parts(Mirrored):
    twin = "normalization_parts"

    _fields_ = tuple((name, ctypes.c_int64) for name in ("c", "parts"))


def forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> y mean variance."""
    return _recipes(native, op, "batch_norm_forward", _strides)


def moments(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x -> mean variance."""
    return _recipes(native, op, "batch_norm_moments", _strides)


def merge(native: Native, op: Op) -> list[Recipe]:
    """One recipe for a pair of each part -> one of all parts: mean variance, or two sums."""
    geometry = Parts(op.writes[0].size, len(op.reads) // 2)
    run = native.function(op.kind.replace(".", "_"))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], _: np.ndarray) -> list[Call]:
        addresses = (ctypes.c_void_p * len(reads))(*(address(t) for t in reads))
        to = (ctypes.c_void_p(address(t)) for t in writes)
        return [partial(run, ctypes.byref(geometry), addresses, *to)]

    return [plain(bind, NAME)]


def normalize(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x (shortcut) mean variance (gamma beta) -> y."""
    return _recipes(native, op, "batch_norm_normalize", _with_shortcut(op, 5))


def _strides(reads: list[int], writes: list[int]) -> list[int]:
    return [*reads, *writes]


def inference(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x (shortcut) mean_sum variance_sum factor (gamma beta) -> y."""
    return _recipes(native, op, "batch_norm_inference", _with_shortcut(op, 6))


def _with_shortcut(op: Op, scaled: int) -> Arguments:
    """The arguments of a C function that takes a shortcut behind x. scaled: the number of reads of an op that has gamma
    and beta, and no shortcut"""

    def arguments(reads: list[int], writes: list[int]) -> list[int]:
        x, *given = reads
        shortcut = [] if op.kind.endswith("_add_relu") else [0]
        return [x, *shortcut, *given, *([] if len(reads) >= scaled else [0, 0]), *writes]

    return arguments


def backward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x mean variance (gamma beta) dy -> dx (dgamma dbeta)."""

    def arguments(reads: list[int], writes: list[int]) -> list[int]:
        x, mean, variance, *scale, dy = reads
        dx, *gradients = writes
        return [x, mean, variance, *(scale or [0, 0]), dy, dx, *(gradients or [0, 0])]

    return _recipes(native, op, "batch_norm_backward", arguments)


def backward_sums(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x dy mean variance (gamma beta) -> dgamma dbeta."""

    def arguments(reads: list[int], writes: list[int]) -> list[int]:
        return [*reads, *([] if len(reads) == 6 else [0, 0]), *writes]

    return _recipes(native, op, "batch_norm_backward_sums", arguments)


def backward_data(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x dy mean variance (gamma beta) dgamma dbeta -> dx."""

    def arguments(reads: list[int], writes: list[int]) -> list[int]:
        *given, dgamma, dbeta = reads
        return [*given, *([] if len(given) == 6 else [0, 0]), dgamma, dbeta, *writes]

    return _recipes(native, op, "batch_norm_backward_data", arguments, op.attrs.count)


def _recipes(
    native: Native,
    op: Op,
    name: str,
    arguments: Arguments,
    count: int = 0,
) -> list[Recipe]:
    """One recipe if channels are innermost, else none. `arguments` puts the addresses in the order of the C function
    `name`, with 0 for a tensor that is absent. count: values per channel in the whole batch, where they count"""
    x = op.reads[0]
    if not channels_last(x.shape):
        return []
    c = x.shape[1]
    rows = x.size // c
    pieces = -(-rows // (HEIGHT * SHARES)) * SHARES
    geometry = Geometry(rows, c, -(-rows // pieces), op.kind.endswith("_relu"), native.threads, count, op.attrs.eps)
    run = native.function(name)
    scratch = Scratch()
    piece = scratch.take(native.bytes("batch_norm_bytes", geometry))

    def bind(reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], workspace: np.ndarray) -> list[Call]:
        given = arguments([address(t) for t in reads], [address(t) for t in writes])
        return [bound(run, geometry, *given, piece.address(workspace))]

    return [scratch.recipe(NAME, bind)]


def scale_forward(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x gamma (beta) -> y = x * gamma (+ beta), by channel."""
    x, gamma = op.reads[:2]
    return broadcast.product(native, x, gamma, axis=1)


def scale_backward_data(native: Native, op: Op) -> list[Recipe]:
    """One recipe for gamma dy -> dx = dy * gamma, by channel."""
    gamma, dy = op.reads
    return broadcast.product(native, dy, gamma, axis=1, factor=0)


def scale_backward_filter(native: Native, op: Op) -> list[Recipe]:
    """One recipe for x dy -> dgamma, the sums of x * dy by channel."""
    return broadcast.sums(native, op.reads[1], op.writes[0], axis=1)


FIRST = {
    "scale.forward": scale_forward,
    "scale.backward_data": scale_backward_data,
    "scale.backward_filter": scale_backward_filter,
    "batch_norm.forward": forward,
    "batch_norm.moments": moments,
    **{f"batch_norm.merge_{what}": merge for what in ("moments", "sums")},
    **{
        f"batch_norm.{what}{behind}": recipes
        for what, recipes in (
            ("normalize", normalize),
            ("inference", inference),
            ("backward", backward),
            ("backward_sums", backward_sums),
            ("backward_data", backward_data),
        )
        for behind in ("", "_scale", "_scale_relu")
    },
    "batch_norm.normalize_scale_add_relu": normalize,
    "batch_norm.inference_scale_add_relu": inference,
}
