"""A classifier that learns in a few iterations, each of a millisecond: 20 samples of 3 classes, given as arrays."""

from __future__ import annotations

import numpy as np

from minidnn.nets.net import Net

SAMPLES, BATCH, CLASSES = 20, 6, 3

NET = f"""
name: tiny
layer:
- {{name: input, type: Input, top: [x, label], input_param: {{shape: [{{dim: [{BATCH}, 4]}}, {{dim: {BATCH}}}]}}}}
- {{name: ip, type: InnerProduct, bottom: x, top: ip,
   inner_product_param: {{num_output: {CLASSES}, weight_filler: {{type: xavier}}}}}}
- {{name: accuracy, type: Accuracy, bottom: [ip, label], top: accuracy, include: {{phase: TEST}}}}
- {{name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}}
"""


def tiny() -> Net:
    """The net: a linear classifier of four numbers."""
    return Net.from_text(NET)


def samples() -> tuple[np.ndarray, np.ndarray]:
    """(x, y): float32 (20, 4) and int64 (20,); each class has a mean of its own."""
    rng = np.random.default_rng(0)
    y = np.arange(SAMPLES) % CLASSES
    return (np.eye(4)[y] + 0.2 * rng.standard_normal((SAMPLES, 4))).astype(np.float32), y
