"""Feeds: all inputs of a graph. A Data layer has a source of its own, and a DummyData layer its fillers. The tensors of
all Input and MemoryData layers are filled from data of the caller (training/given.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from minidnn.data import DataError, open_loader, source_of
from minidnn.data.workers import LIMIT
from minidnn.memory.execution.machine import Machine
from minidnn.nets.graph import Graph
from minidnn.program import Program, Role, Tensor
from minidnn.training.feed import Feed, Filled
from minidnn.training.given import Samples, fed


class Feeds:
    """All inputs of one graph.

    A position counts samples of the first feed. Another Data layer advances by as many batches, of its own size."""

    def __init__(
        self,
        graph: Graph,
        seed: int = 0,
        data: Samples | None = None,
        workers: int | None = None,
        limit: float = LIMIT,
    ) -> None:
        """Raises DataError if the data do not fit the net.

        data:    for the layers whose data the caller gives (Input, MemoryData)
        workers: processes that make the samples of each Data layer, instead of the file's number. They are forked here:
                 open Feeds before a machine, or they hold on to the arena, too
        limit:   seconds after which workers that stand still end with an error"""
        self.feeds: list[Feed | Filled] = []
        self.labels: dict[Tensor, np.ndarray] = {}  # of the batch that was written last
        self.notes: list[str] = []  # what the caller should know of the data
        self._start()
        try:
            self._open(graph, seed, data, workers, limit)
        except BaseException:
            self.close()
            raise

    def _open(self, graph: Graph, seed: int, data: Samples | None, workers: int | None, limit: float) -> None:
        inputs: list[Tensor] = []
        for node in graph.layers:
            tops = [blob.tensor for blob in node.tops]
            filled = [tops] if node.layer.source else [[top] for top in tops]
            for source, (top, *label) in zip(node.layer.sources, filled, strict=False):  # most layers have no source
                try:
                    loader = open_loader(*source, graph.phase, seed, tops[0].shape[0], workers, limit)
                    names = source_of(*source, graph.phase).class_names()
                except DataError as error:
                    raise DataError(f"{node.place}: layer {node.name!r}: {error}") from None
                self.feeds.append(Feed.of(graph, loader, top, label[0] if label else None, names))
            if node.layer.fillers:
                try:
                    self.feeds.append(Filled.of(graph, node, seed))
                except DataError as error:
                    raise DataError(f"{node.place}: {error}") from None
            elif node.layer.inputs and not node.layer.sources:
                inputs += tops
        if inputs:
            result, notes = fed(graph, seed, inputs, data)
            self.feeds += result
            self.notes += notes
        elif data is not None:
            raise DataError(f"data are given for {graph.phase}, but none of its layers takes them: Input, MemoryData")
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
            self._write_of(feed, machine, program, position)
        for feed in self.feeds:  # not before: the next batch takes the memory of this one
            feed.ahead()

    def _write_of(self, feed: Feed | Filled, machine: Machine, program: Program, position: int) -> None:
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
