"""Samples as they are, made into the input that layers read: cropped, less the mean, scaled, mirrored."""

from __future__ import annotations

import numpy as np


def transform(a, reads, writes):
    """Raw samples and windows -> y. A window is (row, column, mirrored); the size of a crop is that of y."""
    (raw, windows), (y,) = reads, writes
    height, width = y.shape[2:] if y.ndim == 4 else a.sample[1:]
    mean = np.array(a.mean or (0.0,), np.float32).reshape(-1, 1, 1)
    for k, (row, column, mirrored) in enumerate(windows):
        part = raw[k].reshape(a.sample)[:, row : row + height, column : column + width]
        if mirrored:
            part = part[..., ::-1]
        y[k] = ((part.astype(np.float32) - mean) * np.float32(a.scale)).reshape(y.shape[1:])


KINDS = {"input.transform": transform}
