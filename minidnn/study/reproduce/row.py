"""One figure of a paper beside ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

Tell = Callable[[str], object]  # what is being worked on, for people who wait

MIB = 2**20


@dataclass(frozen=True)
class Row:
    """`paper` is what the paper prints, in the unit that `quantity` names ("peak, MiB"); None where it gives none.
    `ours` is what this software finds for the same; None where it cannot, and then `reason` says why."""

    system: str  # "superneurons"
    figure: str  # "Table 1", "Figure 11", "section III-C"
    case: str  # "AlexNet (200), cost-aware"
    quantity: str  # "extra forwards", "peak, MiB", "relative speed"
    paper: float | None
    ours: float | None
    reason: str = ""  # why they differ, or why there is no figure of ours

    @property
    def deviation(self) -> float | None:
        """Ours over the paper's, less one."""
        if self.paper is None or self.ours is None:
            return None
        if self.paper == self.ours:
            return 0.0
        return self.ours / self.paper - 1 if self.paper else None

    def as_dict(self) -> dict[str, Any]:
        """As `minidnn reproduce --json` prints it."""
        return {**asdict(self), "deviation": self.deviation}
