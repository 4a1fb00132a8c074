"""The lives of storages in a step: when each takes its bytes, when it gives them back, and what it is.

All here are values. following.py observes them, caching.py replays them on CUDA's allocator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from minidnn.program import Role


class Event(NamedTuple):
    """A storage takes bytes (nbytes > 0), or gives back those that it took (nbytes < 0).

    storage: its place in the list of storages
    """

    storage: int
    nbytes: int


@dataclass(frozen=True)
class Storage:
    """What bytes are for.

    nbytes: exact bytes, without an allocator's rounding
    role:   PARAM, STATE (buffers, and other tensors that the module holds or refers to), INPUT (the batch),
            PARAM_GRADIENT (what ends in `.grad`), ACTIVATION (from forward, also if it runs again), GRADIENT (from
            backward), WORKSPACE (an op's scratch)
    module: the path of the module that made it; of a gradient, the module whose forward it belongs to; "" for the root
    line:   FILE:LINE of the code that made it, PyTorch's own left out; "" if unknown
    what:   the op that made it, "aten.mm"; of parameters, buffers and inputs their name
    """

    nbytes: int
    role: Role
    module: str
    line: str
    what: str


def curve(events: Iterable[Event]) -> tuple[int, ...]:
    """The bytes that are taken after each event."""
    return tuple(accumulate(event.nbytes for event in events))


def alive(events: Sequence[Event], count: int) -> list[int]:
    """The storages that hold bytes after the first `count` events, in the order in which they took them."""
    held: dict[int, int] = {}
    for event in events[:count]:
        held[event.storage] = held.get(event.storage, 0) + event.nbytes
    return [storage for storage, nbytes in held.items() if nbytes]
