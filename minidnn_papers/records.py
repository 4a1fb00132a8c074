"""The document of `minidnn reproduce`, and the meaning of its names. minidnn/results has those of all other verbs."""

from __future__ import annotations

from typing import Literal

from minidnn.results.record import Document, Record

Verdict = Literal[
    "within 10 %", "explained by a trial", "not explained", "by construction", "no figure of theirs",
    "no figure of ours",
]  # fmt: skip


class ReproducedRow(Record):
    """One number of a paper, and ours."""

    system: str
    figure: str
    case: str
    quantity: str
    paper: float | None
    ours: float | None
    verdict: Verdict
    reason: str
    tried: float | None
    deviation: float | None
    left: float | None


class Verdicts(Record):
    """How many rows of a system have a verdict."""

    system: str
    verdict: Verdict
    figures: int


class Reproduction(Document):
    """`minidnn reproduce`: the papers' tables and figures, compared with ours."""

    kind: Literal["reproduce"] = "reproduce"
    rows: list[ReproducedRow]
    verdicts: list[Verdicts]


DOCUMENTS: dict[str, type[Document]] = {"reproduce": Reproduction}
WORDS = {
    "system": "the paper's system",
    "figure": "the table or the figure of the paper",
    "case": "the net and the setting",
    "quantity": "what the number is, and its unit",
    "paper": "the paper's number",
    "ours": "our number",
    "verdict": "what the numbers say of the difference: a trial explains it if it brings our number within 10 %, "
    "changes nothing that the paper states, and is not fitted to the same figure; what was made to agree is by "
    "construction",
    "verdicts": "how many rows have which verdict, by system",
    "figures": "how many rows these are",
    "reason": "why they may differ, as far as the numbers bear it out, or why there is none of ours",
    "tried": "our number with one fact changed, which the reason names",
    "deviation": "ours over the paper's, less 1",
    "left": "the deviation that `tried` leaves",
}
