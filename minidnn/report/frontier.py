"""The frontier as a table, and as a picture: seconds of a step against bytes, the bound below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidnn import sizes
from minidnn.memory.policies import BUDGETED
from minidnn.report.bound import UNBOUND
from minidnn.report.look import Cells, Look
from minidnn.report.plot import Plot, coloured
from minidnn.report.table import duration, size

HIGHEST = 1.7  # of the least bound: slower plans lie above the picture
OTHER = ["quickest other", "its time", "its over bound"]
SPARED = ("ops again", "copied out", "peak")
Row = Mapping[str, Any]  # of results/budgets.py


def sentences(document: Row) -> list[str]:
    """Sentences on the least budgets, and on the columns."""
    reached = document["reached_bytes"]
    kept = "" if reached is None else f"; {BUDGETED} needs {size(reached)}"
    return [
        f"The bound excludes budgets below {size(document['least_bytes'])}{kept}.",
        f"Next saves: the time that {BUDGETED} saves with the next budget. By price: what the bytes between the two "
        "budgets should save, at the bound's price per byte.",
    ]


def cells(document: Row) -> Cells:
    """Headings, and a line for each budget: the bound, `best`, what the next one saves, the quickest of the others."""
    rows, lines = document["rows"], []
    budgets = sorted({r["budget_bytes"] for r in rows})
    bests = {r["budget_bytes"]: r for r in rows if r["policy"] == BUDGETED}
    for budget, more in zip(budgets, [*budgets[1:], None], strict=True):
        at = [r for r in rows if r["budget_bytes"] == budget]
        best = bests.get(budget)
        others = sorted((r for r in at if r["policy"] != BUDGETED), key=lambda r: r["step_seconds"])
        line = [size(budget), duration(at[0]["bound_seconds"])]
        if best is None:
            line += ["–"] * 7
        else:
            line += [duration(best["step_seconds"]), _percent(best), size(best["peak_bytes"])]
            line += [size(best["offload_bytes"]), str(best["recomputed_ops"])]
            if more in bests and best["price"] is not None:
                saved = best["step_seconds"] - bests[more]["step_seconds"]
                line += [duration(saved), duration(best["price"] * (more - budget))]
            else:
                line += ["–"] * 2
        quickest = others[0] if others else None
        line += ["–"] * 3 if quickest is None else [
            quickest["policy"], duration(quickest["step_seconds"]), _percent(quickest),
        ]  # fmt: skip
        lines.append(line)
    headings = ["budget", "bound", BUDGETED, "over bound", "peak", "copied out", "ops again", "next saves", "by price"]
    if len(bests) < len(rows):
        headings += OTHER
    return headings, [line[: len(headings)] for line in lines]


def _percent(r: Row) -> str:
    return "–" if r["gap"] is None else f"{r['gap']:.1%}"


def picture(document: Row, title: str, note: str) -> str:
    """An SVG file. A line stays at a plan's seconds up to the bytes of the next quicker plan."""
    rows, bounds = document["rows"], [(b["budget_bytes"], b["bound_seconds"]) for b in document["bounds"]]
    least = min((s for _, s in bounds), default=0.0)
    top = min(HIGHEST * least, 1.05 * max(r["step_seconds"] for r in rows))
    beyond = (bounds[-1][0] - bounds[0][0]) * 0.04
    colours = coloured(r["policy"] for r in rows)
    lines = {
        policy: falling([r for r in rows if r["policy"] == policy and r["step_seconds"] <= top]) for policy in colours
    }
    names = {(policy if lines[policy] else f"{policy} (above)"): colour for policy, colour in colours.items()}
    plot = Plot(
        f"{title}: time of a step against its memory" if title else "", note,
        (bounds[0][0] - beyond, bounds[-1][0] + beyond), (least - 0.08 * (top - least), top),
        {"bound": "soft", **names},
    )  # fmt: skip
    plot.floor(bounds, f"no plan lies here {UNBOUND}")
    for policy, shown in lines.items():
        if shown:
            width = 2.6 if policy == BUDGETED else 1.5
            plot.steps([(r["peak_bytes"], r["step_seconds"]) for r in shown], colours[policy], width)
        for r in shown:
            over = "" if r["gap"] is None else f", {_percent(r)} over the bound"
            sentences = f"{policy} in {sizes.text(r['peak_bytes'])}: {duration(r['step_seconds'])}{over}"
            plot.point((r["peak_bytes"], r["step_seconds"]), colours[policy], sentences)
    return plot.svg()


def falling(rows: Sequence[Row]) -> list[Row]:
    """The rows by bytes of their arenas, without those that a smaller one is as quick as."""
    result: list[Row] = []
    for r in sorted(rows, key=lambda r: (r["peak_bytes"], r["step_seconds"])):
        if not result or r["step_seconds"] < result[-1]["step_seconds"]:
            result.append(r)
    return result


LOOK = Look(cells, sentences, SPARED, picture)
