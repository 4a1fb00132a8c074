"""Files of arrays without labels: samples, and the mean of a dataset's images."""

from __future__ import annotations

import numpy as np

from minidnn.data.dataset import DataError, samples
from minidnn.data.npz import SUFFIX, read_arrays
from minidnn.schema import InvalidFile, blobs


def raw_samples(path: str) -> np.ndarray:
    """The samples (n, C, H, W), (n, H, W) or (n, K) in a file: an npy file, an npz file with an array x or images,
    Caffe's .binaryproto, or one image as Caffe's .datum. Raises DataError."""
    try:
        if path.endswith(".datum"):
            image = blobs.datum(path)
            if isinstance(image.content, bytes):
                raise DataError(f"{path}: an encoded image, and no array of samples")
            return samples(path, image.content[None])
        if path.endswith(".binaryproto"):
            return samples(path, blobs.array(path))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except InvalidFile as error:
        raise DataError(str(error)) from error
    arrays = read_arrays(path)
    found = [arrays[name] for name in ("x", "images", "data") if name in arrays]
    if not found:
        raise DataError(f"{path}: holds {', '.join(arrays) or 'nothing'}; expected an array x or images")
    return samples(path, found[0])


def mean_image(path: str) -> np.ndarray:
    """The mean of a dataset's images, float32 (C, H, W), of Caffe's .binaryproto or an npy file. Raises DataError."""
    try:
        if path.endswith(SUFFIX):
            return read_arrays(path)["x"].astype(np.float32)
        return blobs.mean(path)
    except OSError as error:
        raise DataError(f"mean_file {path}: {error.strerror or error}") from error
    except InvalidFile as error:
        raise DataError(f"mean_file {error}") from error
