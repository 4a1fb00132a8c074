"""The contents of sources as tables: facts about the samples, and a line for each label."""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.report.table import plain, prose, size
from minidnn.results.contents import Contents, SourceRow
from minidnn.spoken import either, many
from minidnn.visible import say

MOST = 30  # labels that have a line


def show(document: Contents) -> None:
    """Print two tables for each source."""
    for row in document.rows:
        place = f"Layer {row.layer}: {row.source}" if row.layer else row.source
        plain(["data", "what"], facts(row), f"{place}, phase {document.phase}")
        if row.labels:
            lines = [[str(result.label), result.name or "–", f"{result.samples:,}"] for result in row.labels[:MOST]]
            plain(["label", "class", "samples"], lines)
        if len(row.labels) > MOST:
            least, most = (f(result.samples for result in row.labels) for f in (min, max))
            has = either("--json has", "the rows have")
            prose(f"and {len(row.labels) - MOST} more labels; {least:,} to {most:,} samples each ({has} all)")
        for problem in row.problems:
            prose(f"cannot be read: {problem}")
        if row.unreadable > len(row.problems):
            say(f"and {row.unreadable - len(row.problems)} more")


def facts(row: SourceRow) -> list[list[str]]:
    """(what, its value) in words."""
    some = "" if row.read_samples == row.samples else f", of which {row.read_samples:,} were read, evenly spread"
    result = [("source", row.source_kind), ("samples", f"{row.samples:,}{some}"), ("labels", f"{len(row.labels):,}")]
    if row.unreadable:
        result.append(("cannot be read", f"{row.unreadable:,}"))
    if row.smallest_shape and row.median_shape and row.largest_shape:
        shapes = [_shape(shape) for shape in (row.smallest_shape, row.median_shape, row.largest_shape)]
        what = f"{shapes[0]} to {shapes[2]}, median {shapes[1]}" if shapes[0] != shapes[2] else shapes[0]
        result += [("shape", what), ("values", f"{row.sample_type}, {row.lowest:g} to {row.highest:g}")]
    if row.mean_value:
        result.append(("mean", f"mean_value: [{', '.join(f'{value:.5g}' for value in row.mean_value)}]"))
    if row.disk_bytes is not None:
        result.append(("on the disk", size(row.disk_bytes)))
    result.append(("decoded", size(row.decoded_bytes)))
    if row.net_shape is not None:
        result.append(("as the net sees them", _shape(row.net_shape)))
        how = "made by one thread"
        if row.workers:
            how = f"made ahead by {many(row.workers, 'worker')}, in {size(row.staged_bytes)}"
        result.append(("a batch", f"{size(row.batch_bytes)}; {how}"))
    return [list(pair) for pair in result]


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
