"""Data of the caller for Input and MemoryData layers, as feeds: arrays, samples from Python, or a source's text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import numpy as np

from minidnn import sizes
from minidnn.data import Arrays, DataError, Dataset, Loader, Transform, parse, python
from minidnn.data.augment import Augment
from minidnn.data.dataset import samples
from minidnn.nets.graph import Graph
from minidnn.program import Role, Tensor
from minidnn.training.feed import Feed, fits


class Indexed(Protocol):
    """Samples by number, from 0 on: a list of them, a PyTorch Dataset, one of Hugging Face's datasets."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


Pair = tuple[np.ndarray, np.ndarray]  # samples and labels, a row for each sample
# A mapping has an array for each input, by its name. A text is a source (data/sources.py).
Samples = Pair | Mapping[str, np.ndarray] | Indexed | Iterable[Any] | str | Path

MOST = 1 << 30  # bytes of samples that an iterable may give: it is read into memory


def fed(graph: Graph, seed: int, inputs: Sequence[Tensor], data: Samples | None) -> tuple[list[Feed], list[str]]:
    """(the feeds of the inputs that the caller fills, what he should know of them). Raises DataError if the data are
    not for these inputs."""
    names = [t.name for t in inputs]
    if data is None:
        which = "data" if graph.phase == "TRAIN" else "test_data"
        come = "come" if len(names) > 1 else "comes"
        raise DataError(
            f"{graph.place}: {', '.join(names)} {come} from Input or MemoryData layers: a Solver needs {which}=(x, y), "
            f"a file Data layers, the command line --{which.replace('_', '-')} SOURCE"
        )
    if isinstance(data, Mapping):
        return _from_named(graph, seed, inputs, data), []
    if isinstance(data, np.ndarray) or _arrays(data):
        what = f"one array of shape {data.shape}" if isinstance(data, np.ndarray) else f"{len(data)} of them"
        raise DataError(f"{graph.phase} arrays: expected (x, y), or a dict of arrays by name, got {what}")
    if len(inputs) != 2 or sum(t.role is Role.LABEL for t in inputs) != 1:
        what = (
            f"samples and labels do not tell which array goes to {', '.join(names)}: give a dict of arrays by "
            "these names"
        )
        raise DataError(f"{graph.place}: {what}")
    image, label = sorted(inputs, key=lambda t: t.role is Role.LABEL)
    notes: list[str] = []
    if isinstance(data, str | Path):
        loader, known = _of_source(graph, seed, image, str(data))
    else:
        dataset = _dataset(f"{graph.phase} data", data)
        if isinstance(dataset, Arrays) and not _paired(data):
            size = sizes.text(dataset.images.nbytes)
            what = f"its {len(dataset)} samples were read into memory, once ({size})"
            notes.append(f"{dataset.name}: an iterable has no access by index, so {what}")
        loader, known = _loader(graph, seed, dataset, image), python.class_names(data)
    return [Feed.of(graph, loader, image, label, known)], notes


def _paired(data: Any) -> bool:
    """Whether these are arrays (x, y), and not samples, each of which is a pair or a mapping itself."""
    return isinstance(data, tuple | list) and len(data) == 2 and not any(isinstance(d, tuple | Mapping) for d in data)


def _arrays(data: Any) -> TypeGuard[Sequence[np.ndarray]]:
    """Whether these are arrays, but no two of them: no sample is an array."""
    return isinstance(data, tuple | list) and len(data) not in (0, 2) and isinstance(data[0], np.ndarray)


def _dataset(name: str, data: Any) -> Dataset:
    """The dataset of arrays (x, y), or of samples."""
    if _paired(data):
        x, y = data
        return Arrays.of(name, np.asarray(x), np.asarray(y))
    return python.dataset(data, name, MOST)


def _of_source(graph: Graph, seed: int, t: Tensor, text: str) -> tuple[Loader, tuple[str, ...]]:
    """The loader of a source, and the names of its classes. Images that have sizes of their own get that of the input.
    As from a Data layer, blue comes first; an input of one channel gets them in grey."""
    source, augment = parse(text, graph.phase), Augment()
    if 0 in source.sample_shape() and len(t.shape) == 4:
        augment = Augment(resize=t.shape[2:])
        source = source.decoded(False) if t.shape[1] == 1 else source
    return _loader(graph, seed, source.open(), t, augment), source.class_names()


def _from_named(graph: Graph, seed: int, inputs: Sequence[Tensor], arrays: Mapping[str, np.ndarray]) -> list[Feed]:
    """The feeds of arrays by the inputs' names."""
    names = [t.name for t in inputs]
    if set(arrays) != set(names):
        raise DataError(f"{graph.place}: the inputs are {', '.join(names)}; got arrays for {', '.join(arrays)}")
    counts = {name: len(array) if np.ndim(array) else 0 for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        result = ", ".join(f"{name} {n}" for name, n in counts.items())
        raise DataError(f"{graph.phase} data: expected the same number of samples for each input; got {result}")
    return [_of_array(graph, seed, t, arrays[t.name]) for t in inputs]


def _of_array(graph: Graph, seed: int, t: Tensor, values: np.ndarray) -> Feed:
    """The feed of one input, whose array has a row for each sample. Raises DataError if it does not fit the input."""
    name, values = f"{graph.phase} array {t.name!r}", np.asarray(values)
    if values.dtype.kind not in "fiub" or not values.size or not fits((*t.shape[:1], *values.shape[1:]), t):
        wanted = ", ".join(map(str, ("n", *t.shape[1:])))
        raise DataError(f"{name}: {values.dtype} of shape {values.shape}; expected numbers of shape ({wanted})")
    values = samples(name, values.reshape(len(values), -1)).reshape(values.shape)
    dataset = Arrays(name, values, np.zeros(len(values), np.int32))
    return Feed.of(graph, _loader(graph, seed, dataset, t), t)


def _loader(graph: Graph, seed: int, dataset: Dataset, t: Tensor, augment: Augment | None = None) -> Loader:
    change = Transform(train=graph.phase == "TRAIN", seed=seed, augment=augment or Augment())
    return Loader(dataset, t.shape[0], change)
