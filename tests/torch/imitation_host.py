"""A step's runtime on the imitation of torch.cuda, with a host and a disk that say what they access."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from minidnn.torch.cuda_runtime import OnCUDA
from minidnn.torch.devices import suited
from minidnn.torch.lines import Lines
from tests.torch.imitation import DISK, Imitation
from tests.torch.imitation_streams import HostEvent, join


def runtime_on(imitation: Imitation) -> Callable[..., OnCUDA]:
    def runtime(device: Any, schedule: Any, disk: Any = None) -> OnCUDA:
        watched: Any = None if disk is None else WatchedDisk(imitation, disk)
        lines = lambda streams: WatchedLines(imitation, streams)  # noqa: E731
        return OnCUDA(schedule, device, watched, imitation, imitation.copying, lines)

    return runtime


@contextmanager
def imitated(step: Any, allocator: Any = None) -> Iterator[Imitation]:
    """The imitation on which a step of a module on the CPU runs within the context, as one on a GPU does there."""
    imitation = Imitation(allocator=allocator)
    step._runtime = runtime_on(imitation)
    step._suited = lambda _, schedule: suited(torch.device("cuda", 0), schedule)
    with imitation:
        yield imitation


class WatchedDisk:
    def __init__(self, imitation: Imitation, disk: Any) -> None:
        self.imitation, self.disk = imitation, disk

    def write(self, source: np.ndarray, at: int, name: str) -> None:
        self.imitation.by_host(source.ctypes.data, source.nbytes, write=False)
        self.imitation.by_host(DISK + at, source.nbytes, write=True)
        self.disk.write(source, at, name)

    def read(self, target: np.ndarray, at: int, name: str) -> None:
        self.imitation.by_host(DISK + at, target.nbytes, write=False)
        self.imitation.by_host(target.ctypes.data, target.nbytes, write=True)
        self.disk.read(target, at, name)


class WatchedLines(Lines):
    """Lines whose threads hand on what they know. What the calling thread learns within a step they do not: it may hear
    of one line from another before a schedule says that it waits, and no schedule relies on that."""

    def __init__(self, imitation: Imitation, streams: Any) -> None:
        self.imitation = imitation
        super().__init__(streams)

    def event(self) -> threading.Event:
        return HostEvent(self.imitation)

    def begin(self) -> None:
        super().begin()
        with self.imitation.lock:
            self.told = dict(self.imitation.known())

    def put(self, stream: str, call: Callable[..., object], *args: Any) -> None:
        super().put(stream, self._told, call, *args)
        if self.imitation.hurry and threading.current_thread() not in self._threads:
            del args
            made = threading.Event()
            self._queues[stream].put([made.set, None])
            made.wait()

    def _told(self, call: Callable[..., object], *args: Any) -> None:
        with self.imitation.lock:
            join(self.imitation.known(), self.told)
        call(*args)
