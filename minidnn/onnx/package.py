"""The package `onnx`, or words that say how to get it."""

from __future__ import annotations

from types import ModuleType

from minidnn.errors import BadInput


class NoOnnx(BadInput, ImportError):
    """The package `onnx` is not installed."""


def onnx() -> ModuleType:
    """The package. Raises NoOnnx without it."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise NoOnnx(f"ONNX files need the package onnx ({error}): pip install 'minidnn[onnx]'") from error
    return onnx
