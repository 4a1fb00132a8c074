"""Feeds: all inputs of a graph. A Data layer has a source of its own, and a DummyData layer its fillers. The tensors of
all Input and MemoryData layers are filled from arrays of the caller."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from minidnn.data import Arrays, DataError, Loader, Transform, open_loader
from minidnn.data.dataset import samples
from minidnn.memory.execution.machine import Machine
from minidnn.nets.graph import Graph
from minidnn.program import Program, Role, Tensor
from minidnn.training.feed import Feed, Filled, fits

Pair = tuple[np.ndarray, np.ndarray]  # samples and labels
Samples = Pair | Mapping[str, np.ndarray]  # or an array for each input, by its name; each has a row for each sample


class Feeds:
    """All inputs of one graph.

    A position counts samples of the first feed. Another Data layer advances by as many batches, of its own size."""

    def __init__(self, graph: Graph, seed: int = 0, arrays: Samples | None = None, workers: int | None = None) -> None:
        """Raises DataError if the data do not fit the net.

        arrays:  for the layers whose data the caller gives (Input, MemoryData)
        workers: processes that make the samples of each Data layer, instead of the file's number. They are forked here:
                 open Feeds before a machine, or they hold on to the arena, too."""
        self.feeds: list[Feed | Filled] = []
        self.labels: dict[Tensor, np.ndarray] = {}  # of the batch that was written last
        self._start()
        try:
            self._open(graph, seed, arrays, workers)
        except BaseException:
            self.close()
            raise

    def _open(self, graph: Graph, seed: int, arrays: Samples | None, workers: int | None) -> None:
        inputs: list[Tensor] = []
        for node in graph.layers:
            tops = [blob.tensor for blob in node.tops]
            filled = [tops] if node.layer.source else [[top] for top in tops]
            for source, its in zip(node.layer.sources, filled, strict=False):  # most layers have no source
                try:
                    loader = open_loader(*source, graph.phase, seed, tops[0].shape[0], workers)
                except DataError as error:
                    raise DataError(f"{node.place}: layer {node.name!r}: {error}") from None
                self.feeds.append(Feed.of(graph, loader, *its))
            if node.layer.fillers:
                try:
                    self.feeds.append(Filled.of(graph, node, seed))
                except DataError as error:
                    raise DataError(f"{node.place}: {error}") from None
            elif node.layer.inputs and not node.layer.sources:
                inputs += tops
        if inputs:
            self.feeds += _given(graph, seed, inputs, arrays)
        elif arrays is not None:
            raise DataError(f"arrays are given for {graph.phase}, but none of its layers takes them: Input, MemoryData")
        if not self.feeds:
            raise DataError(f"{graph.place}: no layer gives the net data in phase {graph.phase}, such as Data or Input")
        self.feeds.sort(key=lambda feed: isinstance(feed, Filled))  # so that the first has an epoch, if any has

    def _start(self) -> None:
        """Start the thread, in this process: the child of a fork has none of its parent's threads."""
        self._process = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="minidnn-feed")
        self._ahead: tuple[tuple[str, int], Future[None]] | None = None  # ((program, position), the write begun for it)

    @property
    def batch(self) -> int:
        """The number of samples in a batch of the first feed."""
        return self.feeds[0].batch

    def __len__(self) -> int:
        """The number of samples in an epoch of the first feed."""
        return len(self.feeds[0])

    @property
    def samples(self) -> int | None:
        """The number of samples in an epoch; None if there are fillers alone, whose samples have no end."""
        return None if isinstance(self.feeds[0], Filled) else len(self)

    def __iter__(self) -> Iterator[Feed | Filled]:
        return iter(self.feeds)

    def write(self, machine: Machine, program: Program, position: int) -> int:
        """Write the batch at this position into the inputs that the program reads; return its number of samples.

        If `begin` has begun this batch, wait for that. An error on its thread is raised here."""
        if self._process != os.getpid():
            self._start()
        wanted, ahead = (program.name, position), self._ahead
        self._ahead = None
        if ahead is not None:
            ahead[1].result()  # waits, and raises an error of the thread
        if ahead is None or ahead[0] != wanted:
            self._write(machine, program, position)
        return self.batch

    def begin(self, machine: Machine, program: Program, position: int) -> None:
        """Begin to write this batch on a thread; a `write` of the same program and position must follow."""
        if self._process != os.getpid():
            self._start()
        made = self._thread.submit(self._write, machine, program, position)
        self._ahead = (program.name, position), made

    def _write(self, machine: Machine, program: Program, position: int) -> None:
        for feed in self.feeds:
            for tensor, array in feed.values(program, self.first(feed, position)).items():
                if tensor.role is Role.LABEL:
                    self.labels[tensor] = array
                if tensor in program.inputs:
                    machine.write(tensor, array, program.name)

    def first(self, feed: Feed | Filled, position: int) -> int:
        """The position of a feed's batch, as it counts itself, at this position of all feeds."""
        return position * feed.batch // self.batch

    def close(self) -> None:
        """End the thread that writes batches, and the loaders' threads and processes."""
        self._thread.shutdown()
        for feed in self.feeds:
            feed.close()


def _given(graph: Graph, seed: int, inputs: Sequence[Tensor], arrays: Samples | None) -> list[Feed]:
    """The feeds of the inputs that the caller fills. Raises DataError if the arrays are not for these inputs."""
    names = [t.name for t in inputs]
    if arrays is None:
        which = "data" if graph.phase == "TRAIN" else "test_data"
        raise DataError(
            f"{graph.place}: {', '.join(names)} come from Input or MemoryData layers: a Solver needs {which}=(x, y), "
            f"a file Data layers"
        )
    if not isinstance(arrays, Mapping):
        if not isinstance(arrays, tuple | list) or len(arrays) != 2:
            raise DataError(f"{graph.phase} arrays: expected (x, y), or a dict of arrays by name, got {_kind(arrays)}")
        if len(inputs) != 2 or sum(t.role is Role.LABEL for t in inputs) != 1:
            what = f"arrays (x, y) do not say what goes into {', '.join(names)}: give a dict of arrays by these names"
            raise DataError(f"{graph.place}: {what}")
        return [_from_pair(graph, seed, inputs, arrays)]
    if set(arrays) != set(names):
        raise DataError(f"{graph.place}: the inputs are {', '.join(names)}; got arrays for {', '.join(arrays)}")
    counts = {name: len(array) if np.ndim(array) else 0 for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name} {n}" for name, n in counts.items())
        raise DataError(f"{graph.phase} arrays: expected equally many samples of each input; got {found}")
    return [_from_named(graph, seed, t, arrays[t.name]) for t in inputs]


def _kind(arrays: object) -> str:
    """What was given in place of arrays, in few words."""
    if isinstance(arrays, np.ndarray):
        return f"one array of shape {arrays.shape}"
    return f"{len(arrays)} of them" if isinstance(arrays, tuple | list) else type(arrays).__name__


def _from_pair(graph: Graph, seed: int, inputs: Sequence[Tensor], arrays: Pair) -> Feed:
    """The feed of samples and their labels."""
    data, label = sorted(inputs, key=lambda t: t.role is Role.LABEL)
    x, y = arrays
    dataset = Arrays.of(f"{graph.phase} arrays", np.asarray(x), np.asarray(y))
    return Feed.of(graph, _loader(graph, seed, dataset, data), data, label)


def _from_named(graph: Graph, seed: int, t: Tensor, values: np.ndarray) -> Feed:
    """The feed of one input, whose array has a row for each sample. Raises DataError if it does not fit the input."""
    name, values = f"{graph.phase} array {t.name!r}", np.asarray(values)
    if values.dtype.kind not in "fiub" or not values.size or not fits((*t.shape[:1], *values.shape[1:]), t):
        wanted = ", ".join(map(str, ("n", *t.shape[1:])))
        raise DataError(f"{name}: {values.dtype} of shape {values.shape}; expected numbers of shape ({wanted})")
    values = samples(name, values.reshape(len(values), -1)).reshape(values.shape)
    dataset = Arrays(name, values, np.zeros(len(values), np.int32))
    return Feed.of(graph, _loader(graph, seed, dataset, t), t)


def _loader(graph: Graph, seed: int, dataset: Arrays, t: Tensor) -> Loader:
    return Loader(dataset, t.shape[0], Transform(train=graph.phase == "TRAIN", seed=seed))
