"""The mean of a source's samples as a file, for `mean_file`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from minidnn.errors import InvalidInput
from minidnn.files.replace import replacing, unwritable
from minidnn.schema import blobs
from minidnn.spoken import option

SUFFIXES = (".binaryproto", ".npy")


def check(path: str) -> None:
    """Raise InvalidInput if no mean can be written there."""
    if why := unwritable(Path(path), *SUFFIXES):
        raise InvalidInput(f"{option('mean', path)}: {why}")


def save(name: str, mean: np.ndarray | None, path: str) -> None:
    """Write the mean (C, H, W), as float32; a .binaryproto has it as (1, C, H, W), like Caffe's.

    Raises InvalidInput if there is none, since samples have several shapes, and OSError. `name`: of the source"""
    if mean is None or mean.ndim != 3:
        what = (
            "there is no mean image, since samples have sizes of their own"
            if mean is None
            else "samples are not images"
        )
        raise InvalidInput(f"{name}: {what}; {option('resize', '256')}, or a net, gives them one")
    values = mean.astype(np.float32)
    with replacing(Path(path), "wb") as file:
        if path.endswith(SUFFIXES[0]):
            file.write(blobs.array_bytes(values[None]))
        else:
            np.save(file, values)
