"""Batches, each a pure function of (dataset, transform, seed, position); a thread makes the next one ahead of time.

A position counts samples since training began. In TRAIN each epoch has an order of its own, in TEST the dataset's
order. A batch may begin in one epoch and end in the next. So a resumed run just asks for another position.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from minidnn.data.dataset import Dataset
from minidnn.data.random import permutation
from minidnn.data.transform import Transform

Batch = tuple[np.ndarray, np.ndarray]
RawBatch = tuple[np.ndarray, np.ndarray, np.ndarray]
T = TypeVar("T")


class Loader:
    """`take(position)` returns a batch and lets a thread make the following one; `take_raw` leaves the transform to the
    device. `shape` is the shape of a batch."""

    def __init__(self, dataset: Dataset, batch: int, transform: Transform | None = None) -> None:
        self.dataset = dataset
        self.batch_size = batch
        self.transform = transform or Transform(train=False)
        self.shape = (batch, *self.transform.shape(dataset.shape, dataset.name))
        self._start()
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))  # (an epoch, its order)

    def _start(self) -> None:
        """Start the thread, in this process: the child of a fork has none of its parent's threads."""
        self._process = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="minidnn-loader")
        self._next: tuple[Callable, int, Future] | None = None  # (how it is made, its position, the batch)

    def batch(self, position: int) -> Batch:
        """The batch from this position on, made here and now: samples (n, ...) float32 and labels (n,) int32."""
        numbers = np.arange(position, position + self.batch_size)
        images, labels = self.dataset.take(self.indices(numbers))
        return self.transform(images, numbers), labels

    def raw(self, position: int) -> RawBatch:
        """The same batch before its transform: samples (n, ...) as the dataset has them, their windows
        (Transform.windows) and labels."""
        numbers = np.arange(position, position + self.batch_size)
        images, labels = self.dataset.take(self.indices(numbers))
        return images, self.transform.windows(self.dataset.shape, numbers), labels

    def take(self, position: int) -> Batch:
        """The batch at this position, from the thread; an error of the thread is raised here."""
        return self._take(self.batch, position)

    def take_raw(self, position: int) -> RawBatch:
        """Like `take`, of `raw`."""
        return self._take(self.raw, position)

    def _take(self, make: Callable[[int], T], position: int) -> T:
        if self._process != os.getpid():
            self._start()
        ready, self._next = self._next, None
        if ready and ready[:2] == (make, position):
            result = ready[2].result()
        else:
            if ready:
                ready[2].cancel()
            result = self._thread.submit(make, position).result()
        following = position + self.batch_size
        self._next = (make, following, self._thread.submit(make, following))
        return result

    def close(self) -> None:
        """End the thread."""
        self._next = None
        self._thread.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def indices(self, numbers: np.ndarray) -> np.ndarray:
        """Sample numbers since training began -> indices into the dataset: in TRAIN by the order of their epoch."""
        n = len(self.dataset)
        indices = numbers % n
        if self.transform.train:
            for epoch in np.unique(numbers // n):
                here = numbers // n == epoch
                if self._order[0] != epoch:
                    self._order = (int(epoch), permutation(self.transform.seed, int(epoch), n))
                indices[here] = self._order[1][indices[here]]
        return indices
