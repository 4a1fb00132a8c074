"""A table of the known GPUs: whether a network fits, and what a step takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidnn.report.table import duration, plain, size
from minidnn.visible import say

Row = Mapping[str, Any]  # of study/cards.py
SPARED = ("what", "samples/s", "with endless memory")


def show(rows: Sequence[Row], title: str) -> None:
    """Print a line for each GPU, the least memory first, and below which of them are enough."""
    headings = ["gpu", "memory", "fits", "peak", "one step", "with endless memory", "slower", "samples/s", "what"]
    title = f"{title}. Simulated: the plans of best within each GPU's memory"
    plain(headings, [_line(r) for r in rows], title, spare=SPARED)
    fit = [r for r in rows if r["fits"]]
    if not fit:
        least = min(r["peak_bytes"] for r in rows)
        say(f"None is enough: the leanest plan takes {size(least)}. A smaller --batch needs less.")
        return
    say(f"{fit[0]['gpu']} is the smallest that is enough.")
    lossless = next((r for r in rows if r["lossless"]), None)
    if lossless is None:
        say("On each of them a step takes longer than with endless memory.")
    elif lossless is not fit[0]:
        say(f"{lossless['gpu']} is the smallest on which memory costs no time.")


def _line(r: Row) -> list[str]:
    slower = "–" if r["step_seconds"] is None else f"{r['step_seconds'] / r['free_seconds'] - 1:.1%}"
    speed = "–" if r["samples_per_second"] is None else f"{r['samples_per_second']:.4g}"
    return [
        r["gpu"], size(r["memory_bytes"]), "yes" if r["fits"] else "no", size(r["peak_bytes"]),
        duration(r["step_seconds"]), duration(r["free_seconds"]), slower, speed, r["title"],
    ]  # fmt: skip
