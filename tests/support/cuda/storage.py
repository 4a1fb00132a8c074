"""Values of 16 bits as the cuda backend's kernels store them: from float32 and back."""

from __future__ import annotations

import numpy as np

DTYPE = {"fp16": "float16", "bf16": "uint16"}


SPACING = {"fp16": 2.0**-10, "bf16": 2.0**-7}  # from 1 to the next larger number


def narrow(x: np.ndarray, storage: str) -> np.ndarray:
    if storage == "fp16":
        return x.astype(np.float16)
    bits = x.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16)


def widen(x: np.ndarray, storage: str) -> np.ndarray:
    return x.astype(np.float32) if storage == "fp16" else (x.astype(np.uint32) << 16).view(np.float32)
