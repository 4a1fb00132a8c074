"""Bias gradients: sums of dy by channel, alone or fused with a ReLU's backward before them (reduction.py)."""

from __future__ import annotations

from minidnn.backends.cuda.recipe import Read, Recipe, Write, int32
from minidnn.backends.cuda.reduction import sums_by_channel
from minidnn.backends.layout import channels_of_sum
from minidnn.program import Op


def backward_bias(op: Op) -> list[Recipe]:
    """One recipe for dy (N, C, ...) -> db (C,), or of an inner product dy (N, ..., C) -> db (C,)."""
    return sums_by_channel(op, "sum", channels_of_sum(op), [Read(0)])


def relu_backward_bias(op: Op) -> list[Recipe]:
    """One recipe for y dy (N, C, ...) -> dx (N, C, ...), db (C,). dx may have the bytes of dy. The sums are taken in
    the same order as in `backward_bias`."""
    return sums_by_channel(op, "rectified_sum", op.reads[0].shape, [Read(0), Read(1), Write(0)])


def relu_backward_bias_slice(op: Op) -> list[Recipe]:
    """The same where y and dy may be slices of images with more channels. dx lies elsewhere. Without y, dx is dy. The
    sums are taken in the order of `relu_backward_bias`, whatever the slices."""
    shape = op.writes[0].shape
    pitches = [t.shape[1] for t in op.reads]
    starts = [0 if t.shape == shape else op.attrs.start for t in op.reads]
    aligned = all(n % 4 == 0 for n in (*pitches, *starts))
    places = [Read(i, start * t.itemsize) for i, (t, start) in enumerate(zip(op.reads, starts, strict=True))]
    more = int32(pitches[0]), int32(pitches[-1]), int32(len(op.reads) > 1), int32(aligned)
    return sums_by_channel(op, "rectified_sum_of_slice", shape, [places[0], places[-1], Write(0)], more)


KINDS = {
    "convolution.backward_bias": backward_bias,
    "inner_product.backward_bias": backward_bias,
    "scale.backward_bias": backward_bias,
    "relu.backward_bias": relu_backward_bias,
    "relu.backward_bias_slice": relu_backward_bias_slice,
}
