"""Samples from Python: a sequence of (image, label), such as a PyTorch `Dataset` or one of Hugging Face's `datasets`,
or any iterable of these.

A sequence is asked for samples when they are wanted. An iterable has no places to go back to, so it is read once, into
memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minidnn.data.dataset import Arrays, DataError, Dataset, label_shape, samples
from minidnn.errors import few

IMAGES = ("image", "img", "x", "pixel_values")  # the names that these may have in a sample that is a mapping
LABELS = ("label", "labels", "y", "fine_label")


def dataset(samples: Any, name: str, most: int) -> Dataset:
    """The dataset of a sequence or an iterable of samples.

    A sample is a pair (image, label), or a mapping with one of the names above for each. An image is an array or a
    tensor (C, H, W), (H, W) or (K,), or Pillow's. The order of its channels stays: Pillow's is red, green, blue. A
    label is a whole number, or an array of them.

    most: bytes that an iterable may fill

    Raises DataError if there are no samples, or if one of them cannot be used or differs from the first in shape."""
    if indexed(samples):
        return _Sequence(samples, name)
    if isinstance(samples, Iterable):
        return _read(samples, name, most)
    raise DataError(
        f"{name}: expected arrays, or a sequence or an iterable of (image, label), got {type(samples).__name__}"
    )


def indexed(samples: Any) -> bool:
    """Whether samples can be asked for by number."""
    return hasattr(samples, "__len__") and hasattr(samples, "__getitem__")


def class_names(samples: Any) -> tuple[str, ...]:
    """The class names of such samples, from `classes`, as in torchvision's datasets, or from a label among the
    `features` of Hugging Face's; () if there are none."""
    result = getattr(samples, "classes", None)
    features = getattr(samples, "features", None)
    if result is None and isinstance(features, Mapping):
        result = next((getattr(features[n], "names", None) for n in LABELS if n in features), None)
    if isinstance(result, Sequence) and not isinstance(result, str) and all(isinstance(name, str) for name in result):
        return tuple(result)
    return ()


class _Sequence:
    """A sequence of samples, as a Dataset."""

    def __init__(self, samples: Any, name: str) -> None:
        self.name, self._given = name, samples
        if not len(samples):
            raise DataError(f"{name}: there are no samples")
        image, label = self._sample(0)
        self.shape, self._label = image.shape, label.shape

    def __len__(self) -> int:
        return len(self._given)

    def highest(self, ignored: int | None = None) -> int:
        return -1  # only reading all samples would tell; each batch is checked

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result = [self._like_first(int(i), *self._sample(int(i))) for i in indices]
        return np.stack([image for image, _ in result]), np.stack([label for _, label in result])

    def _like_first(self, index: int, image: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if image.shape != self.shape or label.shape != self._label:
            raise DataError(_unlike(f"{self.name}: sample {index}", image, label, self.shape, self._label))
        return image, label

    def _sample(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        try:
            given = self._given[index]
        except (MemoryError, DataError):
            raise
        except Exception as error:  # whatever the user's own code raises
            raise DataError(f"{self.name}: sample {index}: {type(error).__name__}: {error}") from error
        return _checked(given, f"{self.name}: sample {index}")


def _read(samples: Iterable[Any], name: str, most: int) -> Dataset:
    """All samples of an iterable, in memory."""
    images: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    nbytes = 0
    for index, sample in enumerate(samples):
        image, label = _checked(sample, f"{name}: sample {index}")
        if images and (image.shape, label.shape) != (images[0].shape, labels[0].shape):
            raise DataError(_unlike(f"{name}: sample {index}", image, label, images[0].shape, labels[0].shape))
        nbytes += image.nbytes + label.nbytes
        if nbytes > most:
            what = f"an iterable is read into memory, and its first {index + 1} samples take more than {most} bytes"
            raise DataError(f"{name}: {what}; give a sequence, with __len__ and __getitem__")
        images.append(image)
        labels.append(label)
    if not images:
        raise DataError(f"{name}: there are no samples")
    return Arrays.of(name, np.stack(images), np.stack(labels))


def _unlike(place: str, image: np.ndarray, label: np.ndarray, first: tuple[int, ...], labels: tuple[int, ...]) -> str:
    return f"{place}: an image {image.shape} and labels {label.shape}; sample 0 has {first} and {labels}"


def _checked(sample: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(image, labels int32) of a sample. Raises DataError if it has none, or none that can be used."""
    if isinstance(sample, Mapping):
        pair = tuple(next((sample[n] for n in names if n in sample), None) for names in (IMAGES, LABELS))
        if any(part is None for part in pair):
            wanted = f"one of {', '.join(IMAGES)} and one of {', '.join(LABELS)}"
            raise DataError(f"{name}: has {few([str(key) for key in sample])}; expected {wanted}")
    elif isinstance(sample, tuple | list) and len(sample) == 2:
        pair = tuple(sample)
    else:
        raise DataError(f"{name}: expected (image, label) or a mapping with both, got {type(sample).__name__}")
    image, label = _image(pair[0], name), np.asarray(pair[1])
    if label.dtype.kind not in "iub" or (label.size and not 0 <= label.min() <= label.max() < 2**31):
        raise DataError(
            f"{name}: {pair[1]!r} is not a label: expected a whole number of at least 0, or an array of them"
        )
    return image, label.astype(np.int32).reshape(label_shape((1, *label.shape)))


def _image(value: Any, name: str) -> np.ndarray:
    """The image as (C, H, W) or (K,)."""
    if hasattr(value, "getbands"):  # Pillow's
        value = value if value.mode in ("L", "RGB") else value.convert("RGB")
        values = np.asarray(value)
        return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)
    return samples(name, np.asarray(value)[None])[0]
