"""A small snapshot for tests that write and read it."""

from __future__ import annotations

import numpy as np

from minidnn.layers import rows
from minidnn.training.snapshot import Snapshot


def sample(iteration=30, fill=1.5):
    weights = {"conv1/w": np.full((2, 1, 3, 3), fill, np.float32), "conv1/b": np.arange(2, dtype=np.float32)}
    state = {"conv1.w.momentum": np.ones((2, 1, 3, 3), np.float32)}
    weights, state = ({name: rows.of(array) for name, array in x.items()} for x in (weights, state))
    return Snapshot(weights, state, iteration, 1920, 2**63 + 1, {"net": "a"})
