"""What people call the samples of a net, and count: the tokens of windows, else images."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counted:
    """`each`: how many of these a sample has."""

    name: str
    each: int = 1


def counted(tokens: int | None) -> Counted:
    """What is counted of samples that are windows of so many tokens; None: they are none."""
    return Counted("images") if tokens is None else Counted("tokens", tokens)
