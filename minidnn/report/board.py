"""The board as tables: a net on a GPU each, with policies by budgets, and how each policy did in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidnn import sizes
from minidnn.memory.policies.bibliography import paper
from minidnn.report.bound import UNBOUND
from minidnn.report.table import duration, long, plain, prose, size
from minidnn.visible import say

HEADINGS = ("policy", "quickest", "within 5 %", "kept", "refused", "failed", "median over bound", "planning", "of")
SPARED = ("planning", "failed")
Row = Mapping[str, Any]  # of results/board.py
Document = Mapping[str, Any]


def show(document: Document, title: str, notes: str) -> None:
    """Print a table for each contest, the standings, who proposed what, and why planning failed."""
    prose(f"{title}. {notes}")
    for contest in document["contests"]:
        say()
        for sentence in heads(contest):
            prose(sentence)
        rows = of(document, contest)
        if rows:
            plain(*matrix(rows), "")
    say()
    plain(*cells(document), "Overall: each cell is a net on a GPU within a budget", spare=SPARED)
    for sentence in sentences(document):
        prose(sentence)


def of(document: Document, contest: Row) -> list[Row]:
    """The rows of a contest."""
    return [r for r in document["rows"] if all(r[name] == contest[name] for name in ("net", "batch", "gpu"))]


def named(contest: Row) -> str:
    """A contest in a few words: "vgg19, batch 64, on titan_x"."""
    batch = "" if contest["batch"] is None else f", batch {contest['batch']}"
    return f"{contest['net']}{batch}, on {contest['gpu']}"


def heads(contest: Row) -> list[str]:
    """The bounds that all cells of a contest are compared with."""
    if contest["why"] is not None:
        return [f"{named(contest)}: {contest['why']}"]
    if contest["whole_bytes"] is None:
        return [f"{named(contest)}: not planned"]
    least = ""
    if contest["least_bytes"] is not None:
        least = f" No plan takes less than {size(contest['least_bytes'])}, {UNBOUND}."
    return [
        f"{named(contest)}: with liveness:p, a step takes {duration(contest['free_seconds'])} and "
        f"{size(contest['whole_bytes'])}.{least}"
    ]


def budgets(rows: Sequence[Row]) -> list[tuple[int, float | None]]:
    """(bytes, part) of the budgets of these rows, the largest first."""
    result = {(r["budget_bytes"], r["budget_part"]) for r in rows}
    return sorted(result, key=lambda b: (-b[0], b[1] is None))


def budget(b: tuple[int, float | None]) -> str:
    """A budget for people: "50 %", or bytes."""
    return size(b[0]) if b[1] is None else f"{100 * b[1]:.4g} %"


def matrix(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings, and a line for each policy with its result within each budget."""
    columns = budgets(rows)
    result = {(r["policy"], (r["budget_bytes"], r["budget_part"])): r for r in rows}
    lines = [
        [policy, *(cell(result.get((policy, b))) for b in columns)]
        for policy in dict.fromkeys(r["policy"] for r in rows)
    ]
    return ["over the bound", *map(budget, columns)], lines


def cell(r: Row | None) -> str:
    """A cell: by how much a step exceeds the bound; the smallest budget, where it was refused."""
    if r is None:
        return "–"
    if r["failed"]:
        return "error"
    if not r["fits"]:
        host = r["smallest_host_budget_bytes"]
        return f"needs {size(r['smallest_budget_bytes'])}" if host is None else f"host: {size(host)}"
    return duration(r["step_seconds"]) if r["gap"] is None else over(r["gap"])


def over(gap: float) -> str:
    """The part of a step beyond the bound: "0.4 %", "24 %"."""
    return f"{100 * gap:.1f} %" if abs(gap) < 0.0995 else f"{100 * gap:.0f} %"


def cells(document: Document) -> tuple[list[str], list[list[str]]]:
    """Headings, and a line for each policy: how it did in all."""
    lines = []
    for s in document["standings"]:
        gap = "–" if s["median_gap"] is None else over(s["median_gap"])
        counts = [str(s[name]) for name in ("quickest", "near", "kept", "refused_cells", "failed_cells")]
        lines.append([s["policy"], *counts, gap, long(s["plan_seconds"]), short(s["policy"])])
    return list(HEADINGS), lines


def short(policy: str) -> str:
    """A policy's paper in a few words: "Rhu et al., MICRO 2016"."""
    result = paper(policy)
    return "your own" if result is None else result.short


def sentences(document: Document) -> list[str]:
    """Sentences on the results, and on missing cells."""
    sentences = []
    if not document["finished"]:
        sentences.append(f"Interrupted: {len(document['rows'])} of {document['cells']} cells are done.")
    kept = {(r["net"], r["batch"], r["gpu"], r["budget_bytes"]) for r in document["rows"] if r["fits"]}
    every = {(r["net"], r["batch"], r["gpu"], r["budget_bytes"]) for r in document["rows"]}
    if every:
        first = document["standings"][0]
        lost = len(every) - len(kept)
        none = f" {lost} {'budget is' if lost == 1 else 'budgets are'} too small for every policy." if lost else ""
        sentences.append(
            f"There is a plan within {len(kept)} of {len(every)} budgets, and {first['policy']} is the fastest "
            f"within {first['quickest']} of them.{none}"
        )
    sentences += [f"{names} failed: {why}" for why, names in failures(document).items()]
    return sentences


def failures(document: Document) -> dict[str, str]:
    """{why planning failed: the policies to which it happened, and where}"""
    result: dict[str, dict[str, None]] = {}
    for r in document["rows"]:
        if r["failed"]:
            result.setdefault(r["why"], {})[f"{r['policy']} ({named(r)})"] = None
    return {why: ", ".join(names) for why, names in result.items()}


def cell_sentence(r: Row) -> str:
    """A cell in a sentence, for the pointer and for those who do not see the picture."""
    within = f"{r['policy']} within {sizes.text(r['budget_bytes'])}"
    if r["failed"]:
        return f"{within}: planning failed"
    if not r["fits"]:
        return f"{within}: refused, {cell(r)}"
    gap = "" if r["gap"] is None else f", {over(r['gap'])} over the bound"
    return f"{within}: {duration(r['step_seconds'])}{gap}, {size(r['moved_bytes'])} moved, peak {size(r['peak_bytes'])}"
