"""float32 numbers of every size, for tests of functions of one number."""

from __future__ import annotations

import numpy as np

LARGEST = float(np.finfo(np.float32).max)


def grid(every: int) -> np.ndarray:
    """One float32 of so many, of all signs and sizes; those around 0 more densely; NaN and infinities."""
    spread = np.arange(0, 1 << 32, every, dtype=np.int64).astype(np.uint32).view(np.float32)
    around = np.linspace(-20, 20, len(spread) // 2, dtype=np.float32)
    return np.concatenate([spread, around, np.float32([0, -0.0, np.inf, -np.inf, np.nan, LARGEST, -LARGEST])])
