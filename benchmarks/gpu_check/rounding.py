"""An op's example in each number format, and the error that its results may have.

An error is relative to the largest value of the result, or to 1 if that is larger.

float32, TF32 forbidden. Our kernels add in another order than NumPy: 2e-5. cuDNN may use Winograd's transform: 2e-4.
float32, TF32 allowed.   Products round each operand to 11 bits, so a product is off by up to 2^-10. In a sum of many
                         products, such errors of both signs grow as the sum itself does: 5 times that, 5e-3.
bfloat16, float16.       Operands are the same 16 bits on both sides, and sums are in float32. So only rounding differs.
                         A result that is stored once is off by half a spacing of its largest value (2^-8, 2^-11). Each
                         result that a kind's kernels store in between, and Winograd's transformed tiles, add halves
                         (ROUNDINGS, WINOGRAD). float32's allowance is added. Tensors that stay float32 have only that.
Kinds that only move values, or round an exact result once, must give the same bits (Example.exact).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from minidnn.backends.cuda.device import OF_CUDNN, ON_TENSOR_CORES
from minidnn.backends.reference import KERNELS
from minidnn.formats import HALF, usable, widened
from minidnn.program import Op, Tensor
from tests.support.op_examples import Example

OURS, CUDNN, TF32 = 2e-5, 2e-4, 5e-3
HALF_SPACING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}

# kind -> the reads (r) and writes (w) that are float32 in any format of the net (programs/autodiff.py, layers/)
FLOAT32 = {
    "input.transform": ("r0",),
    "gradient.accumulate": ("r0",),
    "gradient.total": ("r0", "w0"),
    "gradient.merge": ("w0",),
    "batch_norm.forward": ("w1", "w2"),
    "batch_norm.backward": ("r1", "r2"),
    "batch_norm.inference": ("r1", "r2", "r3"),
    "batch_norm.moments": ("w0", "w1"),
    "batch_norm.normalize": ("r1", "r2"),
    **{f"batch_norm.normalize_scale{relu}": ("r1", "r2", "r3", "r4") for relu in ("", "_relu")},
    "batch_norm.normalize_scale_add_relu": ("r2", "r3", "r4", "r5"),
    **{f"batch_norm.backward_scale{relu}": ("r1", "r2", "r3", "r4", "w1", "w2") for relu in ("", "_relu")},
    "batch_norm.backward_sums": ("r2", "r3", "w0", "w1"),
    **{f"batch_norm.backward_sums_scale{relu}": ("r2", "r3", "r4", "r5", "w0", "w1") for relu in ("", "_relu")},
    "batch_norm.backward_data": ("r2", "r3", "r4", "r5"),
    **{f"batch_norm.backward_data_scale{relu}": ("r2", "r3", "r4", "r5", "r6", "r7") for relu in ("", "_relu")},
    **{f"batch_norm.inference_scale{relu}": ("r1", "r2", "r3", "r4", "r5") for relu in ("", "_relu")},
    "batch_norm.inference_scale_add_relu": ("r2", "r3", "r4", "r5", "r6"),
    "batch_norm.inference_backward": ("r0", "r1"),
    "dropout.factors": ("w0",),
    "group_norm.forward": ("r1", "r2", "w1", "w2"),
    "group_norm.backward": ("r2", "r3", "r4", "w0", "w1"),
    "row_norm.forward": ("r1", "r2", "w1", "w2"),
    "row_norm.backward_data": ("r2", "r3", "r4"),
    "row_norm.backward_filter": ("r2", "r3", "w0", "w1"),
    "argmax.forward": ("w0",),
    "accuracy.forward": ("w0",),
    "accuracy.by_class": ("w0",),
    "scale.forward": ("r1", "r2"),
    "scale.backward_filter": ("w0",),
    "scale.backward_bias": ("w0",),
    "scale.backward_data": ("r0",),
    "broadcast.multiply": ("r1", "r2"),
    "broadcast.add": ("r1",),
    "broadcast.sum": ("w0",),
    "broadcast.sum_products": ("w0",),
    "objective.sum": ("w0",),
    "gradient.fill": ("r0",),
    "prelu.forward": ("r1",),
    "prelu.backward_data": ("r1",),
    "prelu.backward_filter": ("w0",),
    "attention.forward": ("w1",),  # the logarithms of sums
    "gradient.squares": ("r1",),  # the second gradient, as Scale's are
}
# Kinds without any value of 16 bits: losses and statistics are computed in float32.
NEVER = {
    "batch_norm.statistics",
    "batch_norm.statistics_multi_tensor",
    "batch_norm.keep",
    "batch_norm.merge_moments",
    "batch_norm.merge_sums",
    "linear_loss.forward",
    "softmax_loss.forward",
    "softmax_loss.backward",
    "pointwise_loss.forward",
    "pointwise_loss.backward",
    "contrastive_loss.forward",
    "contrastive_loss.backward",
    "objective.forward",
    "lamb.update",
    "lamb.update_multi_tensor",
    "lars.ratio",
    "lamb.ratio",
    "gradient.clip",
    "gradient.unscale",
}
CASTS = ("cast.forward", "cast.backward")  # tested in both directions; with a scale (the second read) only to 16 bits
ROUNDINGS = {
    "lrn.forward": 4,
    "lrn.backward": 4,
    "attention.forward": 2,
    "attention.backward": 2,
}  # kind -> half spacings of error, one for each value that it stores
WINOGRAD = 4  # half spacings of error of cuDNN's kinds


@dataclass(frozen=True)
class Precision:
    """A number format, and whether TF32 is allowed. Its text is part of the names of item a's cases."""

    format: str
    tf32: bool = False

    def __str__(self) -> str:
        return f"{self.format}, TF32 allowed" if self.tf32 else self.format

    def of(self, kind: str) -> bool:
        """Whether this kind is checked in this precision: with TF32 allowed, only products are."""
        return not self.tf32 or kind in OF_CUDNN or kind in ON_TENSOR_CORES


def examples_in(precision: Precision, of: list[Example]) -> list[Example]:
    """The same examples with numbers in the precision's format.

    An example is left out if the format cannot hold its numbers, or if its kind has no values of 16 bits. Raises
    formats.InvalidFormat if the format cannot be used."""
    if usable(precision.format) == "float32":
        return of
    return [e for each in of for e in _stored(each, precision.format)]


def _stored(e: Example, format: str) -> Iterator[Example]:
    if e.op.kind in NEVER:
        return
    if e.op.kind in CASTS:
        ways: tuple[tuple[str, ...], ...] = (("r0", "r1"), ("w0",))[: 1 if len(e.op.reads) > 1 else 2]
    else:
        ways = (_float32(e.op),)
    for kept in ways:
        small = {t for t in e.op.tensors if t.dtype == "float32" and t.name not in kept}
        names = {t: replace(t, dtype=format) if t in small else t for t in e.op.tensors}
        with np.errstate(over="ignore"):
            data = {names[t]: x.astype(format) if t in small else x for t, x in e.data.items()}
        if all(
            np.isfinite(widened(data[names[t]])).all() for t in e.data if t in small and np.isfinite(e.data[t]).all()
        ):
            yield Example(e.name, _renamed(e.op, names), data, e.exact)


def _float32(op: Op) -> tuple[str, ...]:
    """The names of an op's tensors that stay float32. In an optimizer's ops all but the gradient stay float32; where
    one op updates several weights, each third gradient does, too."""
    if op.kind.endswith((".update", ".update_multi_tensor")) or op.kind == "lamb.moments":
        gradients = {one.reads[1] for k, one in enumerate(op.members) if k % 3 != 2}
        return tuple(t.name for t in op.tensors if t not in gradients)
    if op.kind == "cast.forward_multi_tensor":
        return tuple(t.name for t in op.reads)
    if op.family == "recurrent":  # LSTM's cells
        return tuple(t.name for name, t in op.attrs.named(op.reads, op.writes).items() if name == "cells")
    if op.kind == "attention.backward":  # the logarithms of sums
        return (f"r{2 if op.attrs.packed else 4}",)
    return FLOAT32.get(op.kind, ())


def _renamed(op: Op, names: Mapping[Tensor, Tensor]) -> Op:
    reads, writes = (tuple(names[t] for t in of) for of in (op.reads, op.writes))
    pairs = tuple((names[a], names[b]) for a, b in op.inplace if names[a].dtype == names[b].dtype)
    return replace(op, reads=reads, writes=writes, inplace=pairs)


def wanted(e: Example) -> list[np.ndarray]:
    """The reference's results in float32 from the same numbers, not rounded to 16 bits."""
    arrays = {t: np.array(widened(x)) for t, x in e.data.items()}
    for t in e.op.writes:
        arrays.setdefault(t, np.zeros(t.shape, "float32" if t.dtype in HALF else t.dtype))
    with np.errstate(all="ignore"):
        KERNELS[e.op.kind](e.op.attrs, [arrays[t] for t in e.op.reads], [arrays[t] for t in e.op.writes])
    return [arrays[t] for t in e.op.writes]


def allowed(e: Example, written: Tensor, precision: Precision, launches: int = 1) -> float:
    """The error that a result may have: a part of its largest value.

    launches: how many kernels the op's recipe launches; an Eltwise of many operands stores a result in each."""
    if e.exact:
        return 0.0
    cudnn = e.op.kind in OF_CUDNN
    float32 = TF32 if precision.tf32 and (cudnn or e.op.kind in ON_TENSOR_CORES) else CUDNN if cudnn else OURS
    if e.op.family == "recurrent" and precision.format in HALF:  # a step goes on with what the one before has stored
        return 2 * e.op.reads[0].shape[0] * HALF_SPACING[precision.format] + float32
    if written.dtype not in HALF:
        return float32
    halves = WINOGRAD if cudnn else ROUNDINGS.get(e.op.kind, 1)
    if e.op.kind.startswith("eltwise") and launches > 1:
        halves = 2 * launches
    return halves * HALF_SPACING[written.dtype] + float32


def distance(got: np.ndarray, want: np.ndarray, exact: bool) -> float:
    """The largest error as a part of the largest value (or of 1).

    It is infinite if NaNs or infinities differ, or if integers do. want: the reference's float32 result, not rounded.
    exact: the error is zero if `got` has all bits of the rounded `want`."""
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else float("inf")
    with np.errstate(over="ignore"):
        rounded = want.astype(got.dtype)
    got, to = widened(got), widened(rounded)
    if exact and np.array_equal(got, to, equal_nan=True):
        return 0.0
    finite = np.isfinite(to)
    if not np.array_equal(got[~finite], to[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    off = np.abs(got[finite].astype(np.float64) - want[finite])
    return float(off.max() / max(1.0, float(np.abs(want[finite]).max())))
