"""Policies as points: the seconds of a step against the bytes on the device, each with the interval of its time."""

from __future__ import annotations

from collections.abc import Sequence

from minidnn import sizes
from minidnn.report.draw import WIDTH
from minidnn.report.frontier import falling
from minidnn.report.panel import Panel
from minidnn.report.plot import Plot, coloured
from minidnn.report.policies import seconds, spread

FARTHEST = 4.0  # times the slowest policy: a longer interval leaves the picture
ROOM = 0.12  # of the width and of the height, around the points


def tradeoff(panels: Sequence[Panel], budget: int | None, wide: int = WIDTH) -> str:
    """An SVG of all policies. One that is refused is hollow, at the smallest budget that it can keep. If the times are
    predicted, a line leads along the policies that none beats in both.

    budget: bytes that are allowed; None: no line
    wide:   pixels of the picture"""
    if not panels:
        return ""
    rows = {p.policy: p.row for p in panels}
    nbytes = [r["peak_bytes"] for r in rows.values()]
    nbytes += [budget] if budget is not None and budget <= 2 * max(nbytes) else []
    intervals = {policy: spread(r, "step_seconds") for policy, r in rows.items()}
    times = [r["step_seconds"] for r in rows.values()]
    top = min(max([*times, *(s.high for s in intervals.values() if s)]), FARTHEST * max(times))
    low = min([*times, *(s.low for s in intervals.values() if s)])
    colours = coloured(rows)
    across = _room(min(nbytes), max(nbytes))
    up = _room(low, top)
    plot = Plot("", "", across, (max(up[0], 0.0), up[1]), colours, wide)
    if budget is not None:
        plot.limit(budget, f"budget {sizes.text(budget)}")
    front = falling([r for r in rows.values() if r["fits"] and not r.get("timed_steps")])
    if len(front) > 1:
        plot.steps([(r["peak_bytes"], r["step_seconds"]) for r in front], "soft", 1.2)
    for policy, r in rows.items():
        result = intervals[policy]
        if result is not None:
            plot.interval(r["peak_bytes"], (result.low, result.high), colours[policy])
        refused = "" if r["fits"] else ", refused"
        text = f"{policy}: {sizes.text(r['peak_bytes'])}, {seconds(r)}{refused}"
        plot.point((r["peak_bytes"], r["step_seconds"]), colours[policy], text, hollow=not r["fits"])
    return plot.svg("Time of a step against bytes on the device, by policy")


def _room(first: float, last: float) -> tuple[float, float]:
    more = (last - first or 0.1 * last or 1) * ROOM
    return first - more, last + more
