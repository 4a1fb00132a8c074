"""What workers write and their watchdog reads while they run: counts, and the case that is being tried.

It is a file that all map into memory, so that a worker that was killed leaves its counts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

FAULTS = ("signals", "tracebacks", "hangs", "over 1 GiB", "misread")
COUNTS = ("cases", "accepted", "refused", *FAULTS, "known", "slowest", "seconds")
NOW = ("kind", "since")  # of a worker: the kind's number, and when it began the case (time.monotonic); 0: none


class Board:
    def __init__(self, folder: Path, workers: int, kinds: int) -> None:
        self.folder = folder
        path, shape = folder / "board", (workers, kinds * len(COUNTS) + len(NOW))
        if not path.exists():
            np.zeros(shape).tofile(path)
        self._all = np.memmap(path, np.float64, "r+", shape=shape)
        self.counts = self._all[:, : -len(NOW)].reshape(workers, kinds, len(COUNTS))
        self.now = self._all[:, -len(NOW) :]

    def case(self, worker: int) -> Path:
        """The file with the case that a worker is trying."""
        return self.folder / f"case-{worker}"

    def add(self, worker: int, kind: int, what: str, number: float = 1) -> None:
        self.counts[worker, kind, COUNTS.index(what)] += number

    def total(self) -> dict[str, np.ndarray]:
        """Each count by kind, of all workers together; of the slowest case, the largest."""
        found = {what: self.counts[:, :, i].sum(0) for i, what in enumerate(COUNTS)}
        return found | {"slowest": self.counts[:, :, COUNTS.index("slowest")].max(0)}
