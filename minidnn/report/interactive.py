"""The data of a page's script (page.js), which zooms into steps, searches them and tells of a bar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minidnn.report.draw import GAP, HEIGHT, LANE, LEFT, PLOT, Scale
from minidnn.report.panel import KINDS, Panel
from minidnn.visible import visible

SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")


def scripts(panels: Sequence[Panel], scale: Scale, base: Panel | None) -> str:
    """The data and the script as HTML, to follow the pictures (`svg.step`), in the panels' order."""
    document = json.dumps(data(panels, scale, base), separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="steps">{document}</script>\n<script>{SCRIPT}</script>'


def data(panels: Sequence[Panel], scale: Scale, base: Panel | None) -> dict[str, Any]:
    """All bars and curves. Times are nanoseconds; names are numbers in a list, since they repeat."""
    names: dict[str, int] = {}

    def number(name: str) -> int:
        return names.setdefault(visible(name), len(names))

    result = []
    for p in panels:
        place = {bar.index: i for i, bar in enumerate(p.bars)}
        bars = [
            [
                b.lane, b.kind, number(b.name), _ns(b.start), _ns(b.end - b.start), b.nbytes, number(b.layer),
                [number(t) for t in b.tensors],
                *((place[b.waited[0]], _ns(b.waited[1])) if b.waited else (-1, 0)), number(b.algorithm),
            ]
            for b in p.bars
        ]  # fmt: skip
        result.append(
            {
                "seconds": _ns(p.seconds), "base": p is base, "lanes": p.lanes, "bars": bars,
                "turn": None if p.turn is None else _ns(p.turn),
                "stalls": [[_ns(a), _ns(b)] for a, b in p.stalls],
                "memory": [[_ns(t) for t, _ in p.memory], [b for _, b in p.memory]],
            }
        )  # fmt: skip
    return {
        "left": LEFT, "plot": PLOT, "height": HEIGHT, "lane": LANE, "gap": GAP, "words": KINDS,
        "most": scale.bytes, "longest": _ns(scale.seconds), "panels": result, "names": list(names),
    }  # fmt: skip


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
