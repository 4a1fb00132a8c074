"""What PyTorch is told for all that runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from minidnn.torch.installed import torch_module

AUTOCAST = ("cpu", "cuda")  # devices that torch.autocast may be on for


def autocast() -> tuple[Any, ...]:
    """The devices for which it is on, and the number formats."""
    torch = torch_module()
    return tuple((d, torch.get_autocast_dtype(d)) for d in AUTOCAST if torch.is_autocast_enabled(d))


def modes() -> tuple[Any, ...]:
    """All of it that ops depend on."""
    torch = torch_module()
    backends = torch.backends
    return (
        *autocast(), torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype(),
        torch.get_float32_matmul_precision(), backends.mkldnn.enabled, backends.cuda.flash_sdp_enabled(),
        backends.cuda.math_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled(), backends.cudnn.enabled,
        backends.mha.get_fastpath_enabled(),
    )  # fmt: skip


@contextlib.contextmanager
def no_autocast() -> Iterator[None]:
    """Leave torch.autocast for a while."""
    torch = torch_module()
    with contextlib.ExitStack() as stack:
        for device in AUTOCAST:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
