"""One figure of a paper, and ours for the same case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from minidnn.results.others import ReproducedRow

Tell = Callable[[str], object]  # called with a name of the work in progress, to be shown to the user

MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One number of a paper and ours, both in the unit that `quantity` names ("peak, MiB").

    `paper` is None if the paper gives no number. `ours` is None if there is none, and then `reason` says why. Where
    `reason` names a fact of the paper that could be tried, `tried` is ours with that fact alone changed."""

    system: str  # "superneurons"
    figure: str  # "Table 1", "Figure 11", "section III-C"
    case: str  # "AlexNet (200), cost-aware"
    quantity: str  # "extra forwards", "peak, MiB", "relative speed"
    paper: float | None
    ours: float | None
    reason: str = ""  # why they differ, or why there is no figure of ours
    tried: float | None = None

    @property
    def deviation(self) -> float | None:
        """Ours over the paper's, less 1; None if either is missing, or if only the paper's is 0."""
        return _off(self.paper, self.ours)

    @property
    def left(self) -> float | None:
        """The deviation that is left with the fact of `reason` changed: that of `tried`."""
        return _off(self.paper, self.tried)

    def row(self) -> ReproducedRow:
        return ReproducedRow(**asdict(self), deviation=self.deviation, left=self.left)


def _off(paper: float | None, ours: float | None) -> float | None:
    if paper is None or ours is None:
        return None
    if paper == ours:
        return 0.0
    return ours / paper - 1 if paper else None
