"""results.md: what results.jsonl says, for people. Made anew from the newest record of each case of this code."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.journal import Journal, Record, code, commit

TITLES = {
    "a": "Every op kind and algorithm against the reference",
    "b": "Every policy leaves the bytes of baseline",
    "h": "Properties and plans, on the card and without it",
    "g": "The link",
    "d": "Iteration time and peak memory beside PyTorch",
    "c": "Digits",
    "f": "Predicted and measured",
    "e": "In a tight budget, beside PyTorch",
}
GIB = 2**30


def write(folder: Path, name: str, rehearsal: bool) -> str:
    """Write results.md, and return its text."""
    text = made(Journal(folder / "results.jsonl"), name, rehearsal)
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / "results.md.new"
    new.write_text(text)
    os.replace(new, folder / "results.md")
    return text


def made(journal: Journal, name: str, rehearsal: bool) -> str:
    records = list(journal.latest().values())
    by_item: dict[str, list[Record]] = {letter: [] for letter in TITLES}
    for record in records:
        by_item.setdefault(record["item"], []).append(record)
    lines = [f"# gpu-check on {name}", ""]
    if rehearsal:
        lines += ["**A rehearsal on a CUDA of the host's memory: no number below says anything of a GPU.**", ""]
    if description := _value(by_item["h"], "properties", "cuda"):
        lines += [str(description), ""]
    lines += [f"Code {code()} ({commit() or 'no git there'}). Each line of results.jsonl is one case.", ""]
    good = sum(r["state"] == "ok" for r in records)
    failed = [r for r in records if r["state"] == "failed"]
    lines += [f"{good} cases well, {len(failed)} failed.", ""]
    for record in failed:
        lines.append(f"- **failed** ({record['item']}) {record['case']}: {record.get('why')}")
    for record in records:
        if record["state"] == "left out" and record["values"]["cases"]:
            lines.append(f"- left out for want of time ({record['item']}): {', '.join(record['values']['cases'])}")
    for letter, title in TITLES.items():
        if by_item[letter]:
            lines += ["", f"## ({letter}) {title}", "", *SECTIONS.get(letter, _plain)(by_item[letter])]
    return "\n".join(lines).rstrip() + "\n"


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
    """Any item: a line a case, its numbers and short words."""
    lines = []
    for r in _well(records):
        short = {k: v for k, v in r["values"].items() if isinstance(v, (int, float, str)) and len(str(v)) < 200}
        lines.append(f"- {r['case']}: " + ", ".join(f"{k} {_cell(v)}" for k, v in short.items()))
    return lines


def _operations(records: list[Record]) -> list[str]:
    rows = [
        [r["case"], v["examples"], v["runs"], v["worst"], v["tolerance"], "yes" if r["state"] == "ok" else "**NO**"]
        for r in records
        if "runs" in (v := r.get("values") or {})
    ]
    return _rows(["kind", "examples", "runs", "worst error (of the largest value)", "allowed", "right"], rows)


def _link(records: list[Record]) -> list[str]:
    rows = []
    for r in _well(records):
        v = r["values"]
        if "out_bytes_per_second" in v:
            both = v.get("together_bytes_per_second", v.get("both_bytes_per_second"))
            rates = [v["out_bytes_per_second"], v["in_bytes_per_second"], both]
            rows.append([r["case"], *(x and x / 1e9 for x in rates), v.get("compute_slowdown_both")])
    return _rows(["", "out GB/s", "in GB/s", "both together GB/s", "compute slower by"], rows)


def _speed(records: list[Record]) -> list[str]:
    rows, more = [], []
    peaks = {r["case"]: (r.get("values") or {}).get("torch_reserved_bytes") for r in records}
    for r in _well(records):
        v = r["values"]
        if "torch_seconds" in v:
            rows.append([
                r["case"], v["seconds"] * 1e3, v["torch_seconds"] * 1e3, v["seconds"] / v["torch_seconds"],
                v["arena_bytes"] / GIB, v["torch_reserved_bytes"] / GIB, v["torch_allocated_bytes"] / GIB,
                v["launch_gap"],
            ])  # fmt: skip
        elif "policies" in v:
            theirs, peak = v.get("torch_seconds_before"), peaks.get(r["case"].removesuffix(", other policies"))
            for row in v["policies"]:
                more.append([
                    r["case"], row["policy"], row["seconds"] * 1e3, theirs and row["seconds"] / theirs,
                    row["arena_bytes"] / GIB, peak and row["arena_bytes"] / peak, row["host_bytes"] / GIB,
                ])  # fmt: skip
    first = ["net, batch, format", "ms", "PyTorch ms", "ratio (wanted: 0.9)", "arena GiB", "PyTorch reserved GiB"]
    first += ["PyTorch allocated GiB", "launch gap (wanted: 0.02)"]
    second = ["", "policy", "ms", "over PyTorch's", "arena GiB", "over PyTorch's reserved (wanted: 0.7)", "host GiB"]
    lines = _rows(first, rows)
    lines += ["", *_rows(second, more)] if more else []
    others = [r for r in records if "agrees" in r["case"]]
    return [*lines, *(["", *_plain(others)] if others else [])]


def _foresight(records: list[Record]) -> list[str]:
    rows = []
    for r in _well(records):
        for row in r["values"].get("policies", []):
            rows.append([
                r["case"], row["policy"], row["predicted_seconds"] * 1e3, row["seconds"] * 1e3,
                row["seconds"] / row["predicted_seconds"], row["arena_bytes"], row["taken_bytes"],
            ])  # fmt: skip
    header = ["", "policy", "predicted ms", "measured ms", "measured / predicted", "planned bytes", "bytes taken"]
    return _rows(header, rows)


def _tight(records: list[Record]) -> list[str]:
    rows = []
    for r in _well(records):
        v = r["values"]
        rows.append([
            r["case"], v.get("seconds") and v["seconds"] * 1e3, v.get("over_unlimited"),
            v.get("bytes") and v["bytes"] / GIB, v.get("host_bytes") and v["host_bytes"] / GIB, v.get("why"),
        ])  # fmt: skip
    return _rows(["", "ms", "over its own unlimited", "GiB of the card", "host GiB", "why not"], rows)


SECTIONS = {"a": _operations, "g": _link, "d": _speed, "f": _foresight, "e": _tight}
