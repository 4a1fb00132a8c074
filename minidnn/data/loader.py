"""Batches, each a pure function of (dataset, transform, seed, position). A thread can make the next one ahead of time,
or worker processes the next two (data/workers.py).

A position counts samples since training began. In TRAIN each epoch has an order of its own, in TEST the dataset's
order. A batch may begin in one epoch and end in the next. So a resumed run just asks for another position.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from minidnn.data.dataset import DataError, Dataset, Encoded, narrow
from minidnn.data.encoded import reason
from minidnn.data.random import below, permutation
from minidnn.data.transform import Transform
from minidnn.data.workers import LIMIT, Staging, Workers

Batch = tuple[np.ndarray, np.ndarray]
RawBatch = tuple[np.ndarray, np.ndarray, np.ndarray]
T = TypeVar("T")
_SKIP = 10  # its lane of the random numbers (data/random.py)


class Loader:
    """`take(position)` returns a batch, and `ahead()` lets a thread make the following one; `take_raw` leaves the
    transform to the device. `shape` is the shape of a batch."""

    def __init__(
        self,
        dataset: Dataset,
        batch: int,
        transform: Transform | None = None,
        workers: int = 0,
        sample_type: str = "float32",
        label_shape: tuple[int, ...] = (),
        order: Order | None = None,
        limit: float = LIMIT,
    ) -> None:
        """Raises DataError if the transform does not fit the dataset, or if no processes are to be had.

        workers: how many processes make the batches; 0: a thread does. They need the Source's `sample_type` and
                 `label_shape`
        order:   of the samples, if it is not the transform's
        limit:   seconds after which workers that stand still end with an error"""
        self.dataset = dataset
        self.batch_size = batch
        self.transform = transform or Transform(train=False)
        self.shape = (batch, *self.transform.shape(dataset.shape, dataset.name))
        self._raw_shape = self.transform.augment.shape(dataset.shape, dataset.name)
        self._limit = limit
        self._count, self._staging = workers, Staging(batch, self.shape[1:], self._raw_shape, sample_type, label_shape)
        self._encoded = dataset if isinstance(dataset, Encoded) else None
        self._order = order or Order(self.transform.seed, self.transform.train)
        self._whole = self._encoded is None and not self.transform.augment.changes  # whether batches are taken whole
        self._start()

    def _start(self) -> None:
        """Start the thread and the workers, in this process: the child of a fork has none of its parent's."""
        self._process = os.getpid()
        self.transform.prepare()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="minidnn-loader")
        self._next: tuple[Callable, int, Future] | None = None  # (how it is made, its position, the batch)
        self._following: tuple[Callable, int] | None = None  # how the batch after the last one is made, its position
        self._workers = (
            Workers(self._count, self._staging, self._make, self.indices, self._where, self._limit)
            if self._count
            else None
        )

    def batch(self, position: int, count: int | None = None) -> Batch:
        """The batch from this position on, made here and now: samples (n, ...) float32 and labels (n,) int32.

        count: so many samples instead of the batch size"""
        numbers = np.arange(position, position + (self.batch_size if count is None else count))
        if self._whole:
            images, labels = self._taken(numbers, self.indices(numbers))
            return self.transform(images, numbers), labels
        samples, result = np.empty((len(numbers), *self.shape[1:]), np.float32), []
        for k, (image, label) in enumerate(self._each(numbers)):
            self.transform(image[None], numbers[k : k + 1], samples[k : k + 1])
            result.append(label)
        return samples, np.array(result, np.int32)

    def raw(self, position: int) -> RawBatch:
        """The same batch before its transform, but augmented (data/augment.py): samples (n, ...) of the dataset's type,
        their windows (Transform.windows) and labels."""
        numbers = np.arange(position, position + self.batch_size)
        windows = self.transform.windows(self._raw_shape, numbers)
        if self._whole:
            images, labels = self._taken(numbers, self.indices(numbers))
            return images, windows, labels
        result = list(self._each(numbers))
        return np.stack([image for image, _ in result]), windows, np.array([label for _, label in result], np.int32)

    def _each(self, numbers: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        """The raw samples of these numbers, with their labels, one by one."""
        for number, index in zip(numbers.tolist(), self.indices(numbers).tolist(), strict=True):
            yield self._one(number, index)

    def _one(self, number: int, index: int) -> tuple[np.ndarray, Any]:
        """A raw sample, and its label or labels. Raises DataError, which names the sample."""
        augment = self.transform.augment
        try:
            if self._encoded is not None:
                data, label = self._encoded.read(index)
                return augment(self._encoded.decode(data), number, self._raw_shape, decoded=True), narrow(label)
            images, labels = self._taken(np.array([number]), np.array([index]))
            image = images[0]
            return augment(image, number, self._raw_shape) if image.ndim == 3 else image, narrow(labels[0])
        except (DataError, OSError) as error:
            raise DataError(f"{self._where(index)}: {reason(error)}") from error

    def _taken(self, numbers: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The raw samples at these indices, and their labels. Masked tokens have labels of their own."""
        images, labels = self.dataset.take(indices)
        if self.transform.masks is None:
            return images, labels
        images, restored = self.transform.masks(images, numbers)
        return images, restored.reshape(labels.shape)

    def _where(self, index: int) -> str:
        """A sample, for messages: the dataset, the index, and its place if it has one."""
        place = f" ({self._encoded.place(index)})" if self._encoded is not None else ""
        return f"{self.dataset.name}: sample {index}{place}"

    def _make(self, number: int, index: int, raw: bool, samples: np.ndarray, labels: np.ndarray, place: int) -> None:
        """Write a sample and its label to this place of a batch; what a worker does."""
        image, label = self._one(number, index)
        if raw and image.dtype != samples.dtype == np.uint8:
            raise DataError(f"{self._where(index)}: it is {image.dtype}, but its source says that samples are uint8")
        if raw:
            samples[place] = image
        else:
            self.transform(image[None], np.array([number]), samples[place : place + 1])
        labels[place] = label

    def take(self, position: int) -> Batch:
        """The batch at this position, from the thread or the workers. An error there is raised here. The workers'
        arrays are valid only until the next call."""
        if workers := self._running():
            return workers.take(position, raw=False)
        return self._take(self.batch, position)

    def take_raw(self, position: int) -> RawBatch:
        """Like `take`, of `raw`."""
        if workers := self._running():
            samples, labels = workers.take(position, raw=True)
            numbers = np.arange(position, position + self.batch_size)
            return samples, self.transform.windows(self._raw_shape, numbers), labels
        return self._take(self.raw, position)

    def _running(self) -> Workers | None:
        """The workers, if there are any, of this process."""
        if self._process != os.getpid():
            self._start()
        return self._workers

    def _take(self, make: Callable[[int], T], position: int) -> T:
        ready, self._next = self._next, None
        if ready and ready[:2] == (make, position):
            result = ready[2].result()
        else:
            if ready:
                ready[2].cancel()
            result = self._thread.submit(make, position).result()
        self._following = make, position + self.batch_size
        return result

    def ahead(self) -> None:
        """Let the thread make the batch that follows the one last taken. So there is one batch in memory at a time, if
        the caller has let go of that. Workers do so by themselves."""
        following, self._following = self._following, None
        if following is not None and self._process == os.getpid():
            make, position = following
            self._next = make, position, self._thread.submit(make, position)

    def close(self) -> None:
        """End the thread and the workers."""
        if self._workers is not None:
            self._workers.close()
        self._next = self._following = None
        self._thread.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def indices(self, numbers: np.ndarray) -> np.ndarray:
        """Sample numbers since training began -> indices into the dataset."""
        return self._order(numbers, len(self.dataset))


class Order:
    """Which sample of a dataset comes when: a function of (seed, the sample's number since training began)."""

    def __init__(self, seed: int, shuffle: bool, skip: int = 0) -> None:
        """`shuffle`: whether each epoch has an order of its own; else it is the dataset's. `skip`: a random number of
        samples below this is passed over at the beginning."""
        self._seed, self._shuffle = seed, shuffle
        self._skip = int(below(seed, np.zeros(1), _SKIP, skip)[0])
        self._epoch: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))  # (an epoch, its order)

    def __call__(self, numbers: np.ndarray, n: int) -> np.ndarray:
        """The indices, of n, of the samples of these numbers."""
        numbers = numbers + self._skip
        indices = numbers % n
        if self._shuffle:
            for epoch in np.unique(numbers // n):
                here = numbers // n == epoch
                if self._epoch[0] != epoch:
                    self._epoch = (int(epoch), permutation(self._seed, int(epoch), n))
                indices[here] = self._epoch[1][indices[here]]
        return indices
