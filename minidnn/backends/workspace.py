"""A recipe's workspace, taken piece by piece. One piece of code gives the plan the sum to reserve and the kernels their
offsets, so the two cannot disagree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minidnn.memory.schedule import aligned


@dataclass(frozen=True)
class Space:
    """A piece of the workspace: its offset and its size in bytes. Its contents do not outlive the op."""

    offset: int
    nbytes: int

    def array(self, workspace: np.ndarray, dtype: str = "float32") -> np.ndarray:
        """The piece as an array, of a `workspace` in the host's memory."""
        return workspace[self.offset : self.offset + self.nbytes].view(dtype)

    def address(self, workspace: np.ndarray) -> int:
        """The piece's address in the host's memory; 0 if the piece is empty."""
        return workspace.__array_interface__["data"][0] + self.offset if self.nbytes else 0


class Workspace:
    """Adds up the pieces that a recipe takes. Each begins at an aligned offset; `nbytes` is their sum."""

    def __init__(self) -> None:
        self.nbytes = 0

    def take(self, nbytes: int) -> Space:
        """A new piece of `nbytes` bytes."""
        piece = Space(self.nbytes, nbytes)
        self.nbytes += aligned(nbytes)
        return piece
