"""What `data_param: {source: ...}` means: which reader, which split, what shape.

    digits                                      scikit-learn's 8×8 digits
    mnist:FOLDER                                the four IDX files, plain or gzipped
    npz:PATH, or any PATH that ends in .npz     arrays x (or images) and y (or labels)
    synthetic:3x224x224:classes=1000:count=5000 made up, learnable, no file

The phase chooses the split, train or test; `digits:train`, `mnist:FOLDER:test` name it whatever the phase.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from minidnn.data import digits, mnist, npz
from minidnn.data.dataset import DataError, Dataset
from minidnn.data.synthetic import Synthetic
from minidnn.errors import near

_KINDS = ("digits", "mnist", "npz", "synthetic")
_SPLITS = {"TRAIN": "train", "TEST": "test"}
_DEFAULTS = {"classes": 10, "count": 1024, "seed": 1}
_MOST = 2**40


@dataclass(frozen=True)
class Source:
    """A source string and a phase, understood."""

    kind: str
    split: str
    path: str = ""
    shape: tuple[int, ...] = ()  # of synthetic samples
    classes: int = 0
    count: int = 0
    seed: int = 0

    def sample_shape(self) -> tuple[int, ...]:
        """One raw sample's shape, without reading the samples: planning does not need the data."""
        if self.kind == "digits":
            return digits.SHAPE
        if self.kind == "mnist":
            return mnist.sample_shape(self.path, self.split)
        return npz.sample_shape(self.path) if self.kind == "npz" else self.shape

    def open(self) -> Dataset:
        if self.kind == "digits":
            return digits.read(self.split)
        if self.kind == "mnist":
            return mnist.read(self.path, self.split)
        if self.kind == "npz":
            return npz.read(self.path)
        first = _MOST if self.split == "test" else 0  # a test image is further than any training image
        return Synthetic(self.shape, self.classes, self.count, self.seed, first)


def parse(text: str, phase: str = "TRAIN") -> Source:
    """Understand a source string. Raises DataError that says what was expected."""
    kind, _, rest = text.partition(":")
    split = _SPLITS[phase]
    if kind not in _KINDS and text.endswith(".npz"):
        return Source("npz", split, path=text)
    if kind == "npz" and rest:
        return Source("npz", split, path=rest)
    if kind in ("digits", "mnist"):
        head, _, last = rest.rpartition(":")
        if last in _SPLITS.values():
            rest, split = head, last
        if kind == "digits" and not rest:
            return Source("digits", split)
        if kind == "mnist" and rest:
            return Source("mnist", split, path=rest)
    if kind == "synthetic":
        return _synthetic(text, rest, split)
    expected = "expected digits, mnist:FOLDER, npz:PATH or synthetic:3x32x32"
    raise DataError(f"source {text!r} is not known{near(kind, _KINDS)}; {expected}")


def _synthetic(text: str, rest: str, split: str) -> Source:
    size, *settings = rest.split(":")
    if not re.fullmatch(r"\d+(x\d+x\d+)?", size) or not math.prod(shape := tuple(map(int, size.split("x")))):
        raise DataError(f"source {text!r}: {size!r} is not a sample's shape; expected C x H x W as 3x32x32")
    values = dict(_DEFAULTS)
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in values or not value.isdecimal() or int(value) < 1:
            raise DataError(f"source {text!r}: {setting!r} is not one of {', '.join(values)} = a number")
        values[name] = int(value)
    if math.prod(shape) > _MOST or any(value > _MOST for value in values.values()):
        raise DataError(f"source {text!r}: no number in it, nor a sample's size, may be above 2^40")
    return Source("synthetic", split, "", shape, **values)
