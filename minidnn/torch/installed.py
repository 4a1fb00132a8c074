"""PyTorch, which is imported only where it is used."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from minidnn.errors import BadInput


class NoTorch(BadInput, ImportError):
    """PyTorch, or what its exporter needs, is not installed."""


@cache
def torch_module(name: str = "") -> Any:
    """The module `torch`, or `torch.<name>`. Raises NoTorch."""
    try:
        importlib.import_module("torch")
    except ImportError:
        raise NoTorch("PyTorch is not installed: pip install 'minidnn[torch]'") from None
    return importlib.import_module(f"torch.{name}" if name else "torch")


@cache
def torch_folder() -> Path:
    """The folder of PyTorch's own files."""
    return Path(torch_module().__file__).parent
