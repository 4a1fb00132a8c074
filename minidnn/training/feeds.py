"""Feeds: which loader fills which input tensors of a graph. A Data layer has a source of its own; the tensors of all
Input layers are filled from a pair of arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from minidnn.data import Arrays, DataError, Loader, Transform, open_loader
from minidnn.memory.execution.machine import Machine
from minidnn.nets.graph import Graph
from minidnn.program import Program, Role, Tensor
from minidnn.programs.raw import raw_inputs

Pair = tuple[np.ndarray, np.ndarray]  # images and labels


@dataclass(frozen=True)
class Reader:
    """A layer that reads labels: the number of classes that they must stay below, apart from `ignored`."""

    layer: str
    classes: int
    ignored: int | None


@dataclass(frozen=True, eq=False)
class Feed:
    """One loader, and the tensors that get the images and the labels of its batches."""

    loader: Loader
    data: Tensor | None
    label: Tensor | None
    readers: Sequence[Reader] = ()  # of the labels

    @property
    def name(self) -> str:
        """The dataset's name, for messages."""
        return self.loader.dataset.name

    def check(self, labels: np.ndarray, position: int) -> None:
        """Raise DataError if one of a batch's labels names no class of a layer that reads it.

        position: of the batch, as the loader counts"""
        for reader in self.readers:
            wrong = (labels < 0) | (labels >= reader.classes)
            if reader.ignored is not None:
                wrong &= labels != reader.ignored
            if wrong.any():
                k = int(wrong.argmax())
                sample = self.loader.indices(np.array([position + k]))[0]
                raise DataError(
                    f"{self.name}: label {labels[k]} of sample {sample} names none of the {reader.classes} classes of "
                    f"layer {reader.layer}"
                )

    def as_said(self, samples: np.ndarray, raw: Tensor) -> np.ndarray:
        """Raw samples in the shape of their tensor. Raises DataError if their source has announced another type."""
        if raw.dtype == "uint8" and samples.dtype != np.uint8:
            raise DataError(f"{self.name}: its source says that samples are uint8, but they are {samples.dtype}")
        return samples.reshape(raw.shape)


class Feeds:
    """All inputs of one graph.

    A position counts samples of the first feed. Another Data layer advances by as many batches, of its own size."""

    def __init__(self, graph: Graph, seed: int = 0, arrays: Pair | None = None) -> None:
        """`arrays`: (x, y), the samples for a net of Input layers. Raises DataError if the data do not fit the net."""
        self.feeds: list[Feed] = []
        self._start()
        inputs: list[Tensor] = []
        for node in graph.layers:
            tops = [blob.tensor for blob in node.tops]
            if source := node.layer.source:
                try:
                    loader = open_loader(*source, graph.phase, seed, tops[0].shape[0])
                except DataError as error:
                    raise DataError(f"{node.place}: layer {node.name!r}: {error}") from None
                self.feeds.append(_checked(graph, loader, tops))
            elif not node.bottoms:
                inputs += tops
        if inputs:
            self.feeds.append(_checked(graph, _from_arrays(graph, seed, inputs, arrays), inputs))
        elif arrays is not None:
            raise DataError(f"arrays are given for {graph.phase}, but the net's data come from Data layers")
        if not self.feeds:
            raise DataError(
                f"{graph.place}: the net has no Data or Input layer in phase {graph.phase}: it gets no data"
            )

    def _start(self) -> None:
        """Start the thread, in this process: the child of a fork has none of its parent's threads."""
        self._process = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="minidnn-feed")
        self._ahead: tuple[tuple[str, int], Future[None]] | None = None  # ((program, position), the write begun for it)

    @property
    def batch(self) -> int:
        """The number of samples in a batch of the first feed."""
        return self.feeds[0].loader.batch_size

    def __len__(self) -> int:
        """The number of samples in an epoch of the first feed."""
        return len(self.feeds[0].loader.dataset)

    def __iter__(self):
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
            first = self.first(feed, position)
            raw = raw_inputs(program, feed.data) if feed.data is not None else None
            if raw is None:
                data, label = feed.loader.take(first)
                values = {feed.data: data, feed.label: label}
            else:
                samples, windows, label = feed.loader.take_raw(first)
                values = {raw[0]: feed.as_said(samples, raw[0]), raw[1]: windows, feed.label: label}
            feed.check(label, first)
            for tensor, array in values.items():
                if tensor is not None and tensor in program.inputs:
                    machine.write(tensor, array, program.name)

    def first(self, feed: Feed, position: int) -> int:
        """The position of a feed's batch, as its loader counts, at this position of all feeds."""
        return position * feed.loader.batch_size // self.batch

    def close(self) -> None:
        """End the thread that writes batches, and the loaders' threads."""
        self._thread.shutdown()
        for feed in self.feeds:
            feed.loader.close()


def _from_arrays(graph: Graph, seed: int, inputs: Sequence[Tensor], arrays: Pair | None) -> Loader:
    names = ", ".join(t.name for t in inputs)
    if arrays is None:
        which = "data" if graph.phase == "TRAIN" else "test_data"
        raise DataError(
            f"{graph.place}: {names} come from Input layers: a Solver needs {which}=(x, y), a file Data layers"
        )
    if len(inputs) != 2 or sum(t.role is Role.LABEL for t in inputs) != 1:
        raise DataError(f"{graph.place}: arrays (x, y) do not say what goes into {names}: use Data layers")
    x, y = arrays
    dataset = Arrays.of(f"{graph.phase} arrays", np.asarray(x), np.asarray(y))
    return Loader(dataset, inputs[0].shape[0], Transform(train=graph.phase == "TRAIN", seed=seed))


def _checked(graph: Graph, loader: Loader, tops: Sequence[Tensor]) -> Feed:
    """The Feed of these tensors. Raises DataError if samples or labels do not fit the net."""
    data = next((t for t in tops if t.role is Role.INPUT), None)
    label = next((t for t in tops if t.role is Role.LABEL), None)
    name = loader.dataset.name
    if data and loader.shape != data.shape:
        raise DataError(f"{name}: a batch has shape {loader.shape}, but {data.name} {data.shape}")
    readers = []
    for node in graph.layers if label else ():
        known = node.layer.classes([b.tensor.shape for b in node.bottoms])
        if known is not None and node.layer.labels is not None and node.bottoms[node.layer.labels].tensor == label:
            highest = loader.dataset.highest(node.layer.ignored)
            if highest >= known:
                what = f"label {highest} occurs, but layer {node.name} gets {known} scores per sample"
                raise DataError(f"{node.place}: {name}: {what}")
            readers.append(Reader(node.name, known, node.layer.ignored))
    return Feed(loader, data, label, readers)
