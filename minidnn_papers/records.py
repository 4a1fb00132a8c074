"""The document of `minidnn reproduce`. minidnn/results has those of all other verbs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from minidnn.results.record import Document, Record

Verdict = Literal[
    "within 10 %", "explained by a trial", "not explained", "by construction", "no figure of theirs",
    "no figure of ours",
]  # fmt: skip
System = Annotated[str, Field(description="the paper's system")]
OfRow = Annotated[
    Verdict,
    Field(
        description="what the numbers say of the difference: a trial explains it if it brings our number within 10 %, "
        "changes nothing that the paper states, and is not fitted to the same figure; what was made to agree is by "
        "construction"
    ),
]


class ReproducedRow(Record):
    """One number of a paper, and ours."""

    system: System
    figure: str = Field(description="the table or the figure of the paper")
    case: str = Field(description="the net and the setting")
    quantity: str = Field(description="what the number is, and its unit")
    paper: float | None = Field(description="the paper's number")
    ours: float | None = Field(description="our number")
    verdict: OfRow
    reason: str = Field(
        description="why they may differ, as far as the numbers bear it out, or why there is none of ours"
    )
    tried: float | None = Field(description="our number with one fact changed, which the reason names")
    deviation: float | None = Field(description="ours over the paper's, less 1")
    left: float | None = Field(description="the deviation that `tried` leaves")


class Verdicts(Record):
    """How many rows of a system have a verdict."""

    system: System
    verdict: OfRow
    figures: int = Field(description="how many rows these are")


class Reproduction(Document):
    """`minidnn reproduce`: the papers' tables and figures, compared with ours."""

    kind: Literal["reproduce"] = "reproduce"
    rows: list[ReproducedRow]
    verdicts: list[Verdicts] = Field(description="how many rows have which verdict, by system")


DOCUMENTS: dict[str, type[Document]] = {"reproduce": Reproduction}
