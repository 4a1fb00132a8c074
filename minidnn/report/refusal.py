"""A refused budget: a picture in text of the worst moment, the least that is possible, and what would fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minidnn import sizes
from minidnn.report.bound import UNBOUND
from minidnn.report.draw import ROLES
from minidnn.report.table import console_of, duration, plain, prose, rate, size
from minidnn.results.counted import PER_SECOND, Counted, planned
from minidnn.visible import say

Row = Mapping[str, Any]

REASONS = {  # by the values of moment.Why
    "in use": "the op reads or writes it",
    "workspace": "the op's scratch",
    "carried": "weights and their state, which live on the device",
    "on the way": "its copy to the host is not done, or it came back ahead of its use",
    "kept": "an op reads it later; it could leave the device, but the plan keeps it",
}
BAR = 30  # characters that stand for all live bytes
WIDE = 100  # characters of a line, at most
OWN = 20  # a tensor with at least 1/OWN of the live bytes has a bar of its own
FEW = 4  # up to so many tensors each have one
SMALL = 200  # a tensor with less than 1/SMALL of them is not shown by itself
SPARED = ("host", *PER_SECOND)


def show(answer: Row) -> None:
    """Print a refused policy's answer, made by jobs/remedies.py: its moment, the least bytes, and what fits."""
    if answer["worst"] is not None:
        prose(f"refused: {answer['why'].partition('; at ')[0]}.")
        show_worst(answer["worst"], answer["limit_bytes"])
    if not answer["host"]:
        for sentence in _least(answer):
            prose(sentence)
        say()
    fits, vain = answer["remedies"], answer["in_vain"]
    if fits:
        samples = planned(answer["tokens"])
        headings = ["add to the command", "peak", "one step", samples.per_second, "host"]
        title = "What would fit (each plan is proved, its time predicted)"
        plain(headings, [_line(t, samples) for t in fits], title, spare=SPARED)
        for t in fits:
            if t["note"]:
                prose(f"{t['options']}: {t['note']}.")
    elif vain:
        say("None of the changes that were tried fits.")
    else:
        say("There is no change to try.")
    if vain:
        prose(f"Tried without success, the closest first: {', '.join(map(_failed, vain))}.")


def show_worst(worst: Row, limit: int) -> None:
    """Print the tensors that are live at the worst moment, and why (`Moment.row`). Each bar begins where the one before
    ends; a line marks the limit."""
    live = worst["live_bytes"]
    op = worst["op"] + (f" ({worst['place']})" if worst["place"] else "")
    where = f"{op}, op {worst['number']} of {worst['ops']} of {worst['program']}"
    prose(f"The worst moment, {where}: {sizes.text(live)} live.")
    mark = round(BAR * limit / live) if limit < live else None
    if mark is not None:
        say(" " * (2 + mark) + f"│ {sizes.text(limit)} allowed")
    width = min(console_of(None).width, WIDE)
    before = 0
    for why, text in REASONS.items():
        held = worst["held_bytes"][why]
        if held * SMALL < live:
            continue
        text = _scratch(worst) if why == "workspace" else text
        say(_cut(f"{why}, {sizes.text(held)}: {text}", width))
        for nbytes, words in _grouped([r for r in worst["residents"] if r["stays"] == why], live):
            bar = _bar(before, nbytes, live, mark)
            before += nbytes
            say(_cut(f"  {bar}  {sizes.text(nbytes):>8}  {words}", width))
    if before < live:
        say(f"and {sizes.text(live - before)} in small tensors")
    say()


def _scratch(worst: Row) -> str:
    own, lean = worst["algorithm"], worst["leanest_algorithm"]
    other = "no other needs less" if own == lean else f"{lean} needs {size(worst['leanest_workspace_bytes'])}"
    return f"scratch of its algorithm {own}; {other}"


def _grouped(residents: Sequence[Row], live: int) -> Iterator[tuple[int, str]]:
    """(bytes, words) of the large tensors, then of the others by role, with their number. Persistent tensors are all
    grouped."""
    least = live / (SMALL if len(residents) <= FEW else OWN)
    own = [r for r in residents if r["tensor_bytes"] >= least and r["stays"] != "carried"]
    for r in own:
        yield r["tensor_bytes"], _named(r)
    by: dict[str, list[int]] = defaultdict(list)
    for r in residents:
        if r not in own:
            by[r["role"]].append(r["tensor_bytes"])
    groups = [(sum(group), f"{ROLES[role]} ({len(group)})") for role, group in by.items()]
    yield from sorted((group for group in groups if group[0] * SMALL >= live), reverse=True)


def _named(r: Row) -> str:
    return _called(r) + (f" ({r['place']})" if r["place"] else "")


def _called(r: Row) -> str:
    if r["read"]:
        return f"reads {r['name']}"
    if r["stays"] != "in use":
        return str(r["name"])
    return f"writes {r['name']}" + (f" over {r['over']}" if r["over"] not in ("", r["name"]) else "")


def _bar(before: int, nbytes: int, live: int, mark: int | None) -> str:
    """Blocks from the bytes `before` to the end of `nbytes` more, with a line at the mark."""
    begin, end = round(BAR * before / live), round(BAR * (before + nbytes) / live)
    cells = " " * begin + ("█" * (end - begin) or "▏")
    cells = f"{cells:{BAR}}"[:BAR]
    return cells + " " if mark is None else f"{cells[:mark]}│{cells[mark:]}"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def _least(answer: Row) -> Iterator[str]:
    limit, least = answer["limit_bytes"], answer["least_bytes"]
    yield f"The leanest plan of {answer['policy']} takes {sizes.text(answer['reached_bytes'])}."
    if least is not None:
        yield f"No plan takes less than {sizes.text(least)}, {UNBOUND} (docs/policies.md)."
        if least <= limit and not any(t["change"].keys() == {"policy"} for t in answer["remedies"]):
            yield "The limit lies between the two: no plan within it was found, but one may exist."
    if answer["carried_bytes"] > limit:
        carried = sizes.text(answer["carried_bytes"])
        home = "" if answer["carried_stays"] else ", but keeping them on the host does"
        why = f"more than the limit: no smaller batch helps{home}"
        yield f"Weights and their state take {carried}, {why}."
    elif answer["largest_batch"] == 0:
        yield "With nothing else changed, no plan that runs each op whole keeps the limit, even at batch size 1."
    elif answer["largest_batch"] is not None:
        above = answer["largest_batch"]
        yield (
            f"With nothing else changed, no plan that runs each op whole keeps the limit at a batch size above {above}."
        )


def _line(t: Row, samples: Counted) -> list[str]:
    known = t["batch"] is not None and t["step_seconds"]
    speed = rate(samples.speed(t["batch"] / t["step_seconds"])) if known else "–"
    return [t["options"], size(t["peak_bytes"]), duration(t["step_seconds"]), speed, size(t["host_bytes"])]


def _failed(t: Row) -> str:
    needs = sizes.text(t["peak_bytes"])
    return f"{t['options']} ({f'needs {needs}' if t['planned'] else f'no plan below {needs}'})"
