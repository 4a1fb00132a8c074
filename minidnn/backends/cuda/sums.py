"""Sums of gradients over micro-batches and ranks (kernels/sums.cu)."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Write, int32, over, plain
from minidnn.program import Op


def accumulate(op: Op) -> list[Recipe]:
    """One recipe for sums dw iteration -> sums, float32."""
    arguments = Write(0), Read(1), Read(2), np.int64(op.attrs.every)
    n = op.reads[1].size
    return [plain(Launch("sums", "accumulate", (*arguments, np.int64(n)), over(n)))]


def total(op: Op) -> list[Recipe]:
    """One recipe for sums dw -> their sum, float32."""
    arguments = Read(0), Read(1), Write(0), int32((op.attrs.every - 1).bit_count())
    n = op.reads[1].size
    return [plain(Launch("sums", "total", (*arguments, np.int64(n)), over(n)))]


def merge(op: Op) -> list[Recipe]:
    """One recipe for rows (dw) -> shard, float32."""
    a, n = op.attrs, op.writes[0].size
    arguments = Read(0), Write(0), int32(a.ranks), np.int64(a.own), np.int64(n)
    return [plain(Launch("sums", "merge", arguments, over(n)))]


KINDS = {"gradient.accumulate": accumulate, "gradient.total": total, "gradient.merge": merge}
