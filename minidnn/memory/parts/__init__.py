"""Ops that run in parts of the batch: which may (kinds), how a program then looks (split), where it pays (regions)."""

from minidnn.memory.parts.split import parted

__all__ = ["parted"]
