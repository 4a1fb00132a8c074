"""A feed: what fills some input tensors of a graph. Either a loader, with the samples and the labels of a source or of
arrays, or the fillers of a DummyData layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidnn.data import DataError, Loader
from minidnn.data.dataset import LEAST, no_labels
from minidnn.layers.fillers import fill
from minidnn.nets.graph import Graph, Node
from minidnn.program import Program, Role, Tensor
from minidnn.programs.raw import raw_inputs


@dataclass(frozen=True)
class Reader:
    """A layer that reads labels: the number of classes that they must stay below, apart from `ignored`. `what`: what
    one is called."""

    layer: str
    classes: int
    ignored: int | None
    place: str
    what: str = "label"

    def wrong(self, labels: np.ndarray) -> np.ndarray:
        """Where labels name no class, bool in their shape."""
        wrong = (labels < 0) | (labels >= self.classes)
        return wrong if self.ignored is None else wrong & (labels != self.ignored)


def readers(graph: Graph, tensor: Tensor) -> list[Reader]:
    """The layers that read this tensor as labels, if they take not just any."""
    result, windows = [], graph.windows
    what = "token" if tensor in (*windows, *windows.values()) else "label"
    for node in graph.layers:
        at = node.layer.labels
        known = node.layer.classes([b.tensor.shape for b in node.bottoms])
        if known is not None and at is not None and node.bottoms[at].tensor == tensor:
            result.append(Reader(node.name, known, node.layer.ignored, node.place, what))
    return result


@dataclass(frozen=True, eq=False)
class Feed:
    """One loader, and the tensors that get the samples and the labels of its batches. Samples may be labels for the
    net: the pictures of a Data layer that a loss reads as such."""

    loader: Loader
    data: Tensor | None
    label: Tensor | None
    readers: Mapping[Tensor, Sequence[Reader]] = field(default_factory=dict)  # of those that hold labels
    names: Sequence[str] = ()  # of the classes, by label, as far as they are known

    @classmethod
    def of(
        cls, graph: Graph, loader: Loader, data: Tensor | None, label: Tensor | None = None, names: Sequence[str] = ()
    ) -> Feed:
        """The feed of these tensors. Raises DataError if samples or labels do not fit the net."""
        name = loader.dataset.name
        if data and not fits(loader.shape, data):
            raise DataError(f"{name}: a batch has shape {loader.shape}, but {data.name} {data.shape}")
        if data and data.role is Role.LABEL and loader.transform.augment.interpolates:
            what = f"resize, crop_area and rotation make values between those of pixels, but {data.name} holds labels"
            raise DataError(f"{name}: {what}")
        result = {t: readers(graph, t) for t in (data, label) if t is not None and t.role is Role.LABEL}
        for reader in result.get(label, ()) if label else ():
            highest = loader.dataset.highest(reader.ignored)
            if highest >= reader.classes:
                what = (
                    f"{reader.what} {highest} occurs, but layer {reader.layer} gets {reader.classes} scores per sample"
                )
                raise DataError(f"{reader.place}: {name}: {what}")
        return cls(loader, data, label, result, names)

    @property
    def name(self) -> str:
        """The dataset's name, for messages."""
        return self.loader.dataset.name

    @property
    def batch(self) -> int:
        """The number of samples in a batch."""
        return self.loader.batch_size

    def __len__(self) -> int:
        """The number of samples in an epoch."""
        return len(self.loader.dataset)

    def values(self, program: Program, position: int) -> dict[Tensor, np.ndarray]:
        """The inputs of the program at this position, as the loader counts. Raises DataError if they do not fit."""
        raw = raw_inputs(program, self.data) if self.data is not None else None
        if raw is None:
            data, label = self.loader.take(position)
            values = {self.data: data, self.label: label}
        else:
            samples, windows, label = self.loader.take_raw(position)
            values = {raw[0]: self._reshaped(samples, raw[0]), raw[1]: windows, self.label: label}
        result = {t: v for t, v in values.items() if t is not None}
        for t, those in self.readers.items():
            result[t] = self._labels(result[t], t, position)
            for reader in those:
                self._check(reader, result[t], position)
        return result

    def ahead(self) -> None:
        """Begin to make the batch that follows the last one."""
        self.loader.ahead()

    def _labels(self, values: np.ndarray, t: Tensor, position: int) -> np.ndarray:
        """Labels in the shape of their tensor, int32. Raises DataError for other numbers."""
        wrong = no_labels(values, LEAST)
        if wrong.any():
            k = int(np.argwhere(wrong)[0][0])
            label = f"{values[wrong][0]:.10g} in sample {self._sample(position, k)}"
            raise DataError(f"{self.name}: {label} is not a label: {t.name} takes whole numbers below 2^31")
        if not fits(values.shape, t):
            raise DataError(f"{self.name}: a batch has labels of shape {values.shape}, but {t.name} {t.shape}")
        return values.astype(np.int32, copy=False).reshape(t.shape)

    def _check(self, reader: Reader, labels: np.ndarray, position: int) -> None:
        """Raise DataError if one of a batch's labels names no class of a layer that reads it."""
        wrong = reader.wrong(labels)
        if wrong.any():
            k = int(np.argwhere(wrong)[0][0])
            what = f"{reader.what} {labels[wrong][0]} of sample {self._sample(position, k)}"
            raise DataError(f"{self.name}: {what} names none of the {reader.classes} classes of layer {reader.layer}")

    def _sample(self, position: int, k: int) -> int:
        """The index in the dataset of the k-th sample of a batch."""
        return int(self.loader.indices(np.array([position + k]))[0])

    def _reshaped(self, samples: np.ndarray, raw: Tensor) -> np.ndarray:
        """Raw samples in the shape of their tensor. Raises DataError if their source has announced another type."""
        if raw.dtype == "uint8" and samples.dtype != np.uint8:
            raise DataError(f"{self.name}: its source says that samples are uint8, but they are {samples.dtype}")
        return samples.reshape(raw.shape)

    def close(self) -> None:
        """End the loader's thread and processes."""
        self.loader.close()


class Filled:
    """The tops of a DummyData layer: constant, or drawn anew for each batch by the seed and the batch's number.

    A top that holds labels gets whole numbers: the part before the point, as Caffe takes labels."""

    names: Sequence[str] = ()  # of classes: nobody knows any

    @classmethod
    def of(cls, graph: Graph, node: Node, seed: int) -> Filled:
        """The feed of a DummyData layer."""
        return cls(graph, node.name, dict(zip((b.tensor for b in node.tops), node.layer.fillers, strict=True)), seed)

    def __init__(self, graph: Graph, name: str, tops: Mapping[Tensor, Any], seed: int) -> None:
        """`tops`: a filler for each tensor; None: zeros. Raises DataError for a label that names no class."""
        self.name, self._seed, self._fillers = name, seed, dict(tops)
        self._readers = {t: readers(graph, t) for t in tops if t.role is Role.LABEL}
        self._constant = {t: self._drawn(t, 0) for t, f in tops.items() if f is None or f.type == "constant"}

    @property
    def batch(self) -> int:
        """The number of samples in a batch."""
        return next(iter(self._fillers)).shape[0]

    def __len__(self) -> int:
        return self.batch

    def values(self, program: Program, position: int) -> dict[Tensor, np.ndarray]:
        """The inputs of the program for the batch at this position. Raises DataError for labels that name no class."""
        return {t: self._constant[t] if t in self._constant else self._drawn(t, position) for t in self._fillers}

    def _drawn(self, t: Tensor, position: int) -> np.ndarray:
        key = f"{self.name}.{t.name}.{position // self.batch}"
        result = fill(self._fillers[t], t.shape, self._seed, key).whole()
        for reader in self._readers.get(t, ()):
            wrong = reader.wrong(np.trunc(result))
            if wrong.any():
                what = f"{result[wrong][0]:g} names none of the {reader.classes} classes of layer {reader.layer}"
                raise DataError(f"layer {self.name}: its filler's label {what}")
        return result.astype(np.int32) if t.role is Role.LABEL else result

    def ahead(self) -> None:
        pass

    def close(self) -> None:
        pass


def fits(shape: Sequence[int], t: Tensor) -> bool:
    """Whether a batch of this shape can fill the tensor; labels need as many for each sample, in any shape."""
    if t.role is Role.LABEL:
        return shape[0] == t.shape[0] and math.prod(shape) == t.size
    return tuple(shape) == t.shape
