"""The table from op kind to kernel, joined from the tables of all families."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidnn.backends.reference import (
    activation,
    bias,
    broadcast,
    convolution,
    distance,
    dropout,
    elementwise,
    gather,
    inner_product,
    join,
    loss,
    lrn,
    matmul,
    move,
    normalization,
    norms,
    pooling,
    resize,
    row_norm,
    rules,
    samples,
    summary,
    sums,
    update,
)

Kernel = Callable[[Any, Sequence[np.ndarray], Sequence[np.ndarray]], None]  # attrs, reads, writes

KERNELS: dict[str, Kernel] = {
    **samples.KINDS,
    **convolution.KINDS,
    **inner_product.KINDS,
    **matmul.KINDS,
    **bias.KINDS,
    **pooling.KINDS,
    **activation.KINDS,
    **normalization.KINDS,
    **row_norm.KINDS,
    **summary.KINDS,
    **broadcast.KINDS,
    **resize.KINDS,
    **lrn.KINDS,
    **dropout.KINDS,
    **elementwise.KINDS,
    **join.KINDS,
    **move.KINDS,
    **gather.KINDS,
    **loss.KINDS,
    **distance.KINDS,
    **rules.KINDS,
    **sums.KINDS,
    **norms.KINDS,
    **update.KINDS,
}
