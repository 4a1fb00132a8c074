"""Which ops may run in parts of the batch, by kind: how each operand of a kind depends on the rows of the batch.

A row is what one image has of a tensor. An op may run in parts if each row that it writes is a function of the same
rows that it reads, and of whole parameters. A gradient of parameters may be written, too: it is a sum over rows, and
the parts' sums are added in their order. So may BatchNorm's moments and sums by channel: they are small, and those of
all parts are merged at once (MERGES). No other kind may. The losses need all images at once, and nothing is known of a
user's own kind. Ops that need two passes over their rows are in passes.py.

Where the batch is one sequence, (1, T, C), a row is what one token has: the kinds OF_TOKENS treat each token alike, and
the others run as a whole. Its rows lie one behind the other, as those of a batch do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

from minidnn.program import Op, Tensor

ROWS, WHOLE, SUM, MERGED = "rows", "whole", "sum", "merged"
_LETTERS = {"r": ROWS, "w": WHOLE, "s": SUM, "m": MERGED}
BEHIND = ("", "_scale", "_scale_relu")  # what is fused with a BatchNorm
# A part has so many tokens, or a multiple. So a product on the reference goes over the same blocks of tokens in a part
# as in the whole (backends/reference/products.py), and Dropout begins with a block of random numbers.
TOKENS = 16
WORDS = 4  # random numbers of a block (backends/philox.py)

# the reads and the writes of kinds, one letter each; the last letter holds for all further ones
_KINDS = {
    "rw -> r": (
        "convolution.forward", "convolution.forward_relu", "inner_product.forward", "inner_product.forward_relu",
        "prelu.forward", "scale.forward", "broadcast.multiply", "broadcast.add", "row_norm.forward",
        "group_norm.forward", "rotary.forward", "dropout.forward", "dropout.backward",
        *(f"batch_norm.{what}{b}" for what in ("normalize", "inference") for b in BEHIND),
    ),
    "wr -> r": (
        "convolution.backward_data", "inner_product.backward_data", "scale.backward_data", "batch_reindex.forward",
    ),
    "wwr -> r": ("batch_norm.inference_backward",),
    "rwr -> r": ("prelu.backward_data",),
    "rrrrw -> r": ("row_norm.backward_data", "group_norm.backward"),
    "rrw -> r": (
        *(f"batch_norm.backward_data{b}" for b in BEHIND),
        *(f"batch_norm.{what}_scale_add_relu" for what in ("normalize", "inference")),
    ),
    "rrw -> m": tuple(f"batch_norm.backward_sums{b}" for b in BEHIND),
    "r -> m": ("batch_norm.moments",),
    "r -> s": (
        "convolution.backward_filter", "convolution.backward_bias", "inner_product.backward_filter",
        "inner_product.backward_bias", "scale.backward_bias", "scale.backward_filter", "prelu.backward_filter",
        "row_norm.backward_filter", "broadcast.sum", "broadcast.sum_products",
    ),
    "r -> rs": ("relu.backward_bias", "relu.backward_bias_slice"),
    "r -> r": (
        "relu.forward", "relu.backward", "unary.forward", "unary.backward", "lrn.forward", "lrn.backward",
        "pooling.forward", "pooling.backward", "pooling.backward_relu", "eltwise.forward", "eltwise.forward_relu",
        "eltwise.backward", "gradient.add", "gradient.add_slice", "gradient.sum", "gradient.sum_relu",
        "concat.forward", "concat.backward", "identity.forward", "attention.forward", "attention.backward",
        "rotary.backward",
    ),
}  # fmt: skip
_OPERANDS = {kind: letters.split(" -> ") for letters, kinds in _KINDS.items() for kind in kinds}
KINDS = frozenset(_OPERANDS)  # that may run in parts
OF_TOKENS = frozenset({  # and of them, those that treat all tokens of a sequence alike
    "inner_product.forward", "inner_product.forward_relu", "inner_product.backward_data",
    "inner_product.backward_filter", "inner_product.backward_bias", "row_norm.forward", "row_norm.backward_data",
    "row_norm.backward_filter", "broadcast.multiply", "broadcast.add", "broadcast.sum", "broadcast.sum_products",
    "relu.forward", "relu.backward", "unary.forward", "unary.backward", "eltwise.forward", "eltwise.forward_relu",
    "eltwise.backward", "gradient.add", "gradient.sum", "gradient.sum_relu", "identity.forward", "concat.forward",
    "concat.backward", "rotary.forward", "rotary.backward", "dropout.forward", "dropout.backward",
    "batch_reindex.forward",
})  # fmt: skip
MERGES = {  # what the parts of these kinds write, ops of these kinds merge
    "batch_norm.moments": "batch_norm.merge_moments",
    **{f"batch_norm.backward_sums{b}": "batch_norm.merge_sums" for b in BEHIND},
}


@dataclass(frozen=True, eq=False)
class Operands:
    """The use that an op in parts makes of the rows of its operands.

    reads, writes: of each ROWS, WHOLE, SUM or MERGED
    tensors: those that have rows
    whole:   what it reads of all rows, whichever it writes
    sums:    the gradients of parameters that it writes, which are added up
    merged:  what it writes that is merged
    step:    a part has so many rows, or a multiple
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    whole: tuple[Tensor, ...]
    sums: tuple[Tensor, ...]
    merged: tuple[Tensor, ...]
    step: int

    @property
    def late(self) -> tuple[Tensor, ...]:
        """What it writes that needs all rows: it is there once all parts have run."""
        return *self.sums, *self.merged

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return rows_of(self.tensors[0])

    def divides(self, count: int) -> bool:
        """Whether the op may run in so many equal parts."""
        return self.rows % (count * self.step) == 0

    @property
    def largest(self) -> int:
        """Bytes of the largest tensor that has rows."""
        return max(t.nbytes for t in self.tensors)


def axis_of(t: Tensor) -> int:
    """The axis of a tensor's rows: the first, but the second of one sequence, (1, T, C), or (1, T) of integers."""
    one = bool(t.shape) and t.shape[0] == 1
    return int(one and (len(t.shape) == 3 or (len(t.shape) == 2 and t.dtype == "int32")))


def rows_of(t: Tensor) -> int:
    """How many rows a tensor has; 0: it has no axis."""
    return t.shape[axis_of(t)] if t.shape else 0


def shape_of_rows(t: Tensor, count: int) -> tuple[int, ...]:
    """The shape of so many rows of a tensor."""
    axis = axis_of(t)
    return (*t.shape[:axis], count, *t.shape[axis + 1 :])


def attrs_of_rows(op: Op, first: int, last: int) -> Any:
    """The attributes of an op for these rows alone: where it counts tokens, or random numbers, from their first on."""
    x = op.reads[0]
    if op.family == "dropout":
        return replace(op.attrs, block=op.attrs.block + first * (x.size // rows_of(x)) // WORDS)
    if op.family == "rotary" and axis_of(x):
        return replace(op.attrs, first=op.attrs.first + first, tokens=last - first)
    return op.attrs


@lru_cache(maxsize=1 << 14)  # it is asked again for each part of the op
def operands(op: Op) -> Operands | None:
    """The use that the op makes of the rows of its operands; None: it cannot run in parts."""
    if op.kind not in _OPERANDS:
        return None
    reads, writes = (
        tuple(_LETTERS[c] for _, c in zip(tensors, chain(letters, repeat(letters[-1])), strict=False))
        for letters, tensors in zip(_OPERANDS[op.kind], (op.reads, op.writes), strict=True)
    )
    if op.family == "broadcast" and op.attrs.axis <= axis_of(op.reads[0]):  # a number for each row, or one for all
        reads = tuple(use if t.size == 1 else ROWS for t, use in zip(op.reads, reads, strict=True))
        writes = tuple(use if t.size == 1 else ROWS for t, use in zip(op.writes, writes, strict=True))
    if op.family == "attention" and op.attrs.bias is not None:
        if op.attrs.bias[0] > 1:  # which one a row has depends on its number
            return None
        backward = op.kind == "attention.backward"
        place = op.attrs.inputs + (3 if backward else 0)
        reads = (*reads[:place], WHOLE, *reads[place + 1 :])
        writes = (*writes[:-1], SUM) if backward and op.attrs.bias_gradient else writes
    pairs = (*zip(op.reads, reads, strict=True), *zip(op.writes, writes, strict=True))
    by_rows, whole, sums, merged = (tuple(t for t, use in pairs if use == u) for u in (ROWS, WHOLE, SUM, MERGED))
    if not by_rows or len({rows_of(t) for t in by_rows}) != 1 or not by_rows[0].shape:
        return None
    axis = max(axis_of(t) for t in by_rows)
    result = Operands(reads, writes, by_rows, whole, sums, merged, TOKENS if axis else 1)
    mixed = op.family != "broadcast" and any(axis_of(t) != axis for t in by_rows)
    told = op.family == "rotary" and axis and len(op.reads) > 1  # the places of all tokens
    alone = axis and op.kind not in OF_TOKENS
    along = op.family == "concat" and getattr(op.attrs, "axis", 0) <= axis  # it joins, or parts, the rows
    across = op.family == "row_norm" and op.attrs.first <= axis  # its rows are no samples
    within = op.family == "dropout" and op.reads[0].size // result.rows * result.step % WORDS  # a block
    flat = op.family == "inner_product" and any(len(t.shape) < 2 for t in by_rows)  # there are no rows
    narrow = any(t.dtype != "float32" for t in (*sums, *merged))  # each part's own would be rounded
    changed = not set(op.reads).isdisjoint(op.writes)
    if any((mixed, told, alone, along, across, within, flat, narrow, changed)):
        return None
    return result
