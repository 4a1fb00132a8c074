"""The results as files made from results.jsonl: results.md for people, results.json for programs, and a picture
(benchmarks/gpu_check/chart.py).

They are made anew each time from the newest record of each case. While a card is lent, there may be several runs with
changes of the code in between. So records of the last hours that were made by other code count too, and are marked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.gpu_check import chart
from benchmarks.gpu_check.goals import Goal, goals
from benchmarks.gpu_check.journal import REFUSED, TIME, Journal, Record, code, commit, whole

TITLES = {
    "s": "Beginning, and memory at each stage",
    "a": "Every op kind and algorithm against the reference",
    "g": "The link",
    "m": "Products on tensor cores",
    "d": "Iteration time and peak memory beside PyTorch",
    "e": "In a tight budget, beside PyTorch",
    "u": "Weights that the host updates",
    "l": "Small batches",
    "t": "Steps of PyTorch modules",
    "b": "Every policy leaves the bytes of baseline",
    "p": "Every op kind and algorithm against the reference, in float16",
    "k": "Beside torch.compile",
    "c": "Digits",
    "f": "Predicted and measured",
    "h": "Properties and plans, on the card and without it",
    "n": "NCCL with one rank",
}
GIB = 2**30


def write(folder: Path, name: str, rehearsal: bool) -> str:
    """Write results.md, results.json and results.svg, and return the first's text."""
    journal = Journal(folder / "results.jsonl")
    records = list(journal.latest(any_code=True).values())
    found, text = goals(records), made(journal, name, rehearsal)
    summary = {
        "card": name, "rehearsal": rehearsal, "code": code(), "commit": commit(),
        "goals": [vars(goal) for goal in found],
        "cases": {letter: {r["case"]: r for r in records if r["item"] == letter} for letter in TITLES},
    }  # fmt: skip
    whole(folder / "results.md", text)
    whole(folder / "results.json", json.dumps(summary, indent=1) + "\n")
    whole(folder / "results.svg", chart.picture(records, name, rehearsal))
    return text


def made(journal: Journal, name: str, rehearsal: bool) -> str:
    records = list(journal.latest(any_code=True).values())
    by_item: dict[str, list[Record]] = {letter: [] for letter in TITLES}
    for record in records:
        by_item.setdefault(record["item"], []).append(record)
    lines = [f"# gpu-check on {name}", ""]
    if rehearsal:
        lines += ["**A rehearsal on a CUDA of the host's memory: no number below says anything of a GPU.**", ""]
    if description := _value(by_item["s"], "opening", "device"):
        lines += [str(description), ""]
    lines += [f"Code {code()} ({commit() or 'no git there'}). Each line of results.jsonl is one case.", ""]
    cases = [r for r in records if r["case"] not in (TIME, REFUSED)]
    good = sum(r["state"] == "ok" for r in cases)
    failed = [r for r in cases if r["state"] == "failed"]
    lines += [f"{good} cases well, {len(failed)} failed.", ""]
    for record in failed:
        lines.append(f"- **failed** ({record['item']}) {record['case']}: {record.get('why')}{_older(record)}")
    for record in cases:
        if record["state"] == "left out" and record["values"]["cases"]:
            lines.append(f"- left out for want of time ({record['item']}): {', '.join(record['values']['cases'])}")
    for why, items in refused(records).items():
        lines.append(f"- a plan that cuDNN refused to run, so that others ran ({', '.join(items)}): {_cell(why)}")
    for other in sorted({r["code"] for r in cases} - {code()}):
        those = sorted({r["item"] for r in cases if r["code"] == other})
        count = sum(r["code"] == other for r in cases)
        lines.append(f"- {count} cases were run with the code {other} (of {', '.join(f'({x})' for x in those)})")
    lines += ["", *_goals(goals(records))]
    for letter, title in TITLES.items():
        if found := [r for r in by_item[letter] if r["case"] not in (TIME, REFUSED)]:
            seconds = _value(by_item[letter], TIME, "seconds")
            took = f" ({seconds:.0f} s of {_value(by_item[letter], TIME, 'limit'):.0f})" if seconds else ""
            lines += ["", f"## ({letter}) {title}{took}", "", *SECTIONS.get(letter, _plain)(found)]
    return "\n".join(lines).rstrip() + "\n"


def verdict(folder: Path) -> str:
    """The goals and the failures in lines, for the end of what the command prints: a lent machine returns that end."""
    records = list(Journal(folder / "results.jsonl").latest(any_code=True).values())
    lines = [
        f"{'met   ' if g.met else 'MISSED'}  {g.what}: {_cell(g.found)} ({g.wanted}), {g.subject}"
        for g in goals(records)
    ]
    lines += [f"FAILED  ({r['item']}) {r['case']}: {r.get('why')}" for r in records if r["state"] == "failed"]
    return "\n".join(line[:300] for line in lines)


def refused(records: Iterable[Record]) -> dict[str, list[str]]:
    """cuDNN's message of each plan that it refused to run -> the items that met it."""
    found: dict[str, list[str]] = {}
    for r in records:
        for why in (r.get("values") or {}).get("refused", {}).values() if r["case"] == REFUSED else ():
            found.setdefault(why, []).append(r["item"])
    return found


def _older(record: Record) -> str:
    return "" if record["code"] == code() else f" (code {record['code']})"


def _goals(found: list[Goal]) -> list[str]:
    if not found:
        return []
    rows = [[g.what, g.subject, g.wanted, g.found, "met" if g.met else "**missed**"] for g in found]
    met = sum(g.met for g in found)
    header = ["goal", "of", "wanted", "found", ""]
    return ["## Goals", "", f"{met} of {len(found)} met.", "", *_rows(header, rows)]


def _value(records: Iterable[Record], case: str, name: str) -> Any:
    return next((r.get("values", {}).get(name) for r in records if r["case"] == case), None)


def _rows(header: list[str], rows: Iterable[list[Any]]) -> list[str]:
    body = [[_cell(c) for c in row] for row in rows]
    if not body:
        return []
    lines = [header, ["---"] * len(header), *body]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value).replace("|", "/").replace("\n", " ")


def _well(records: list[Record]) -> list[Record]:
    return [r for r in records if r["state"] == "ok" and r.get("values")]


def _plain(records: list[Record]) -> list[str]:
    """The section of an item without a table of its own: a line per case, with its numbers and short texts."""
    lines = []
    for r in _well(records):
        short = {k: v for k, v in r["values"].items() if isinstance(v, (int, float, str)) and len(str(v)) < 200}
        lines.append(f"- {r['case']}: " + ", ".join(f"{k} {_cell(v)}" for k, v in short.items()))
    return lines


def _operations(records: list[Record]) -> list[str]:
    rows = [
        [
            r["case"],
            v["examples"],
            v["runs"],
            v["worst"],
            v["tolerance"],
            "yes" if r["state"] == "ok" else "**NO**",
            len(v.get("no_plan", ())) or None,
            len(v.get("refused", ())) or None,
        ]
        for r in records
        if "runs" in (v := r.get("values") or {})
    ]
    header = ["kind", "examples", "runs", "worst error (of the largest value)", "allowed", "right", "without a plan"]
    header += ["plans refused"]
    return _rows(header, rows)


def _link(records: list[Record]) -> list[str]:
    rows = []
    for r in _well(records):
        v = r["values"]
        if "out_bytes_per_second" in v:
            both = v.get("together_bytes_per_second", v.get("both_bytes_per_second"))
            rates = [v["out_bytes_per_second"], v["in_bytes_per_second"], both]
            rows.append([r["case"], *(x and x / 1e9 for x in rates), v.get("compute_slowdown_both")])
    lines = _rows(["", "out GB/s", "in GB/s", "both together GB/s", "compute slower by"], rows)
    return [*lines, "", *_plain([r for r in records if r["case"] in ("in a replayed graph",)])]


def _speed(records: list[Record]) -> list[str]:
    rows, lean, rest, details = [], [], [], []
    for r in _well(records):
        v = r["values"]
        if "torch_seconds" in v:
            rows.append([
                r["case"], v["seconds"] * 1e3, v["torch_seconds"] * 1e3, v["seconds"] / v["torch_seconds"],
                f"{v['speed']:.4g} {v['unit']}", v["arena_bytes"] / GIB, v["torch_reserved_bytes"] / GIB,
                v["torch_allocated_bytes"] / GIB, v["launch_gap"],
                *(taken and taken / GIB for taken in map(v.get, ("taken_after_steps_bytes", "taken_by_torch_bytes"))),
            ])  # fmt: skip
            details += _details(r["case"], v)
        elif "no_slower" in v:
            lean.append([
                r["case"].removesuffix(", smallest peak"), v["policy"], v["seconds"] * 1e3, v["over_torch"],
                v["arena_bytes"] / GIB, v["over_torch_reserved"], len(v["tried"]),
            ])  # fmt: skip
        elif "torch_top" in v:
            details += _kernels(r["case"], v["torch_top"])
        else:
            rest.append(r)
    first = ["net, batch, format", "ms", "PyTorch ms", "ratio", "speed", "arena GiB", "PyTorch reserved GiB"]
    first += ["PyTorch allocated GiB", "launch gap", "all that we take GiB", "all that PyTorch takes GiB"]
    second = ["net, batch, format", "leanest policy that is no slower", "ms", "over PyTorch's", "arena GiB"]
    second += ["over PyTorch's reserved", "policies tried"]
    lines = [
        "float32: TF32 allowed on both sides. bfloat16: both with float32 weights, momenta and statistics; PyTorch "
        "under torch.autocast(bfloat16), as its users run it. It is eager, channels_last, cudnn.benchmark, fused SGD.",
        "",
        *_rows(first, rows),
    ]
    lines += ["", *_rows(second, lean)] if lean else []
    return [*lines, *(["", *_plain(rest)] if rest else []), *details]


def _details(case: str, v: dict[str, Any]) -> list[str]:
    """Where we spend our time, by kind of op."""
    kinds = [
        [k["kind"], k["ops"], k["seconds"] * 1e3, k["seconds"] / v["kernel_seconds"], k["bytes_per_second"] / 1e9,
         k["of_a_copy"]]
        for k in v.get("kinds", ())
    ]  # fmt: skip
    header = [f"{case}: ops of the kind", "runs", "ms", "of all kernels", "GB/s, each tensor once", "of a copy's rate"]
    return ["", *_rows(header, kinds)] if kinds else []


def _kernels(case: str, top: list[dict[str, Any]]) -> list[str]:
    """Where PyTorch spends its time, by kernel."""
    rows = [[k["kernel"][:90], k["calls"], k["seconds"] * 1e3] for k in top]
    return ["", *_rows([case, "calls", "ms"], rows)] if rows else []


def _policies(records: list[Record]) -> list[str]:
    """The section of item b: a table with a row per policy and a column per net."""
    cells: dict[str, dict[str, str]] = {}
    plain = []
    for r in records:
        subject, colon, policy = r["case"].partition(": ")
        if not colon:
            plain.append(r)
        elif r["state"] in ("ok", "failed"):
            count = (r.get("values") or {}).get("cases", "")
            cells.setdefault(policy, {})[subject] = str(count) if r["state"] == "ok" else "**NO**"
    subjects = list(dict.fromkeys(s for row in cells.values() for s in row))
    rows = [[policy, *(row.get(s) for s in subjects)] for policy, row in cells.items()]
    said = "Runs that ended with baseline's bytes: as a graph and call by call, with all memory and with the least."
    beyond = [r["values"] for r in records if "most_beyond_arena_bytes" in (r.get("values") or {})]
    if beyond:
        most, late = (max(v[k] for v in beyond) for k in ("most_beyond_arena_bytes", "most_taken_by_steps_bytes"))
        said += f" Loading took at most {most} bytes besides the arena, steps {late}."
    return [said, "", *_rows(["policy", *subjects], rows), "", *_plain(plain)]


def _foresight(records: list[Record]) -> list[str]:
    rows = []
    for r in _well(records):
        v = r["values"]
        if "why" in v:
            rows.append([r["case"], *[None] * 7, v["why"]])
            continue
        share = [v.get(f"{way}_bytes_per_second") and v[f"{way}_bytes_per_second"] / v[f"link_{way}"] for way in WAYS]
        rows.append([
            r["case"], v["predicted_seconds"] * 1e3, v["seconds"] * 1e3, v["seconds"] / v["predicted_seconds"],
            v["arena_bytes"], v["taken_bytes"], *share,
        ])  # fmt: skip
    header = ["", "predicted ms", "measured ms", "measured / predicted", "planned bytes", "bytes taken"]
    return _rows([*header, "out, of the link's rate", "in, of the link's rate", "why not"], rows)


def _compiled(records: list[Record]) -> list[str]:
    rows = [
        [
            r["case"], _ms(v.get("our_seconds")), _ms(v.get("eager_seconds")), v["compiled_seconds"] * 1e3,
            v.get("ratio"), v["compiling_seconds"], v["torch_reserved_bytes"] / GIB, v["graph_breaks"],
        ]
        for r in _well(records)
        if "compiled_seconds" in (v := r["values"])
    ]  # fmt: skip
    header = ["net, batch, format", "ms", "PyTorch eager ms", "compiled ms", "ours over compiled", "s to compile"]
    return _rows([*header, "reserved GiB", "graph breaks"], rows)


def _ms(seconds: float | None) -> float | None:
    return seconds and seconds * 1e3


def _tight(records: list[Record]) -> list[str]:
    rows = []
    for r in _well(records):
        v = r["values"]
        rows.append([
            r["case"], _ms(v.get("seconds")), v.get("over_unlimited"),
            v.get("bytes") and v["bytes"] / GIB, v.get("host_bytes") and v["host_bytes"] / GIB, v.get("why"),
        ])  # fmt: skip
    return _rows(["", "ms", "over its own unlimited", "GiB of the card", "host GiB", "why not"], rows)


def _start(records: list[Record]) -> list[str]:
    lines = _plain([r for r in records if not r["case"].startswith("stages")])
    for r in records:
        v = r.get("values") or {}
        if "first" in v:
            rows = [
                [stage, *(x for which in ("first", "second") for x in _stage(v[which][stage]))]
                for stage in v["first"]
                if isinstance(v["first"][stage], dict)
            ]
            header = [r["case"], "s", "bytes taken since the beginning", "s, loaded again", "bytes taken"]
            said = f"Arena {v['arena_bytes']}, beyond it {v['beyond_arena_bytes']}, of the card's {v['granule_bytes']}."
            lines += ["", *_rows(header, rows), "", said]
    return lines


def _stage(found: dict[str, float]) -> tuple[float, float]:
    return found["seconds"], found["taken_bytes"]


WAYS = ("out", "in")
SECTIONS = {
    "s": _start, "a": _operations, "p": _operations, "b": _policies, "g": _link, "d": _speed, "f": _foresight,
    "e": _tight, "k": _compiled,
}  # fmt: skip
