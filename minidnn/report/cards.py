"""A table of the known GPUs: whether a network fits, and what a step takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minidnn.report.look import Cells, Look
from minidnn.report.table import duration, rate, size
from minidnn.results.counted import PER_SECOND, Counted, planned
from minidnn.spoken import option

Row = Mapping[str, Any]  # of results/budgets.py
HEADINGS = ("gpu", "memory", "fits", "peak", "host", "one step", "with unlimited memory", "slower")
SPARED = ("what", *PER_SECOND, "with unlimited memory")


def cells(document: Row) -> Cells:
    """Headings, and a line for each GPU, the least memory first."""
    samples = planned(document["tokens"])
    return (*HEADINGS, samples.per_second, "what"), [_line(r, samples) for r in document["rows"]]


def sentences(document: Row) -> list[str]:
    """Which of them are enough."""
    rows = document["rows"]
    fit = [r for r in rows if r["fits"]]
    if not fit:
        if host := [r["host_bytes"] for r in rows if r["peak_bytes"] <= r["memory_bytes"]]:
            least = size(min(host))
            little = f"this little host memory ({option('host_budget')})"
            return [f"No GPU is enough with {little}: the leanest plan takes {least} of it."]
        least = min(r["peak_bytes"] for r in rows)
        return [f"No GPU has enough memory: the leanest plan takes {size(least)}. A smaller batch needs less."]
    sentences = [f"The smallest GPU with enough memory is {fit[0]['gpu']}."]
    lossless = next((r for r in rows if r["lossless"]), None)
    if lossless is None:
        sentences.append("On each of these GPUs, a step takes longer than with unlimited memory.")
    elif lossless is not fit[0]:
        sentences.append(f"The smallest on which memory costs no time is {lossless['gpu']}.")
    return sentences


def _line(r: Row, samples: Counted) -> list[str]:
    slower = "–" if r["step_seconds"] is None else f"{r['step_seconds'] / r['free_seconds'] - 1:.1%}"
    speed = "–" if r["samples_per_second"] is None else rate(samples.speed(r["samples_per_second"]))
    return [
        r["gpu"], size(r["memory_bytes"]), "yes" if r["fits"] else "no", size(r["peak_bytes"]),
        size(r["host_bytes"]), duration(r["step_seconds"]), duration(r["free_seconds"]), slower, speed, r["title"],
    ]  # fmt: skip


LOOK = Look(cells, sentences, SPARED)
