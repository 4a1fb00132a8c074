"""A recipe's workspace, piece by piece. The plan reserves the sum of the pieces and a kernel uses just them, from one
piece of code, so that the two cannot drift apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minidnn.memory.schedule import aligned


@dataclass(frozen=True)
class Space:
    """A piece of the workspace. Its contents do not outlive the op."""

    offset: int
    nbytes: int

    def array(self, workspace: np.ndarray, dtype: str = "float32") -> np.ndarray:
        """The piece of a workspace that is in the host's memory."""
        return workspace[self.offset : self.offset + self.nbytes].view(dtype)

    def address(self, workspace: np.ndarray) -> int:
        """Where that begins; 0 if it is empty."""
        return workspace.__array_interface__["data"][0] + self.offset if self.nbytes else 0


class Workspace:
    """Adds up the pieces that are taken. Each begins at an aligned offset."""

    def __init__(self) -> None:
        self.nbytes = 0

    def take(self, nbytes: int) -> Space:
        piece = Space(self.nbytes, nbytes)
        self.nbytes += aligned(nbytes)
        return piece
