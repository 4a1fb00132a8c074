"""The contents of a source of samples: counts, shapes, values, bytes, and samples that cannot be read."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from minidnn import zoo
from minidnn.data import SOURCES, DataError, Dataset, Encoded, Source, Transform, parse, source_of, staged, transform
from minidnn.data.encoded import reason
from minidnn.errors import InvalidInput
from minidnn.jobs.job import understood
from minidnn.nets.net import Net
from minidnn.results.contents import LabelRow, SourceRow
from minidnn.schema.sources import DataParameter, TransformationParameter

NAMED = 5  # samples that cannot be read, of which the reasons are told
_NETS = (".yaml", ".yml", ".prototxt")
Tell = Callable[[int, int], None]  # takes (samples done, samples in all)


@dataclass(frozen=True)
class Subject:
    """A source by itself, or as a layer of a net has it."""

    layer: str | None  # or the top, of a layer that has a source for each; None: the source by itself
    param: Any  # the message that names it, and its transform_param
    change: Any
    phase: str
    shape: tuple[int, ...] | None = None  # of a batch, as the net reads it

    @cached_property
    def source(self) -> Source:
        return source_of(self.param, self.change, self.phase)

    @property
    def name(self) -> str:
        """The source's text, as the user wrote it."""
        return str(self.param.source)

    @cached_property
    def pictures(self) -> bool:
        """Whether samples are encoded images, whose channels are red, green and blue once decoded."""
        return self.source.encoded()

    def raw_shape(self, phase: str) -> tuple[int, ...] | None:
        """The shape of each sample before the net's crop; None if images keep sizes of their own. Raises DataError if
        the transform does not fit the source."""
        return self._made(phase)[1]

    def transform(self, phase: str) -> Transform:
        """The net's transformation of a sample in this phase."""
        return self._made(phase)[0]

    def _made(self, phase: str) -> tuple[Transform, tuple[int, ...] | None]:
        """(the transform, `raw_shape`) of a phase, made once: a mean is a file, and a folder takes a look."""
        if phase not in self._phases:
            change, shape = transform(self.change, phase), None
            if not self.pictures or self.layer is not None or self.change.resize:
                shape = change.augment.shape(self.source.sample_shape(), self.name)
            self._phases[phase] = change, shape
        return self._phases[phase]

    @cached_property
    def _phases(self) -> dict[str, tuple[Transform, tuple[int, ...] | None]]:
        return {}

    def raw(self, image: np.ndarray, index: int, phase: str) -> np.ndarray:
        """A sample before the mean is subtracted: resized, its channels in their order; in TRAIN with its random
        changes. Raises DataError if that fails."""
        change, shape = self._made(phase)
        augment = change.augment
        if image.ndim != 3:
            return image
        if shape is None:
            return image[::-1] if self.pictures and len(image) == 3 and augment.order == "BGR" else image
        return augment(image, index, shape, decoded=self.pictures)


def subjects(text: str, phase: str, resize: tuple[int, ...] = (), ignore_unknown: bool = False) -> list[Subject]:
    """The sources that a text names: one source, or each source that a net has in this phase.

    resize: the height and width that images get, of a source by itself

    Raises DataError if it names neither, or if data cannot be read, and InvalidInput for a net without sources."""
    result = None if text.endswith(_NETS) else _source(text, phase)
    if result is not None:
        param, change = DataParameter(source=text, batch_size=1), TransformationParameter(resize=resize)
        return [Subject(None, param, change, phase)]
    if resize:
        raise InvalidInput(f"{text} is a net, whose layers say in transform_param how images are resized")
    net, tests, _ = understood(text, ignore_unknown=ignore_unknown)
    return _of_net(tests[0] if phase == "TEST" and tests else net, phase)


def _source(text: str, phase: str) -> Source | None:
    """The source that a text describes; None for the name of a net. Raises DataError if it is neither."""
    try:
        return parse(text, phase)
    except DataError as error:
        try:
            zoo.find(text)
        except zoo.NoSuchModel:
            raise error from None
        return None


def _of_net(net: Net, phase: str) -> list[Subject]:
    graph = net.graph(phase)
    result = []
    for node in graph.layers:
        for (param, change), top in zip(node.layer.sources, node.tops, strict=False):
            name = node.name if node.layer.source else top.name
            result.append(Subject(name, param, change, phase, top.tensor.shape))
    if not result:
        raise InvalidInput(f"{graph.place}: no layer reads its samples from a source in phase {phase}, as Data does")
    return result


def scan(
    subject: Subject, limit: int | None = None, tell: Tell = lambda done, of: None
) -> tuple[SourceRow, np.ndarray | None]:
    """(what the source holds, the mean of its samples) by reading them all, or `limit` of them, evenly spread.

    The mean is float64 (C, H, W) or (K,); None if samples have several shapes. Raises DataError if the source cannot be
    opened; samples that cannot be read are named in the row."""
    dataset = subject.source.open()
    indices = picked(len(dataset), limit)
    totals = _Totals()
    for done, index in enumerate(indices.tolist()):
        try:
            image, label, nbytes = read(dataset, index)
            totals.add(image, label, nbytes, subject.raw(image, index, subject.phase))
        except (DataError, OSError) as error:
            totals.fail(dataset, index, error)
        tell(done + 1, len(indices))
    return _row(subject, dataset, totals, len(indices)), totals.mean()


def picked(count: int, limit: int | None) -> np.ndarray:
    """So many indices of samples at most, evenly spread."""
    return np.arange(count) if limit is None or limit >= count else np.arange(limit) * count // limit


def read(dataset: Dataset, index: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(a sample as it is stored, its label or labels, the bytes that it takes there). Raises DataError and OSError."""
    if isinstance(dataset, Encoded):
        data, label = dataset.read(index)
        return dataset.decode(data), np.asarray(label), len(data)
    images, labels = dataset.take(np.array([index]))
    return images[0], labels[0], images[0].nbytes


class _Totals:
    """Sums over the samples read so far."""

    def __init__(self) -> None:
        self.labels: Counter[int] = Counter()
        self.shapes: Counter[tuple[int, ...]] = Counter()
        self.types: set[str] = set()
        self.lowest, self.highest = math.inf, -math.inf
        self.stored = self.decoded = self.count = self.failed = 0
        self.problems: list[str] = []
        self.channels: np.ndarray | float = 0.0  # the sum of the samples' means, of each channel
        self._sum: np.ndarray | None = None  # of samples, while they have one shape
        self._one_shape = True

    def add(self, image: np.ndarray, label: np.ndarray, nbytes: int, raw: np.ndarray) -> None:
        self.labels.update(np.unique(label).tolist())
        self.shapes[image.shape] += 1
        self.types.add(str(image.dtype))
        self.lowest, self.highest = min(self.lowest, float(image.min())), max(self.highest, float(image.max()))
        self.stored, self.decoded, self.count = self.stored + nbytes, self.decoded + image.nbytes, self.count + 1
        self.channels = self.channels + raw.mean(axis=(1, 2) if raw.ndim == 3 else None, dtype=np.float64)
        if self._sum is None:
            self._sum = np.zeros(raw.shape)
        self._one_shape = self._one_shape and self._sum.shape == raw.shape
        if self._one_shape:
            self._sum += raw

    def fail(self, dataset: Dataset, index: int, error: Exception) -> None:
        self.failed += 1
        if len(self.problems) < NAMED:
            place = dataset.place(index) if isinstance(dataset, Encoded) else f"{dataset.name}: sample {index}"
            self.problems.append(f"{place}: {reason(error)}")

    def mean(self) -> np.ndarray | None:
        return self._sum / self.count if self._sum is not None and self._one_shape else None


def _row(subject: Subject, dataset: Dataset, totals: _Totals, read_samples: int) -> SourceRow:
    source, shapes = subject.source, list(totals.shapes.elements())
    names = source.class_names()
    labels = sorted({*totals.labels, *range(len(names))})
    shape, change = subject.shape, subject.change
    median = np.rint(np.median(np.array(shapes), axis=0)).astype(int).tolist() if shapes else None
    return SourceRow(
        layer=subject.layer,
        source=subject.name,
        source_kind=next((word for word, kind in SOURCES.items() if isinstance(source, kind)), type(source).__name__),
        samples=len(dataset),
        read_samples=read_samples,
        labels=[LabelRow(label=k, name=names[k] if k < len(names) else None, samples=totals.labels[k]) for k in labels],
        smallest_shape=list(min(shapes, key=math.prod)) if shapes else None,
        median_shape=median,
        largest_shape=list(max(shapes, key=math.prod)) if shapes else None,
        sample_type=", ".join(sorted(totals.types)) or None,
        lowest=totals.lowest if shapes else None,
        highest=totals.highest if shapes else None,
        mean_value=np.atleast_1d(totals.channels / totals.count).tolist() if shapes else None,
        disk_bytes=_on_disk(source, totals.stored) if subject.pictures else _on_disk(source),
        decoded_bytes=totals.decoded,
        net_shape=list(shape[1:]) if shape else None,
        batch_bytes=4 * math.prod(shape) if shape else None,
        workers=subject.param.workers if shape else None,
        staged_bytes=staged(subject.param, change, subject.phase) if shape else None,
        unreadable=totals.failed,
        problems=totals.problems,
    )


def _on_disk(source: Source, read: int | None = None) -> int | None:
    """Bytes on the disk: those of the images that were read, or of the source's file or folder; None without any."""
    if read is not None:
        return read
    path = getattr(source, "path", getattr(source, "folder", None))
    if path is None or not os.path.exists(path):
        return None
    files: Iterator[Path] | Sequence[Path] = Path(path).rglob("*") if os.path.isdir(path) else [Path(path)]
    return sum(file.stat().st_size for file in files if file.is_file())
