"""The result of a range test: a table of some of its iterations, what it suggests and why, and a picture of the loss
against the rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from minidnn.report.draw import WIDTH, axis
from minidnn.report.look import Cells, Look
from minidnn.report.markup import escape
from minidnn.report.plot import LEFT, RIGHT, Plot

Row = Mapping[str, Any]  # of results/runs.py
Document = Mapping[str, Any]

SHOWN = 12  # lines of the table, besides those that are told of
SHARE = "four fifths"  # as training/rate_range.py has it
ALIKE = 3.0  # times: rates that are no farther apart are about the same


def cells(document: Document) -> Cells:
    """Headings, and a line for some iterations, equally far apart, and for each that a sentence tells of."""
    rows, told = document["rows"], _told(document)
    every = max(1, -(-len(rows) // SHOWN))
    kept = [r for i, r in enumerate(rows) if i % every == 0 or r["lr"] in told]
    lines = [
        [f"{r['iteration']}", f"{r['lr']:.3g}", f"{r['loss']:.4g}", f"{r['smoothed_loss']:.4g}", told.get(r["lr"], "")]
        for r in kept
    ]
    return ["iteration", "rate", "loss", "smoothed loss", "what"], lines


def _told(document: Document) -> dict[float, str]:
    """{a rate: what happens there}"""
    marked = {"least_loss_lr": "the least", "suggested_lr": "suggested", "diverged_lr": "diverges"}
    return {document[name]: words for name, words in marked.items() if document[name] is not None}


def sentences(document: Document) -> list[str]:
    """What the test suggests, and why; and how the solver's own rate compares."""
    rows, suggested, least = document["rows"], document["suggested_lr"], document["least_loss_lr"]
    first, last = rows[0]["lr"], rows[-1]["lr"]
    if suggested is None:
        what = f"The smoothed loss does not fall between {first:.2g} and {last:.2g}, so no rate is suggested."
        return [what, *_diverges(document)]
    smoothed = {r["lr"]: r["smoothed_loss"] for r in rows}
    result = [
        f"Suggested: base_lr {suggested:.2g}. By this rate the smoothed loss has made {SHARE} of its fall,"
        f" from {rows[0]['smoothed_loss']:.3g} to {smoothed[least]:.3g} at {least:.2g}.",
        *_diverges(document),
    ]
    if least == last:
        result.append("It still falls at the end of the range: a higher one may show a better rate.")
    own = document["base_lr"]
    if own:
        ratio = suggested / own
        words = "about the same" if 1 / ALIKE <= ratio <= ALIKE else f"{ratio:.2g} times that"
        result.append(f"The solver's own base_lr is {own:g}: the suggestion is {words}.")
    return result


def _diverges(document: Document) -> list[str]:
    if document["diverged_lr"] is None:
        return []
    return [f"At {document['diverged_lr']:.2g} training diverges, and the test ends."]


class _Losses(Plot):
    """The loss (up) against the rate (across, by powers of ten)."""

    caption = "learning rate"

    def reads(self, value: float) -> str:
        return f"{value:g}"

    def marks(self) -> list[str]:
        first, last = self.across
        return axis({k: f"{10.0**k:g}" for k in range(math.ceil(first), math.floor(last) + 1)}, self.x, self.bottom)

    def curve(self, points: Sequence[tuple[float, float]], look: str) -> None:
        path = "L".join(f"{self.x(math.log10(rate)):.1f} {self.y(loss):.1f}" for rate, loss in points)
        self.elements.append(f'<path d="M{path}" fill="none" {look}/>')

    def rates(self, told: Sequence[tuple[float, str]]) -> None:
        """A line up at each rate, and above all lines the words beside them, one below the other."""
        for rate, _ in told:
            x = self.x(math.log10(rate))
            self.elements.append(f'<line class="base" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top}" y2="{self.bottom}"/>')
        for line, (rate, words) in enumerate(told):
            x = self.x(math.log10(rate))
            anchor, dx = ("end", -7) if x > (LEFT + WIDTH - RIGHT) / 2 else ("start", 7)
            place = f'x="{x + dx:.1f}" y="{self.top + 14 + 18 * line}" text-anchor="{anchor}"'
            self.elements.append(f'<text class="soft over" {place}>{escape(words)}</text>')


def drawn(document: Document, title: str = "", note: str = "") -> str:
    """The SVG. Without a title it is part of a page."""
    rows = document["rows"]
    smoothed = [r["smoothed_loss"] for r in rows]
    least = min(*smoothed, *(r["loss"] for r in rows))
    most = max(r["loss"] for r in rows[: max(1, len(rows) // 4)])  # what diverges leaves the picture
    room = 0.12 * (most - least or abs(most) or 1.0)
    across = math.log10(rows[0]["lr"]), math.log10(rows[-1]["lr"])
    names = {"loss of an iteration": "soft", "smoothed": "area"}
    plot = _Losses(title, note, across, (least - room, most + room), names)
    plot.curve([(r["lr"], r["loss"]) for r in rows], 'stroke="var(--soft)" stroke-opacity="0.6"')
    plot.curve([(r["lr"], r["smoothed_loss"]) for r in rows], 'stroke="var(--area)" stroke-width="2.2"')
    marked = {
        "suggested_lr": "suggested: {}", "least_loss_lr": "least loss: {}", "base_lr": "the solver's own: {}",
        "diverged_lr": "diverges: {}",
    }  # fmt: skip
    told = [(document[name], words.format(f"{document[name]:.2g}")) for name, words in marked.items() if document[name]]
    plot.rates([(rate, words) for rate, words in told if across[0] <= math.log10(rate) <= across[1]])
    return plot.svg("Loss against learning rate")


LOOK = Look(cells, sentences, ("iteration",), drawn)
