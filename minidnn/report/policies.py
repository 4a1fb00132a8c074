"""A table of policies: the memory, traffic and time of each, and why a budget refused it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from minidnn import sizes
from minidnn.measuring.load import BUSY
from minidnn.measuring.spread import FEWEST, Spread
from minidnn.memory.schedule import Schedule
from minidnn.report.bound import UNBOUND
from minidnn.report.draw import ROLES
from minidnn.report.table import console_of, duration, left_out, plain, prose, rate, size
from minidnn.results.counted import Counted, planned

Row = Mapping[str, Any]


def _identical(row: Row) -> str:
    return {True: "yes", False: "NO", None: "–"}[row.get("identical")]


REFUSED = "The numbers of a refused policy are for the smallest budget that it can keep."


def slowdown(row: Row) -> str:
    """Time over baseline's: "1.25×"; with the interval if the policy was run: "1.25× (1.18–1.33)"."""
    if row["slowdown"] is None:
        return "–"
    result = spread(row, "slowdown")
    sure = f" ({result.low:.2f}–{result.high:.2f})" if result and result.low != result.high else ""
    return f"{row['slowdown']:.2f}×{sure}"


def seconds(row: Row) -> str:
    """Seconds of a step: "2.50 ms"; with the interval if the policy was run: "2.50 ms (2.41–2.72)"."""
    return duration(row["step_seconds"], spread(row, "step_seconds"))


def sure(row: Row) -> bool:
    """Whether the row's times have an interval that says something: they are predicted, or of enough steps."""
    timed = row.get("timed_steps")
    return timed is None or timed >= FEWEST


def groups(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in groups by time, quickest first. Neighbours whose intervals overlap are in one group: nothing is known
    of the order within a group, and each row is quicker than those of later groups."""
    result: list[list[Row]] = []
    for row in sorted(rows, key=_time):
        if result and any(_overlap(other, row) for other in result[-1]):
            result[-1].append(row)
        else:
            result.append([row])
    return result


def _time(row: Row) -> float:
    return float(row["step_seconds"] if row["slowdown"] is None else row["slowdown"])


def _overlap(a: Row, b: Row) -> bool:
    """Whether the two rows' times are too noisy to rank them.

    Slowdowns are compared if both rows have intervals of them, since they vary less than seconds; else seconds."""
    for what in ("slowdown", "step_seconds"):
        one, other = spread(a, what), spread(b, what)
        if one and other:
            return not (sure(a) and sure(b)) or one.overlaps(other)
    return False


def spread(row: Row, what: str) -> Spread | None:
    """The interval of "slowdown" or of "step_seconds"; None if the policy was not run."""
    low, high = row.get(f"{what}_low"), row.get(f"{what}_high")
    return None if low is None or high is None else Spread(row[what], low, high)


def noise(rows: Sequence[Row]) -> list[str]:
    """Sentences on what the measurements do not say: the order of policies whose intervals overlap, times on an idle
    machine."""
    sentences = []
    kept = [r for r in rows if r["fits"]]
    if all(map(sure, kept)):
        apart = [group for group in groups(kept) if len(group) > 1]
        sentences += [f"Too noisy to rank by time: {', '.join(r['policy'] for r in group)}." for group in apart]
    elif len(kept) > 1:
        sentences.append(f"Too few steps to rank by time: ranking takes {FEWEST} timed steps.")
    others = max((r.get("other_processors") or 0.0 for r in rows), default=0.0)
    if others >= BUSY:
        sentences.append(
            f"The machine was busy: while steps were timed, other programs kept {others:.1f} processors busy."
        )
    return sentences


def bounded(rows: Sequence[Row]) -> list[str]:
    """A sentence about the bound, if there is one. Like all that is predicted it says nothing of measured times. It is
    of ops as a whole, in the parts that `best` tries, and in those of these rows (memory/joint/variants.py)."""
    result = [r["bound_seconds"] for r in rows if r.get("bound_seconds") and not r.get("timed_steps")]
    sentence = "By the costs of ops and copies, no plan within the budget takes less than"
    return [f"{sentence} {duration(min(result))}, {UNBOUND}."] if result else []


def tiers(rows: Sequence[Row]) -> list[str]:
    """A sentence for each policy that uses a disk or a peer: the bytes that it takes everywhere."""
    return [
        f"{r['policy']} takes {size(r['peak_bytes'])} on the device, {size(r['pinned_bytes'])} of pinned and "
        f"{size(r['pageable_bytes'])} of ordinary memory on the host, and {size(r['on_disk_bytes'])} on the disk "
        f"({size(r['undo_bytes'])} of it for undo)."
        for r in rows
        if r.get("on_disk_bytes")
    ] + [
        f"{r['policy']} takes {size(r['peer_bytes'])} of peers, and {size(r['host_bytes'])} of the host."
        for r in rows
        if r.get("peer_bytes")
    ]


def equal(rows: Sequence[Row]) -> list[str]:
    """A sentence if all policies that were run ended with the bytes of baseline."""
    compared = [r for r in rows if r.get("identical") is not None]
    if len(compared) < 2 or not all(r["identical"] for r in compared):
        return []
    which = "Each" if len(compared) == len(rows) else "Each policy that could be compared"
    return [f"{which} ended with the same weights as baseline with the same algorithms, byte for byte."]


# heading -> the text of its cell in a row
SHOWN = 8  # tensors of a peak that are shown by name
# what people who hold a module of PyTorch call the roles
OF_MODULES = {
    **ROLES, "weights": "parameters", "weight_gradients": "parameters' gradients", "feature_maps": "activations",
    "gradients": "activations' gradients", "workspace": "scratch",
}  # fmt: skip
SPEED = planned(None).per_second  # the column's name; its heading is the unit


def samples(r: Row) -> Counted:
    """What is counted of the row's samples."""
    return planned(r.get("tokens"))


COLUMNS: dict[str, Callable[[Row], str]] = {
    "policy": lambda r: r["policy"],
    "fits": lambda r: "yes" if r["fits"] else "refused",
    "peak": lambda r: size(r["peak_bytes"]),
    "average": lambda r: size(r["average_bytes"]),
    "offload": lambda r: size(r["offload_bytes"]),
    "prefetch": lambda r: size(r["prefetch_bytes"]),
    "host": lambda r: size(r["host_bytes"]),
    "pinned": lambda r: size(r["pinned_bytes"]),
    "disk": lambda r: size(r["on_disk_bytes"]),
    "stored": lambda r: size(r.get("stored_bytes") or 0),
    "recomputed": lambda r: str(r["recomputed_ops"]),
    "time": seconds,
    SPEED: lambda r: "–" if r.get("samples_per_second") is None else rate(samples(r).speed(r["samples_per_second"])),
    "efficiency": lambda r: "–" if r.get("efficiency") is None else f"{r['efficiency']:.3f}",
    "exposed": lambda r: duration(r.get("exposed_seconds")),
    "sent": lambda r: size(r.get("sent_bytes")),
    "slowdown": slowdown,
    "over bound": lambda r: "–" if r.get("gap") is None else f"{r['gap']:.1%}",
    "stalled": lambda r: duration(r["stall_seconds"]) if r["stall_seconds"] else "0",
    "algorithms": lambda r: r["algorithms"],
    "weights equal": _identical,
}

OF_RANKS = (SPEED, "efficiency", "exposed", "sent")  # columns of several ranks

# Columns that are left out on a narrow terminal, the least useful first.
SPARED = ("prefetch", "algorithms", "average", "stalled", "offload", "recomputed", "host", "sent")


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings, and the cells of each row, without the columns that are empty or the same in all of these rows."""
    columns = dict(COLUMNS)
    if equal(rows) or all(r.get("identical") is None for r in rows):
        del columns["weights equal"]
    if not any(r.get("on_disk_bytes") for r in rows):
        del columns["disk"]
    if not any(r.get("pageable_bytes") for r in rows):
        del columns["pinned"]
    if not any(r.get("stored_bytes") for r in rows):
        del columns["stored"]
    if not any(r["recomputed_ops"] for r in rows):
        del columns["recomputed"]
    if not bounded(rows):
        del columns["over bound"]
    if not any(r.get("sent_bytes") for r in rows):
        for heading in OF_RANKS:
            del columns[heading]
    if all(r["algorithms"] == "default" for r in rows):
        del columns["algorithms"]
    headings = [samples(rows[0]).per_second if name == SPEED else name for name in columns]
    return headings, [[text(r) for text in columns.values()] for r in rows]


def spared(headings: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> list[str]:
    """Headings of columns to leave out, so that the others fit into `width` characters uncut."""
    taken = {h: max(len(h), *map(len, column)) for h, *column in zip(headings, *lines, strict=True)}
    if "algorithms" in taken:  # this column may be folded, at its commas
        i = headings.index("algorithms")
        taken["algorithms"] = max(len(part) + 1 for line in lines for part in line[i].split(", "))
    out: list[str] = []
    for heading in SPARED:
        if 2 + sum(taken.values()) + 3 * (len(taken) - 1) <= width:
            break
        if taken.pop(heading, None):
            out.append(heading)
    return out


def says(rows: Sequence[Row]) -> list[str]:
    """What else the rows say, and why any was refused."""
    refused = [f"refused: {row['why']}" for row in rows if row["why"]]
    return [*tiers(rows), *bounded(rows), *noise(rows), *equal(rows), *refused]


def show(rows: Sequence[Row], title: str = "", file: TextIO | None = None, why: bool = True) -> None:
    """Print rows as a table, and below it which policies are too close to rank and, if `why`, why any was refused."""
    from rich import box
    from rich.table import Table

    console = console_of(file)
    headings, lines = cells(rows)
    without = spared(headings, lines, console.width)
    kept = [i for i, heading in enumerate(headings) if heading not in without]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (headings[i] for i in kept):
        left = heading in ("policy", "fits", "algorithms", "weights equal")
        table.add_column(heading, justify="left" if left else "right", no_wrap=heading != "algorithms")
    for row, line in zip(rows, lines, strict=True):
        table.add_row(*(line[i] for i in kept), style=None if row["fits"] else "red")
    if title:
        prose(title, file, "bold")
    console.print(table)
    if without:
        prose(left_out(without), file, "dim")
    for sentence in (*tiers(rows), *bounded(rows), *noise(rows), *equal(rows)):
        prose(sentence, file)
    for row in rows:
        if why and row.get("why"):
            prose(f"refused: {row['why']}", file, "red")
    if any(row.get("why") for row in rows):
        prose(REFUSED, file)


def show_roles(peak: Row, role_bytes: Mapping[str, int]) -> None:
    """Print the moment of a plan at which most bytes live: the bytes by role, and the largest tensors, each with the
    line of the source that makes it."""
    at = f"{peak['op']} ({peak['place']})" if peak["place"] else peak["op"]
    residents = sorted(peak["residents"], key=lambda r: -r["tensor_bytes"])
    named, rest = residents[:SHOWN], residents[SHOWN:]
    lines = [[r["name"], OF_MODULES[r["role"]], sizes.text(r["tensor_bytes"]), r["place"] or ""] for r in named]
    if rest:
        lines.append([f"and {len(rest)} more", "", sizes.text(sum(r["tensor_bytes"] for r in rest)), ""])
    title = f"{peak['policy']}: live bytes peak at {sizes.text(peak['live_bytes'])}, in {at}"
    by = ", ".join(f"{OF_MODULES[role]} {sizes.text(n)}" for role, n in role_bytes.items() if n)
    plain(["tensor", "role", "bytes", "made at"], lines, f"{title}: {by}")


def of_pytorch(rows: Sequence[Row]) -> str:
    """What PyTorch itself takes for the same step, in a sentence; empty if that is not known."""
    parts = []
    for r in rows:
        reserved = f" ({size(r['reserved_bytes'])} reserved)" if r["reserved_bytes"] else ""
        parts.append(f"{_way(r)} {size(r['most_bytes'])}{reserved}")
    return f"PyTorch itself, predicted: {', '.join(parts)}." if parts else ""


def _way(r: Row) -> str:
    blocks = r["blocks"]
    return f"{r['pytorch_way']} of each of {len(blocks)} blocks ({blocks[0]}, ...)" if blocks else str(r["pytorch_way"])


def show_pytorch(rows: Sequence[Row]) -> None:
    """Print what PyTorch itself takes for the same step."""
    lines = []
    for r in rows:
        lines.append([_way(r), size(r["most_bytes"]), size(r["reserved_bytes"])])
    headings, title = ["what", "peak", "reserved"], "PyTorch itself, predicted"
    if all(r["reserved_bytes"] is None for r in rows):
        headings, lines = headings[:2], [line[:2] for line in lines]
    else:
        title += "; reserved: rounded as by CUDA's caching allocator"
    plain(headings, lines, title)


def show_peak(policy: str, schedule: Schedule) -> None:
    """Print the largest tensors that are live at the peak, the point of the step where most bytes are live."""
    live = schedule.live(schedule.peak_point)
    named, rest = live[:8], live[8:]
    lines = [[b.label, sizes.text(b.nbytes)] for b in named]
    if rest:
        lines.append([f"and {len(rest)} more", sizes.text(sum(b.nbytes for b in rest))])
    op = schedule.plan.order[schedule.peak_point]
    plain(["tensor", "bytes"], lines, f"{policy}: live bytes peak at {sizes.text(schedule.live_peak)}, in {op.name}")
