"""`minidnn.torch.planned_addresses`: the allocator in PyTorch's place."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from minidnn.compiled import NotCompiled
from minidnn.errors import Failed, InvalidInput
from minidnn.torch.addresses.library import Bytes, Library, library
from minidnn.torch.experimental import takes_allocators, use_allocator
from minidnn.torch.installed import torch_module

_installed: list[Library] = []


def planned_addresses() -> None:
    """Let steps on a GPU use planned addresses, so that the reserved bytes are the planned bytes.

    Call it before anything uses CUDA. Without it, PyTorch's caching allocator chooses the addresses: the bytes in use
    are those of the plan, but the allocator may reserve more. With it, `torch.cuda.memory_stats` and functions based
    on it do not work; `minidnn.torch.reserved()` returns the bytes.

    Raises InvalidInput if CUDA is in use already, and Failed if the allocator is not available. No GPU has run this
    yet.
    """
    if _installed:
        return
    torch, cuda = torch_module(), torch_module("cuda")
    if not takes_allocators():
        raise InvalidInput(f"this PyTorch ({torch.__version__}) has no CUDA: install one that has, or plan for the CPU")
    if cuda.is_initialized():
        raise InvalidInput("CUDA is in use already: call planned_addresses() before the first tensor is on a GPU")
    try:
        own = library()
    except NotCompiled as reason:
        raise Failed(f"planned addresses need a C compiler: {reason}") from None
    runtime = ctypes.CDLL(_cudart())
    own.setup(runtime.cudaMalloc, runtime.cudaFree)
    use_allocator(*map(own.address, ("mdn_alloc", "mdn_free", "mdn_record_stream", "mdn_drop_kept")))
    _installed.append(own)


def _cudart() -> str:
    """The file of CUDA's runtime that this process has loaded."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.rpartition(" ")[2]
        if Path(path).name.startswith("libcudart.so"):
            return path
    raise Failed("PyTorch has not loaded libcudart as a library of its own: planned addresses cannot be had with it")


def installed() -> Library | None:
    """The allocator, if it stands in PyTorch's place."""
    return _installed[0] if _installed else None


def reserved() -> Bytes:
    """The reserved bytes and the bytes in use of the GPU, now and at the peak. Raises InvalidInput without planned
    addresses."""
    own: Any = installed()
    if own is None:
        raise InvalidInput(
            "planned_addresses() was not called: torch.cuda.memory_reserved() returns the reserved bytes"
        )
    return own.bytes()
