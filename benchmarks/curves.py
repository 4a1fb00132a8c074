"""The picture of benchmarks/budgets.py: seconds of an iteration against bytes of the arena, in one SVG file."""

from __future__ import annotations

from statistics import median
from typing import Any

from minidnn import sizes
from minidnn.report import table
from minidnn.report.plot import Plot, coloured


def picture(document: dict[str, Any]) -> str:
    """An SVG file: measured seconds are filled points, foreseen ones hollow.

    The machine becomes quicker and slower, so each plan's seconds are those of its turns over those of liveness beside
    them, times liveness's median. A policy's line stays at a plan's seconds up to the bytes of its next larger plan."""
    rows = document["rows"]
    peaks = [*(r["peak_bytes"] for r in rows), document["bounds"][0][0]]
    beyond = (max(peaks) - min(peaks)) * 0.06 or 0.1 * max(peaks)
    usual = median(seconds for r in rows for seconds in r["liveness_rounds"])
    took = [usual * r["over_liveness"] for r in rows]
    foreseen = [seconds * r["predicted_ratio"] for seconds, r in zip(took, rows, strict=True)]
    least = [(nbytes, usual * part) for nbytes, part in document["bounds"]]
    every = [*took, *foreseen, *(seconds for _, seconds in least)]
    title = f"{document['network']}, batch {document['batch']}: seconds of an iteration against its bytes"
    note = f"{document['machine']['cpu']}, {document['threads']} threads; filled: measured, hollow: foreseen"
    colours = coloured(r["policy"] for r in rows)
    across, up = (min(peaks) - beyond, max(peaks) + beyond), (0.95 * min(every), 1.03 * max(every))
    plot = Plot(title, note, across, up, {"bound": "soft", **colours})
    plot.floor(least, "no plan is foreseen here")
    for policy, colour in colours.items():
        of = sorted(
            (r["peak_bytes"], measured, said, r["offload_bytes"])
            for r, measured, said in zip(rows, took, foreseen, strict=True)
            if r["policy"] == policy
        )
        plot.steps([(nbytes, seconds) for nbytes, seconds, _, _ in of], colour, 1.6)
        for nbytes, seconds, said, moved in of:
            text = (
                f"{policy} in {sizes.text(nbytes)}: {table.duration(seconds)}, foreseen {table.duration(said)}, "
                f"{sizes.text(moved)} moved out"
            )
            plot.point((nbytes, said), colour, text, hollow=True)
            plot.point((nbytes, seconds), colour, text)
    return plot.svg()
