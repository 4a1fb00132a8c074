"""What people count of a net's samples: the tokens of windows, else images, or where nothing runs samples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counted:
    """`each`: how many of these a sample has."""

    name: str
    each: int = 1

    @property
    def per_second(self) -> str:
        """The unit of a speed."""
        return f"{self.name}/s"

    def speed(self, samples_per_second: float) -> float:
        """So many samples per second, in that unit."""
        return self.each * samples_per_second


def counted(tokens: int | None, others: str = "images") -> Counted:
    """What is counted of samples that are windows of so many tokens; None: they are none, and are called `others`."""
    return Counted(others) if tokens is None else Counted("tokens", tokens)


def planned(tokens: int | None) -> Counted:
    """The same of samples of which plans tell."""
    return counted(tokens, "samples")


PER_SECOND = planned(None).per_second, planned(1).per_second  # the headings of a column of speeds
