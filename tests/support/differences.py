"""Gradients beside central differences of an objective, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

STEP = 1e-6


def check_differences(
    objective: Callable[[list[np.ndarray]], float], at: Sequence[np.ndarray], gradients: Sequence[np.ndarray | None]
) -> None:
    """Assert that these are the objective's gradients there, element by element; None: of that value none was made."""
    values = [t.astype(np.float64) for t in at]
    for value, gradient in zip(values, gradients, strict=True):
        for i in np.ndindex(value.shape if gradient is not None else 0):
            ends = []
            for sign in (1, -1):
                value[i] += sign * STEP
                ends.append(objective(values))
                value[i] -= sign * STEP
            assert abs((ends[0] - ends[1]) / (2 * STEP) - gradient[i]) < 2e-5, (i, gradient.shape)
