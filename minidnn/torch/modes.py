"""What PyTorch is told for all that runs: autocast, and the like."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from minidnn.torch.installed import torch_module

AUTOCAST = ("cpu", "cuda")  # devices that torch.autocast may be on for


@contextlib.contextmanager
def no_autocast() -> Iterator[None]:
    """Leave torch.autocast for a while."""
    torch = torch_module()
    with contextlib.ExitStack() as stack:
        for device in AUTOCAST:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
