"""minidnn: train networks larger than the device's memory. Importing it imports neither CuPy nor a backend."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# What `minidnn.<name>` is, and the module it comes from when it is first used.
_EXPORTS = {
    "L": "nets.define", "Net": "nets.net", "load": "nets.net",
    "Session": "training.session", "Solver": "training.solver",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"minidnn.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module 'minidnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_EXPORTS]
