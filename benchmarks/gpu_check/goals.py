"""The goals of the cuda backend, compared with the measurements. A goal is listed only if it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu_check.journal import Record

TIME_RATIO, PEAK_RATIO = 0.9, 0.7  # the most seconds and bytes, over those of PyTorch's eager mode
COPIES = 0.9  # the least rate of copies, over the link's measured rate
TIGHT, TIGHT_OF = 1.15, "vgg19"  # the most seconds in a tight budget, over those without one, and the net of this goal
GAPS, GAPS_OF = 0.02, "resnet50"  # the most time in launch gaps, as a part of an iteration, and the net it is judged by


@dataclass(frozen=True)
class Goal:
    what: str
    subject: str
    wanted: str
    found: float
    met: bool


def goals(records: Iterable[Record]) -> list[Goal]:
    by_item: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for r in records:
        if isinstance(values := r.get("values"), dict):
            by_item.setdefault(r["item"], []).append((r["case"], values))
    return [
        *_speed(by_item.get("d", [])),
        *_tight(by_item.get("e", [])),
        *_copies(by_item.get("f", [])),
        *_arena(by_item.get("s", [])),
    ]


def _speed(cases: list[tuple[str, dict[str, Any]]]) -> Iterator[Goal]:
    for case, v in cases:
        if "torch_seconds" in v:
            ratio = v["seconds"] / v["torch_seconds"]
            yield Goal("iteration over PyTorch eager's", case, f"<= {TIME_RATIO}", ratio, ratio <= TIME_RATIO)
    for case, v in cases:
        if v.get("over_torch_reserved"):
            ratio, met = v["over_torch_reserved"], v["no_slower"] and v["over_torch_reserved"] <= PEAK_RATIO
            subject = f"{case.removesuffix(', smallest peak')}: {v['policy']}{'' if v['no_slower'] else ' (slower)'}"
            yield Goal("peak over PyTorch's, of a policy that is no slower", subject, f"<= {PEAK_RATIO}", ratio, met)
    for case, v in cases:
        if "launch_gap" in v and case.startswith(GAPS_OF):
            gap = v["launch_gap"]
            yield Goal("launch gaps, of the iteration", case, f"< {GAPS}", gap, gap < GAPS)


def _tight(cases: list[tuple[str, dict[str, Any]]]) -> Iterator[Goal]:
    """For each format our best policy within the budget."""
    best: dict[str, tuple[float, str]] = {}
    for case, v in cases:
        subject, _, policy = case.partition(": ")
        if subject.startswith(TIGHT_OF) and v.get("over_unlimited") and not policy.startswith("PyTorch"):
            best[subject] = min(best.get(subject, (float("inf"), "")), (v["over_unlimited"], policy))
    for subject, (ratio, policy) in best.items():
        what = "iteration in a tight budget, over that without one"
        yield Goal(what, f"{subject}: {policy}", f"<= {TIGHT}", ratio, ratio <= TIGHT)


def _copies(cases: list[tuple[str, dict[str, Any]]]) -> Iterator[Goal]:
    """For each direction the slowest rate of large copies of all cases, in traced steps: during compute and copies of
    the other direction."""
    for way in ("out", "in"):
        key = f"{way}_bytes_per_second"
        shares = [(v[key] / v[f"link_{way}"], case) for case, v in cases if key in v]
        if shares:
            share, case = min(shares)
            yield Goal(
                f"copies {way}, of the link's rate", f"{case} (the slowest)", f">= {COPIES}", share, share >= COPIES
            )


def _arena(cases: list[tuple[str, dict[str, Any]]]) -> Iterator[Goal]:
    """The card gives memory in steps (of 2 MiB): the bytes taken may exceed the plan by less than one step, and by page
    tables."""
    for case, v in cases:
        if "beyond_arena_bytes" in v:
            beyond, step = v["beyond_arena_bytes"], max(v["granule_bytes"], 1)
            beyond -= min(max(beyond, 0), v["page_tables_bytes"])
            wanted = f"0, in the card's steps of {step}, without page tables"
            yield Goal("bytes taken besides the planned arena", case, wanted, beyond // step, 0 <= beyond < step)
