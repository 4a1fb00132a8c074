"""Samples as they are, made into the input that layers read (kernels/samples.cu)."""

from __future__ import annotations

import numpy as np

from minidnn.backends.cuda.recipe import Launch, Read, Recipe, Write, int32, over, plain
from minidnn.program import Op

MEANS = 4  # of a kernel; programs/raw.py asks for no more


def transform(op: Op) -> list[Recipe]:
    """One recipe for raw samples and windows -> y. A thread makes all channels of a pixel."""
    (channels, height, width), (y,) = op.attrs.sample, op.writes
    rows, columns = y.shape[2:] if len(y.shape) == 4 else (height, width)
    pixels = y.size // channels
    mean = op.attrs.mean or (0.0,)
    means = (*mean, *(mean[-1],) * (MEANS - len(mean)))
    numbers = (np.int64(pixels), *(int32(n) for n in (channels, height, width, rows, columns)))
    floats = (np.float32(f) for f in (*means, op.attrs.scale))
    kernel = "transform_bytes" if op.reads[0].dtype == "uint8" else "transform_floats"
    arguments = (Read(0), Read(1), Write(0), *numbers, *floats)
    return [plain(Launch("samples", kernel, arguments, over(pixels)))]


KINDS = {"input.transform": transform}
