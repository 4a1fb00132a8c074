"""The picture of benchmarks/torch_rivals.py: a step's time against its bytes, PyTorch's ways beside `minidnn.torch`.

A panel for each net, one above the other, as narrow as a phone asks, in letters that can be read there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from minidnn.files.replace import replacing
from minidnn.report.draw import STYLE, axis, byte_ticks
from minidnn.report.markup import escape
from minidnn.report.table import size

RESULTS = Path(__file__).parent / "results"
WIDTH, LEFT, RIGHT = 560, 62, 20
HEAD, LINE, TITLE, HEIGHT, BELOW = 204, 22, 34, 236, 52  # pixels: of the head, and of a panel's title, plot and axis
LETTERS = ".mini .large text, .mini .large text.soft { font-size: 16px; } .mini text.head { font-size: 22px; }"
NETS = {"resnet50": "ResNet-50, 8 images of 224 × 224", "gpt2": "GPT-2 small, 4 rows of 256 tokens"}
# way -> its name in the legend, and its colour
WAYS = {
    "best": ("minidnn, one budget in", "p-best"),
    "bound": ("bound, by the costs of plans", "soft"),
    "eager": ("PyTorch, eager", "p-baseline"),
    "checkpoint": ("checkpoint each block", "p-sqrt_n"),
    "save_on_host": ("save_on_cpu", "p-vdnn_all"),
    "aot": ("activation_memory_budget", "p-superneurons"),
    "inductor": ("the same, inductor", "p-layrub"),
}
LEGEND = (("best", "bound"), ("eager", "save_on_host"), ("checkpoint", "aot"), ("inductor",))
Row = dict[str, Any]
Point = tuple[float, float]


def _document() -> Row:
    """The document that an earlier run saved on a machine of this type."""
    m = machine.described()
    path = RESULTS / f"torch-rivals-{machine.slug(m['cpu'])}-{m['cores']}.json"
    found: Row = json.loads(path.read_text()) if path.exists() else {"rows": []}
    return found


def saved() -> list[Row]:
    """The rows of an earlier run."""
    return list(_document()["rows"])


def draw(path: Path) -> None:
    """Write the picture of the saved rows."""
    found = _document()
    with replacing(path) as file:
        threads = found["threads"]
        used = f"{found['machine']['cpu']}, {threads} thread{'s' * (threads > 1)}, PyTorch {found['torch']}"
        file.write(picture(found["rows"], used))


def picture(rows: Sequence[Row], note: str) -> str:
    """The SVG file. rows: of torch_rivals, for the nets of NETS"""
    top, body = HEAD, []
    for net in NETS:
        body += _panel(net, [r for r in rows if r["net"] == net], top)
        top += TITLE + HEIGHT + BELOW
    notes = (
        "Time of a step, in times of eager's, against its memory above",
        "parameters and batch. Hollow: not eager's bits.",
        note,
    )
    frame = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}"'
    head = [
        f'<svg class="mini" {frame} role="img"><style>{STYLE}{LETTERS}</style>',
        f'<rect class="paper" width="{WIDTH}" height="{top}" rx="8"/><g class="large">',
        '<text class="head" x="20" y="31">The same bits in fewer bytes</text>',
        *(f'<text class="soft" x="20" y="{58 + 20 * k}">{escape(line)}</text>' for k, line in enumerate(notes)),
    ]
    return "\n".join([*head, *_legend(), *body, "</g></svg>"]) + "\n"


def _legend() -> Iterator[str]:
    for line, ways in enumerate(LEGEND):
        for x, way in zip((20, 270), ways, strict=False):
            name, colour = WAYS[way]
            y = 112 + LINE * line
            yield f'<rect x="{x}" y="{y}" width="12" height="12" rx="2" fill="var(--{colour})"/>'
            yield f'<text x="{x + 18}" y="{y + 11}">{escape(name)}</text>'


def _panel(net: str, rows: Sequence[Row], top: int) -> Iterator[str]:
    eager = next(r for r in rows if r["way"] == "eager")
    shown = [(r["way"].partition(":")[0], r) for r in rows if "bytes" in r and r["way"] != "save_on_cpu"]
    points = [(way, (r["bytes"], r["seconds"] / eager["seconds"]), bool(r["unequal"])) for way, r in shown]
    edge = [(size, ratio) for r in rows for size, ratio in r.get("edge", ())]
    most = 1.06 * max(size for _, (size, _), _ in points)
    slowest = 1.05 * max(ratio for _, (_, ratio), _ in points)
    upper = top + TITLE
    bottom = upper + HEIGHT

    def x(nbytes: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * nbytes / most

    def y(ratio: float) -> float:
        return upper + HEIGHT * (slowest - ratio) / (slowest - 0.7)

    yield f'<text class="name" style="font-size:17px" x="{LEFT}" y="{top + 20}">{NETS[net]}</text>'
    for ratio in (tenth / 10 for tenth in range(8, int(10 * slowest) + 1, 2)):
        at = y(ratio)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="soft" x="{LEFT - 8}" y="{at + 5:.1f}" text-anchor="end">{ratio:.1f}×</text>'
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    yield from axis({v: size(int(v)) if v else "0" for v in byte_ticks(most, 5)}, x, bottom)
    yield from _floor(edge, x, y, bottom)
    ours = sorted(at for way, at, _ in points if way == "best")
    line = "L".join(f"{x(b):.1f} {y(r):.1f}" for b, r in ours)
    yield f'<path d="M{line}" fill="none" stroke="var(--p-best)" stroke-width="2.6"/>' if ours else ""
    for way, (nbytes, ratio), other in points:
        name, colour = WAYS[way]
        look = f'fill="var(--{"paper" if other else colour})" stroke="var(--{colour})" stroke-width="2"'
        told = escape(f"{name}: {size(int(nbytes))}, {ratio:.2f} times eager's time")
        place = f'cx="{x(nbytes):.1f}" cy="{y(ratio):.1f}" r="6"'
        yield f"<circle {place} {look}><title>{told}</title></circle>"


def _floor(
    edge: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float], bottom: float
) -> Iterator[str]:
    """The bound, and the bytes that are too few for any plan. edge: (bytes, ratio) from the most bytes to the least"""
    if not edge:
        return
    line = "L".join(f"{x(b):.1f} {y(r):.1f}" for b, r in edge)
    last = x(edge[-1][0])
    dashed = 'fill="none" stroke="var(--soft)" stroke-width="1.6" stroke-dasharray="5 3"'
    yield f'<path d="M{WIDTH - RIGHT} {y(edge[0][1]):.1f}L{line}" {dashed}/>'
    beyond = f'x="{LEFT}" y="{bottom - HEIGHT}" width="{last - LEFT:.1f}" height="{HEIGHT}"'
    yield f'<rect {beyond} fill="var(--soft)" fill-opacity="0.18"/>'
    yield f'<text class="soft" x="{LEFT + 10}" y="{bottom - 12}">too few</text>'
