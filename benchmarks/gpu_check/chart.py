"""A chart of item d: seconds and bytes of the card over PyTorch's, a bar each per net, with the goals as lines."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks import ratios
from benchmarks.gpu_check.goals import PEAK_RATIO, TIME_RATIO
from benchmarks.gpu_check.journal import Record
from benchmarks.ratios import Bar, Row


def picture(records: Iterable[Record], name: str, rehearsal: bool) -> str:
    """The chart as an SVG file. name: the card's."""
    values = {r["case"]: r["values"] for r in records if r["item"] == "d" and isinstance(r.get("values"), dict)}
    rows = []
    for case, v in values.items():
        if "torch_seconds" not in v:
            continue
        seconds, lean = v["seconds"] / v["torch_seconds"], values.get(f"{case}, smallest peak", {})
        drawn = [Bar("weights", seconds, f"{seconds:.2f}", f"{case}: {seconds:.2f} of PyTorch's seconds")]
        if peak := lean.get("over_torch_reserved"):
            policy = lean.get("policy")
            said = f"{case}: {policy}, {peak:.2f} of PyTorch's bytes"
            drawn.append(Bar("feature_maps", peak, f"{peak:.2f} {policy}", said))
        rows.append(Row(case, tuple(drawn)))
    what = "rehearsal: says nothing of a GPU" if rehearsal else f"on {name}; PyTorch eager is 1"
    what += "; float32 with TF32 allowed, bfloat16 beside autocast"
    key = [
        ("weights", f"seconds (goal {TIME_RATIO})"),
        ("feature_maps", f"bytes, of the leanest policy that is no slower (goal {PEAK_RATIO})"),
    ]
    return ratios.picture("Iteration and peak memory over PyTorch", what, key, rows, (TIME_RATIO, PEAK_RATIO, 1.0))
