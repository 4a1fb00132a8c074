"""Streams and events with vector clocks, for the imitation of torch.cuda (imitation.py)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tests.torch.imitation import Imitation

Clock = dict[str, int]


def join(to: Clock, other: Clock) -> None:
    for actor, n in other.items():
        if n > to.get(actor, 0):
            to[actor] = n


class Stream:
    cuda_stream = 1

    def __init__(self, imitation: Imitation, name: str) -> None:
        self.imitation, self.name, self.clock = imitation, name, Clock()

    def wait_event(self, event: Event) -> None:
        with self.imitation.lock:
            if self.imitation.captured is not None:
                assert event.captured is self.imitation.captured, "an event from outside of the capture"
                self.imitation.forked.append(self)
            join(self.clock, event.clock)
            self.imitation.counts["waits"] += 1

    def synchronize(self) -> None:
        with self.imitation.lock:
            join(self.imitation.known(), self.clock)


class Event:
    def __init__(self, imitation: Imitation) -> None:
        self.imitation, self.clock, self.captured = imitation, Clock(), None

    def record(self, stream: Stream) -> None:
        with self.imitation.lock:
            self.clock = dict(stream.clock)
            join(self.clock, self.imitation.known())
            self.captured = self.imitation.captured
            self.imitation.counts["records"] += 1

    def synchronize(self) -> None:
        with self.imitation.lock:
            join(self.imitation.known(), self.clock)


class HostEvent(threading.Event):
    """An event among threads, which hands on what the one that sets it knows."""

    def __init__(self, imitation: Imitation) -> None:
        super().__init__()
        self.imitation, self.clock = imitation, Clock()

    def set(self) -> None:
        with self.imitation.lock:
            self.clock = dict(self.imitation.known())
        super().set()

    def wait(self, timeout: float | None = None) -> bool:
        done = super().wait(timeout)
        with self.imitation.lock:
            join(self.imitation.known(), self.clock)
        return done


class Generator:
    """The CPU's generator with a seed and an offset, as a GPU's has them."""

    device = torch.device("cuda", 0)

    def __init__(self) -> None:
        self.own, self.states = torch.default_generator, []

    def initial_seed(self) -> int:
        return self.own.initial_seed()

    def get_offset(self) -> int:
        self.states.append(self.own.get_state())
        return 4 * (len(self.states) - 1)

    def manual_seed(self, seed: int) -> None:
        self.own.manual_seed(seed)

    def set_offset(self, offset: int) -> None:
        self.own.set_state(self.states[offset // 4])
