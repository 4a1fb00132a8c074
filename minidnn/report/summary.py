"""The table of a net's layers: what each gives, its parameters, operations and bytes."""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.report.look import Cells, Look
from minidnn.report.table import size
from minidnn.results.summary import LayerRow, Summary
from minidnn.spoken import many

SPARED = ("bottoms", "parameter bytes", "type")
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def cells(document: Summary) -> Cells:
    """Headings, and a line per layer."""
    headings = ["layer", "type", "bottoms", "gives", "parameters", "parameter bytes", "flops", "bytes"]
    return headings, [_line(row) for row in document.rows]


def sentences(document: Summary) -> list[str]:
    """The sums."""
    count = f"{document.parameters:,} parameters ({size(document.parameter_bytes)})"
    return [
        f"{many(len(document.rows), 'layer')}, {count}, {counted(document.flops)}flops forward, "
        f"{size(document.top_bytes)} of feature maps. `minidnn plan` shows what training takes."
    ]


def counted(number: float) -> str:
    """A number with three figures and a unit: "3.86 G"; as it is below 1000."""
    for scale, unit in UNITS:
        if number >= scale:
            value = number / scale
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{number:.0f} "


def _line(row: LayerRow) -> list[str]:
    return [
        row.layer, row.type, _few(row.bottoms), _few(["×".join(map(str, shape)) or "1" for shape in row.shapes]),
        f"{row.parameters:,}" if row.parameters else "–", size(row.parameter_bytes) if row.parameters else "–",
        counted(row.flops).strip() if row.flops else "–", size(row.top_bytes) if row.top_bytes else "–",
    ]  # fmt: skip


def _few(words: Sequence[str]) -> str:
    return ", ".join(words) if len(words) < 4 else f"{', '.join(words[:2])}, … ({len(words)})"


LOOK = Look(cells, sentences, SPARED)
