"""A table of the seconds and rates of each op and algorithm that `minidnn profile` measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidnn.report.devices import beside, rates
from minidnn.report.table import duration, plain, prose, size

HEADINGS = ("op", "algorithm", "workspace", "time", "GFLOP/s", "GB/s")


def show(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], count: int, title: str) -> None:
    """Print these rows, then the refused algorithms and the rates of copies from `document`.

    count: how many measurements its cache file holds"""
    lines = [
        [
            row["op"],
            row["algorithm"],
            size(row["workspace_bytes"]),
            duration(row["op_seconds"]),
            f"{row['flops'] / row['op_seconds'] / 1e9:.1f}",
            f"{row['operand_bytes'] / row['op_seconds'] / 1e9:.1f}",
        ]
        for row in rows
    ]
    plain(HEADINGS, lines, title)
    for why in document["refused_algorithms"].values():
        prose(f"refused, and not used: {why}")
    prose(beside(document["beside_compute"]))
    counted = f"{document['measured_now']} measured now, {count} kept in {document['cache']}"
    prose(f"copies out / in: {rates(document)}; {counted}")
