"""The results of benchmarks/cpu.py as a table, as a picture, and as files named after the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import ratios
from benchmarks.machine import slug
from benchmarks.ratios import Bar
from minidnn import sizes
from minidnn.files.replace import replacing
from minidnn.report import table

# Goals on two threads: (network, batch (, tokens)) -> (seconds over the best peer's, bytes over its).
LIVENESS: Mapping[tuple[str | int, ...], tuple[float | None, float]] = {
    ("vgg16", 4): (0.36, 0.85), ("resnet18", 8): (0.50, 1.0), ("resnet34", 8): (0.50, 1.0),
    ("resnet50", 8): (0.60, 1.0), ("densenet121", 8): (0.58, 1.0), ("alexnet", 32): (0.50, 0.85),
    ("googlenet", 8): (0.33, 1.0), ("lenet", 64): (0.50, 1.0), ("cifar10_quick", 100): (0.58, 1.0),
    ("mobilenet_v2", 8): (0.50, 1.0), ("squeezenet", 8): (0.50, 1.0), ("vit_s", 8): (0.80, 0.70),
    ("vit_small", 8): (0.80, 0.70), ("convnext_tiny", 8): (0.80, 0.70), ("gpt2", 4, 512): (0.80, 0.70),
}  # fmt: skip
CHEAP: Mapping[tuple[str | int, ...], tuple[float | None, float]] = {
    ("resnet50", 8): (None, 0.65), ("googlenet", 8): (None, 0.65),
    ("mobilenet_v2", 8): (0.70, 0.70), ("squeezenet", 8): (0.70, 0.70),
}  # fmt: skip
GOALS = {"liveness": LIVENESS, "recompute_cheap": CHEAP}

Document = Mapping[str, Any]
Row = Mapping[str, Any]


def goals(row: Row) -> tuple[float | None, float | None]:
    """The goals of a row: seconds and bytes over PyTorch's; None where there is no goal."""
    found = GOALS.get(row["policy"].partition(":")[0], {})
    return found.get((row["network"], row["batch"], *_seq(row)), (None, None))


def _seq(row: Row) -> tuple[int, ...]:
    """The tokens of a window; of images, none."""
    return (row["seq"],) if row.get("seq") else ()


def _batch(row: Row) -> str:
    return " x ".join(map(str, (row["batch"], *_seq(row))))


HEADINGS = (
    "network", "batch", "policy", "time", "at the roof", "PyTorch's", "settings", "layout", "ratio", "rounds", "goal",
    "default ratio", "peak", "PyTorch's peak", "peak ratio", "peak goal",
)  # fmt: skip
# What is left out first where a terminal is narrow.
SPARE = ("peak goal", "goal", "rounds", "layout", "settings", "default ratio")


def _cells(row: Row) -> list[str]:
    seconds, nbytes = goals(row)
    return [
        row["network"], _batch(row), row["policy"],
        table.duration(row["seconds"]), table.duration(row["roof_seconds"]), table.duration(row["peer_seconds"]),
        row["peer_settings"], row["peer_layout"], f"{row['seconds_ratio']:.2f}", _spread(row), _goal(seconds),
        f"{row['default_ratio']:.2f}", table.size(row["peak_bytes"]),
        table.size(row["peer_peak_bytes"]), f"{row['memory_ratio']:.2f}", _goal(nbytes),
    ]  # fmt: skip


def _spread(row: Row) -> str:
    """The least and the largest ratio of a round."""
    ratios = [own / peer for own, peer in zip(row["rounds"], row["peer_rounds"], strict=True)]
    return f"{min(ratios):.2f}–{max(ratios):.2f}"


def _goal(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def about(document: Document) -> list[str]:
    """Sentences that say on which machine and how the results were measured."""
    m, rows = document["machine"], document["rows"]
    found = [
        f"{m['cpu']}, {m['cores']} cores, {sizes.text(m['memory_bytes'])}; {m['system']}, Python {m['python']}. "
        f"{document['threads']} threads, {document['rounds']} rounds, {document['date']}, commit {document['commit']}.",
        f"{rows[0]['device']}; {rows[0]['peer']}.{' Both are held to AVX2.' if document['avx2'] else ''}",
        "PyTorch's time is that of its fastest settings and layout; `rounds` has the least and largest ratio of a "
        "round, `default ratio` is to its default settings.",
        f"No step of these algorithms is shorter than `at the roof`: {roof(rows)}.",
    ]
    busy = [r["others_share"] for r in rows if r["others_share"] is not None]
    if busy and max(busy) > document["busy"]:
        found.append(f"The machine was not idle: others took up to {max(busy):.0%} of it, so these times say little.")
    return found


def roof(rows: Sequence[Row]) -> str:
    """The machine's roof in words, by the row that found most."""
    found = max((r["roof"] for r in rows), key=lambda roof: roof["flops"])
    rates = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in found["rates"].items())
    memory = found["levels"][-1]
    bytes_ = ", ".join(f"{what} {memory[what] / 1e9:.0f}" for what in ("read", "written", "moved"))
    return f"{found['flops'] / 1e9:.0f} GFLOP/s ({rates}); GB/s of memory: {bytes_}; caches are quicker"


def dump(document: Document) -> None:
    table.dump(document)


def show(document: Document) -> None:
    lines = [_cells(row) for row in document["rows"]]
    table.plain(HEADINGS, lines, "A training iteration beside PyTorch's", spare=SPARE)
    for sentence in about(document):
        print(sentence)


def markdown(document: Document) -> str:
    lines = ["# A training iteration on the CPU beside PyTorch's", ""]
    lines += [*about(document), ""]
    lines += [f"| {' | '.join(HEADINGS)} |", f"|{' --- |' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in document["rows"]]
    return "\n".join([*lines, "", f"![as bars]({stem(document)}.svg)", ""])


def picture(document: Document) -> str:
    rows = []
    for r in document["rows"]:
        of_time, of_bytes = goals(r)
        name = f"{r['network']}, {_batch(r)}"
        said = f"{name}, {r['policy']}: "
        time, peak = table.duration(r["seconds"]), table.size(r["peak_bytes"])
        pair = (
            Bar("weights", r["seconds_ratio"], f"{r['seconds_ratio']:.2f} · {time}",
                f"{said}{time}, PyTorch {table.duration(r['peer_seconds'])}", of_time),
            Bar("feature_maps", r["memory_ratio"], f"{r['memory_ratio']:.2f} · {peak}",
                f"{said}{peak}, PyTorch {table.size(r['peer_peak_bytes'])}", of_bytes),
        )  # fmt: skip
        rows.append(ratios.Row(f"{name}, {r['policy']}", pair))
    m = document["machine"]
    peer = f"{document['rows'][0]['peer']}, eager, in its fastest settings and layout, is 1"
    note = f"{m['cpu']}, {document['threads']} threads; {peer}; black lines are goals"
    key = [("weights", "seconds of an iteration"), ("feature_maps", "bytes at the peak")]
    return ratios.picture("A training iteration on the CPU over PyTorch's", note, key, rows)


def stem(document: Document) -> str:
    """The file name, without ending, of the results of the document's machine. Results of AVX2's kernels have a name of
    their own, whether the command or the CPU asks for these."""
    m = document["machine"]
    avx2 = document["avx2"] or re.search(r"\bAVX2\b", document["rows"][0]["device"])
    return f"cpu-{slug(m['cpu'])}-{m['cores']}{'-avx2' if avx2 else ''}"


def save(document: Document, folder: Path) -> Sequence[Path]:
    """Write the .json, .md and .svg files, each whole or not at all. Returns their paths."""
    paths = []
    for ending in ("json", "md", "svg"):
        path = folder / f"{stem(document)}.{ending}"
        with replacing(path) as file:
            if ending == "json":
                table.dump(document, file)
            else:
                file.write(markdown(document) if ending == "md" else picture(document))
        paths.append(path)
    return paths
