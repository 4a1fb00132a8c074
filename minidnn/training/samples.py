"""Samples that a net is to judge, as its TEST phase reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minidnn.data import Arrays, DataError, Dataset, Loader, Transform, source_of, transform
from minidnn.data.augment import Augment
from minidnn.data.given import given
from minidnn.errors import InvalidInput
from minidnn.nets.graph import Graph, Node


@dataclass(frozen=True, eq=False)
class Samples:
    """What a user gives, and how it becomes batches.

    names: of the classes, by their labels; () if the net's test data have none
    told:  how images are changed for a net that does not say it; empty for one that does
    """

    dataset: Dataset
    change: Transform
    batch: int
    names: Sequence[str] = ()
    told: str = ""

    @classmethod
    def of(cls, graph: Graph, paths: Sequence[str]) -> Samples:
        """The samples of these paths (data/given.py), changed as by the net's Data layer, but never mirrored. A net
        with an Input gets arrays as they are, and images in its size, as Caffe's classify does it.

        Raises DataError if they cannot be read or do not fit the net, and InvalidInput if it has no input."""
        node = next((n for n in graph.layers if n.layer.inputs and not n.layer.fillers), None)
        if node is None:
            raise InvalidInput("the net has no input in phase TEST")
        top = node.tops[0].tensor
        found = given(paths, top.shape[1] if len(top.shape) == 4 and top.shape[1] == 1 else 3)
        names: Sequence[str] = ()
        told = ""
        if node.layer.source:
            data, param = node.layer.source
            change = transform(param.model_copy(update={"mirror": False}), "TEST")
            names = source_of(data, param, "TEST").class_names()
        else:
            change, told = _to_size(node, found)
        change.shape(found.shape, found.name)  # raises if they do not have the shape that the net needs
        return cls(found, change, top.shape[0], names, told)

    def batches(self) -> Iterator[tuple[int, np.ndarray]]:
        """(the number of the first sample, samples float32) of each batch; the last may be smaller. Raises DataError,
        which names the file."""
        count = len(self.dataset)
        for first in range(0, count, self.batch):
            with Loader(self.dataset, min(self.batch, count - first), self.change) as loader:
                yield first, loader.batch(first)[0]

    def place(self, index: int) -> str | None:
        """The file of this sample; None if one file has all."""
        return None if isinstance(self.dataset, Arrays) else self.dataset.place(index)  # type: ignore[attr-defined]


def _to_size(node: Node, found: Dataset) -> tuple[Transform, str]:
    """The transform for a net whose input says nothing of images, and what it does to them."""
    plain, shape = Transform(train=False), node.tops[0].tensor.shape
    if isinstance(found, Arrays):
        return plain, ""
    if len(shape) != 4:
        raise DataError(f"{node.place}: input {node.name!r} takes samples {shape[1:]}, which are no images")
    order = "" if shape[1] == 1 else ", blue before green before red"
    told = f"images become {shape[2]}×{shape[3]}{order}, values 0 to 255: the net's input says no more"
    return replace(plain, augment=Augment(resize=shape[2:], train=False)), told


def class_names(path: str) -> list[str]:
    """The lines of a text file. Raises DataError if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
