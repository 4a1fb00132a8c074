"""One figure of a paper, and ours for the same case; and what the numbers themselves say of the difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minidnn_papers.records import ReproducedRow, Verdict

Tell = Callable[[str], object]  # called with a name of the work in progress, to be shown to the user

MIB = 2**20
FAR = 0.1  # figures further off than this want a trial that explains them
TRAINS, KEEPS = "trains in 12 GB", "keeps the accuracy"
YES_OR_NO = (TRAINS, KEEPS)  # quantities: 1 for yes, 0 for no
EXACT = 0.0005  # figures count as equal below this deviation

# Why a trial that comes close explains nothing.
FITTED = "which is fitted to this figure"
UNSTATED = "which is not what the paper states"
UNFOUNDED = "for which no mechanism is known"


@dataclass(frozen=True)
class Directed:
    """A reason that says on which side of the paper's figure ours is: -1: it is lower, 1: it is higher."""

    text: str
    side: int


def lower(text: str) -> Directed:
    return Directed(text, -1)


def higher(text: str) -> Directed:
    return Directed(text, 1)


@dataclass(frozen=True)
class Trial:
    """Ours with one fact changed.

    what:   the fact, as it was tried: "with the paper's batch"
    barred: FITTED, UNSTATED or UNFOUNDED; empty where the trial may explain the difference"""

    what: str
    ours: float | None
    barred: str = ""


@dataclass(frozen=True)
class Row:
    """One number of a paper and ours, both in the unit that `quantity` names ("peak, MiB").

    `paper` is None if the paper gives no number. `ours` is None if there is none, and then `reason` says why. A row has
    at least one of them. `constructed`: ours is close because it was made so."""

    system: str  # "superneurons"
    figure: str  # "Table 1", "Figure 11", "section III-C"
    case: str  # "AlexNet (200), cost-aware"
    quantity: str  # "extra forwards", "peak, MiB", "relative speed"
    paper: float | None
    ours: float | None
    reason: str | Directed = ""  # why they may differ, or why there is no figure of ours
    trial: Trial | None = None
    constructed: bool = False

    @property
    def deviation(self) -> float | None:
        """Ours over the paper's, less 1; None if either is missing, or if only the paper's is 0."""
        return _off(self.paper, self.ours)

    @property
    def left(self) -> float | None:
        """The deviation that the trial leaves."""
        return None if self.trial is None else _off(self.paper, self.trial.ours)

    @property
    def verdict(self) -> Verdict:
        """What the numbers say, whatever the reason says."""
        if self.paper is None or self.ours is None:
            return "no figure of theirs" if self.paper is None else "no figure of ours"
        if self.constructed:
            return "by construction"
        if _near(self.deviation):
            return "within 10 %"
        if self.trial is None or not _near(self.left):
            return "not explained"
        return {"": "explained by a trial", FITTED: "by construction"}.get(self.trial.barred, "not explained")  # type: ignore[return-value]

    @property
    def refuted(self) -> bool:
        """Whether the row's own numbers contradict its reason."""
        off = self.deviation
        return isinstance(self.reason, Directed) and off is not None and off * self.reason.side < -EXACT

    @property
    def said(self) -> str:
        """The verdict where it is no agreement, the reason as far as the numbers bear it out, and the trial."""
        reason = self.reason.text if isinstance(self.reason, Directed) else self.reason
        stated = {"not explained": "not explained", "by construction": "by construction"}.get(self.verdict, "")
        if self.refuted:
            reason, stated = "", stated or "not explained"
        return ". ".join(_sentence(part) for part in (stated, reason, self._tried()) if part)

    def _tried(self) -> str:
        trial, left = self.trial, self.left
        if trial is None:
            return ""
        words = [f"tried: {trial.what}", *([trial.barred] if trial.barred else [])]
        if not _near(left):
            closer = left is not None and self.deviation is not None and abs(left) < abs(self.deviation)
            words.append("which does not suffice" if closer else "which is no closer")
        return ", ".join(words)

    def row(self) -> ReproducedRow:
        return ReproducedRow(
            system=self.system, figure=self.figure, case=self.case, quantity=self.quantity, paper=self.paper,
            ours=self.ours, deviation=self.deviation, verdict=self.verdict, reason=self.said,
            tried=None if self.trial is None else self.trial.ours, left=self.left,
        )  # fmt: skip


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].removesuffix(".")


def _near(off: float | None) -> bool:
    return off is not None and abs(off) <= FAR


def _off(paper: float | None, ours: float | None) -> float | None:
    if paper is None or ours is None:
        return None
    if paper == ours:
        return 0.0
    return ours / paper - 1 if paper else None
