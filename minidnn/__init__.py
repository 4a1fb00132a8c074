"""minidnn: train networks larger than the device's memory. Importing it imports neither CuPy nor a backend."""

from __future__ import annotations

__version__ = "0.1.0"
