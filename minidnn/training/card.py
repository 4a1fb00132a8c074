"""A card's memory beside the arena, for people.

A budget limits the arena alone, so that the same budget gives the same plan on every machine. The context, cuDNN,
kernels and graphs take bytes of the card, too. Their number is known only once they are there, so it is measured then.
"""

from __future__ import annotations

from minidnn.memory.execution.device import Device
from minidnn.sizes import text


def beside_arena(device: Device) -> str | None:
    """A line: the bytes of the device's own memory that are taken now beside any arena; None: it has no such memory."""
    taken = device.beside()
    if taken is None:
        return None
    return f"Card: {text(taken)} are in use outside the arena (CUDA's context, cuDNN, kernels, graphs, other programs)"
