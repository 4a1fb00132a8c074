"""Which ops may run in parts of the batch, by kind: how each operand of a kind depends on the rows of the first axis.

A row is what one image has of a tensor. An op may run in parts if each row that it writes is a function of the same
rows that it reads, and of whole parameters. A gradient of parameters may be written, too: it is a sum over rows, and
the parts' sums are added in their order. No other kind may. BatchNorm's moments and the losses need all images at once,
Dropout counts its random numbers over the whole batch, and nothing is known of a user's own kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat

from minidnn.program import Op, Tensor

ROWS, WHOLE, SUM = "rows", "whole", "sum"
_LETTERS = {"r": ROWS, "w": WHOLE, "s": SUM}

# the reads and the writes of kinds, one letter each; the last letter holds for all further ones
_KINDS = {
    "rw -> r": (
        "convolution.forward", "convolution.forward_relu", "inner_product.forward", "inner_product.forward_relu",
        "prelu.forward", "scale.forward", "batch_norm.normalize_scale", "batch_norm.normalize_scale_relu",
        "batch_norm.inference", "batch_norm.inference_scale", "batch_norm.inference_scale_relu",
    ),
    "wr -> r": ("convolution.backward_data", "inner_product.backward_data"),
    "rwr -> r": ("prelu.backward_data",),
    "r -> s": (
        "convolution.backward_filter", "convolution.backward_bias", "inner_product.backward_filter",
        "inner_product.backward_bias", "scale.backward_bias", "prelu.backward_filter",
    ),
    "r -> rs": ("relu.backward_bias", "relu.backward_bias_slice"),
    "r -> r": (
        "relu.forward", "relu.backward", "unary.forward", "unary.backward", "lrn.forward", "lrn.backward",
        "pooling.forward", "pooling.backward", "pooling.backward_relu", "eltwise.forward", "eltwise.forward_relu",
        "eltwise.backward", "gradient.add", "gradient.add_slice", "gradient.sum", "gradient.sum_relu",
        "concat.forward", "concat.backward", "identity.forward",
    ),
}  # fmt: skip
_OPERANDS = {kind: letters.split(" -> ") for letters, kinds in _KINDS.items() for kind in kinds}
KINDS = frozenset(_OPERANDS)  # that may run in parts


@dataclass(frozen=True, eq=False)
class Operands:
    """The use that an op in parts makes of the rows of its operands.

    reads, writes: of each ROWS, WHOLE or SUM
    tensors: those that have rows
    sums:    the gradients of parameters that it writes
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    sums: tuple[Tensor, ...]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.tensors[0].shape[0]

    @property
    def largest(self) -> int:
        """Bytes of the largest tensor that has rows."""
        return max(t.nbytes for t in self.tensors)


@lru_cache(maxsize=1 << 14)  # it is asked again for each part of the op
def operands(op: Op) -> Operands | None:
    """The use that the op makes of the rows of its operands; None: it cannot run in parts."""
    if op.kind not in _OPERANDS:
        return None
    reads, writes = (
        tuple(_LETTERS[c] for _, c in zip(tensors, chain(letters, repeat(letters[-1])), strict=False))
        for letters, tensors in zip(_OPERANDS[op.kind], (op.reads, op.writes), strict=True)
    )
    pairs = (*zip(op.reads, reads, strict=True), *zip(op.writes, writes, strict=True))
    by_rows, sums = (tuple(t for t, use in pairs if use == wanted) for wanted in (ROWS, SUM))
    along = op.family == "concat" and getattr(op.attrs, "axis", 0) == 0  # it joins, or parts, the rows
    flat = op.family == "inner_product" and any(len(t.shape) < 2 for t in by_rows)  # there are no rows
    narrow = any(t.dtype != "float32" for t in sums)  # each part's own would be rounded
    changed = not set(op.reads).isdisjoint(op.writes)
    if along or flat or narrow or changed or len({t.shape[:1] for t in by_rows}) != 1 or not by_rows[0].shape:
        return None
    return Operands(reads, writes, by_rows, sums)
