"""The nets of (d) as bars: ours over PyTorch's, in seconds and in bytes of the card, with the goals as lines."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from benchmarks.gpu_check.goals import PEAK_RATIO, TIME_RATIO
from benchmarks.gpu_check.journal import Record
from minidnn.report.draw import LEFT, RIGHT, STYLE, WIDTH, ticks

NAMES, ROW, TOP = 250, 30, 92  # pixels: beside the bars, of a net, above them
LARGEST = 2.0  # ratios beyond are cut off, and say what they are


def picture(records: Iterable[Record], name: str, rehearsal: bool) -> str:
    """A standalone SVG."""
    values = {r["case"]: r["values"] for r in records if r["item"] == "d" and isinstance(r.get("values"), dict)}
    rows = []
    for case, v in values.items():
        if "torch_seconds" in v:
            lean = values.get(f"{case}, smallest peak", {})
            rows.append((case, v["seconds"] / v["torch_seconds"], lean.get("over_torch_reserved"), lean.get("policy")))
    top = min(LARGEST, max([1.1, *(x for row in rows for x in row[1:3] if x)]))
    plot = WIDTH - LEFT - RIGHT - NAMES
    bottom = TOP + ROW * len(rows)

    def x(ratio: float) -> float:
        return LEFT + NAMES + plot * min(ratio, top) / top

    what = "rehearsal: says nothing of a GPU" if rehearsal else f"on {name}; PyTorch eager is 1"
    what += "; float32 with TF32 allowed, bfloat16 beside autocast"
    out = [
        f'<text class="head" x="{LEFT}" y="30">{escape("Iteration and peak memory over PyTorch")}</text>',
        f'<text class="soft" x="{LEFT}" y="49">{escape(what)}</text>',
        *_key(LEFT, 62, "weights", f"seconds (goal {TIME_RATIO})"),
        *_key(LEFT + 190, 62, "feature_maps", f"bytes, of the leanest policy that is no slower (goal {PEAK_RATIO})"),
    ]
    for value in ticks(top):
        out.append(f'<line class="grid" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        out.append(f'<text class="soft" x="{x(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>')
    for i, (case, seconds, peak, policy) in enumerate(rows):
        y = TOP + ROW * i
        out.append(f'<text x="{LEFT + NAMES - 10}" y="{y + 16}" text-anchor="end">{escape(case)}</text>')
        out += _bar(x(0), x(seconds), y, "weights", f"{case}: {seconds:.2f} of PyTorch's seconds", f"{seconds:.2f}")
        if peak:
            said = f"{case}: {policy}, {peak:.2f} of PyTorch's bytes"
            out += _bar(x(0), x(peak), y + 12, "feature_maps", said, f"{peak:.2f} {policy}")
    for goal in (TIME_RATIO, PEAK_RATIO, 1.0):
        out.append(f'<line class="budget" x1="{x(goal):.1f}" x2="{x(goal):.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
    height = bottom + 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mini" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img">\n<style>{STYLE}</style>\n<rect class="paper" width="{WIDTH}" '
        f'height="{height}" rx="8"/>\n' + "\n".join(out) + "\n</svg>\n"
    )


def _bar(start: float, end: float, y: float, kind: str, title: str, text: str) -> list[str]:
    return [
        f'<rect class="{kind}" x="{start:.1f}" y="{y}" width="{max(end - start, 0.5):.1f}" height="10" rx="2">'
        f"<title>{escape(title)}</title></rect>",
        f'<text class="soft" x="{end + 6:.1f}" y="{y + 9}">{escape(text)}</text>',
    ]


def _key(x: float, y: float, kind: str, word: str) -> list[str]:
    return [
        f'<rect class="{kind}" x="{x}" y="{y}" width="11" height="11" rx="2"/>',
        f'<text class="soft" x="{x + 17}" y="{y + 10}">{escape(word)}</text>',
    ]
