"""The result of `minidnn tune`: a table and sentences for a terminal, and a picture and a page of throughput against
minibatch. All are made from the document that `--json` prints (results/budgets.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidnn import sizes
from minidnn.report import ranks
from minidnn.report.draw import STYLE, WIDTH, ticks
from minidnn.report.look import Cells, Look
from minidnn.report.markup import escape
from minidnn.report.page import page as framed
from minidnn.report.search import multiples
from minidnn.report.table import duration, long, plain, prose, rate
from minidnn.report.table import size as bytes_of
from minidnn.results.counted import Counted, planned
from minidnn.spoken import many

LEFT, RIGHT, TOP, HEIGHT, BELOW = 90, 60, 40, 300, 44
Row = Mapping[str, Any]  # "batch", "fits", "samples_per_second", "moved_bytes", ...
Document = Mapping[str, Any]  # "rows", "best", "largest_unswapped", ...

HEADINGS = ("batch", "fits", "peak", "host", "moved", "one iteration", "stalled", "exposed")
SPARED = ("stalled", "one iteration", "moved")


def show(document: Document, title: str, sentences: Sequence[str]) -> None:
    """Print the table, the sentences `says`, and why the smallest refused batch was refused."""
    plain(*cells(document), title, spare=SPARED)
    for sentence in sentences:
        prose(sentence)
    if document["scaling"]:
        scaling = _scaling(document)
        title = f"The best batch size, {document['best']}, on more or fewer ranks"
        plain(*ranks.cells(scaling), title, spare=ranks.SPARED)
        for sentence in ranks.sentences(scaling):
            prose(sentence)
    refused = next((r for r in document["rows"] if not r["fits"]), None)
    if refused is not None:
        prose(f"Batch {refused['batch']} is refused: {refused['why']}")


def cells(document: Document) -> Cells:
    """Headings, and a line for each batch."""
    samples = planned(document["tokens"])
    headings = *HEADINGS, samples.per_second, "epoch"
    kept = [i for i, heading in enumerate(headings) if heading != "exposed" or (document["ranks"] or 1) > 1]
    lines = [_line(r, samples, len(headings)) for r in document["rows"]]
    return [headings[i] for i in kept], [[line[i] for i in kept] for line in lines]


def _scaling(document: Document) -> Document:
    """The part of the document that is one on ranks (report/ranks.py)."""
    return {"rows": document["scaling"], "tokens": document["tokens"]}


def _speed(document: Document, samples_per_second: float) -> str:
    samples = planned(document["tokens"])
    return f"{rate(samples.speed(samples_per_second))} {samples.per_second}"


def sentences(document: Document) -> list[str]:
    """Sentences on the curve: the best batch, the gain by swapping, and the gain by several devices."""
    rows = {r["batch"]: r for r in document["rows"]}
    if document["best"] is None:
        return ["No batch size fits."]
    best = rows[document["best"]]
    speed = _speed(document, best["samples_per_second"])
    sentences = [f"The efficiency-optimal batch is {best['batch']} (to within {document['grid']}): {speed}."]
    if document["multiple_of"] > 1:
        sentences.append(multiples(document["policy"], document["multiple_of"]))
    sentences += _nearly(document, rows[document["enough"]], best)
    unmoved = None if document["largest_unswapped"] is None else rows[document["largest_unswapped"]]
    if unmoved is None:
        sentences.append("Every batch size that fits swaps.")
    else:
        gain = best["samples_per_second"] / unmoved["samples_per_second"]
        sentences.append(
            f"Without swapping, the largest batch size is {unmoved['batch']}; the best is {document['ratio']:.2f} "
            f"times that, with {gain:.3f} times its throughput."
        )
    if (document["ranks"] or 1) > 1:
        sentences += _devices(document, {"the best batch": best, "the largest without swapping": unmoved})
    return sentences


def _nearly(document: Document, enough: Row, best: Row) -> list[str]:
    """Sentences: how far the best may be behind batches that were not tried, the smallest batch that is nearly as good,
    and formats."""
    largest = max(row["batch"] for row in document["rows"])
    most = _speed(document, document["most_samples_per_second"])
    sentences = [
        f"No plan with a batch size up to {largest} can exceed {most}: the best is at most {document['behind']:.1%} "
        "behind."
    ]
    if enough["batch"] < best["batch"]:
        less = f"{bytes_of(enough['peak_bytes'])} and {bytes_of(enough['host_bytes'])} on the host"
        sentences.append(f"Batch size {enough['batch']} comes within 1 % of the best, with {less}.")
    quicker = [row for row in document["formats"] if row["samples_per_second"] > best["samples_per_second"] * 1.01]
    if quicker:
        names = " or ".join(row["format"] for row in quicker)
        speed = _speed(document, min(row["samples_per_second"] for row in quicker))
        sentences.append(f"In {names}, the same batch size reaches {speed}.")
    return sentences


def _devices(document: Document, batches: Mapping[str, Row | None]) -> list[str]:
    count = document["ranks"]
    sentences = [f"{many(count, 'rank')}, linked by {document['link']}:"]
    for words, row in batches.items():
        if row is not None:
            one = row["efficiency"]
            times = "one rank has no plan" if one is None else f"they are {count * one:.2f} times as fast as one rank"
            sentences.append(
                f"  with {words}, {row['batch']} on each, {times}; {duration(row['exposed_seconds'])} of a step are "
                f"exposed communication; {document['epoch_samples']} samples take {long(row['epoch_seconds'])}."
            )
    return sentences


def checks(document: Document) -> list[str]:
    """A sentence for each batch that was run: how far the prediction is from the measured seconds."""
    sentences = []
    for run in document["measured"]:
        if run["measured_step_seconds"] is None:
            sentences.append(f"Batch {run['batch']} with measured costs: {run['why']}")
            continue
        off = 100 * (run["step_seconds"] / run["measured_step_seconds"] - 1)
        sentences.append(
            f"Batch {run['batch']} run: {duration(run['measured_step_seconds'])} per iteration, "
            f"{duration(run['step_seconds'])} predicted from measured costs ({off:+.1f} %), "
            f"{_speed(document, run['batch'] / run['measured_step_seconds'])}."
        )
    return sentences


def _line(r: Row, samples: Counted, columns: int) -> list[str]:
    if not r["fits"]:
        return [str(r["batch"]), "refused", *["–"] * (columns - 2)]
    return [
        str(r["batch"]),
        "yes",
        bytes_of(r["peak_bytes"]),
        bytes_of(r["host_bytes"]),
        bytes_of(r["moved_bytes"]),
        duration(r["step_seconds"]),
        duration(r["stall_seconds"]),
        duration(r["exposed_seconds"]),
        rate(samples.speed(r["samples_per_second"])),
        long(r["epoch_seconds"]),
    ]


def picture(document: Document, heading: str | None = None) -> str:
    """An SVG of samples, or tokens, per second (y) against batch size (x). A batch at which tensors are swapped is a
    filled circle, else it is hollow; a refused batch is a cross. Two dashed lines mark the largest batch without
    swapping, and the batch of the highest throughput.

    heading: the title of a picture in a file of its own; None if the picture is part of a page."""
    rows, best, unmoved = document["rows"], document["best"], document["largest_unswapped"]
    samples, kept = planned(document["tokens"]), [r for r in rows if r["fits"]]
    widest = max((r["batch"] for r in rows), default=1)
    highest = max((samples.speed(r["samples_per_second"]) for r in kept), default=0.0) * 1.08 or 1.0

    def x(batch: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * batch / widest

    def y(rate: float) -> float:
        return TOP + HEIGHT * (1 - rate / highest)

    out = []
    for value in ticks(highest, 5):
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        out.append(f'<text class="soft" x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    out.append(f'<text class="soft" x="{LEFT - 8}" y="{TOP - 16}" text-anchor="end">{samples.per_second}</text>')
    bottom = TOP + HEIGHT
    for value in ticks(widest, 8):
        label = f'<text class="soft" x="{x(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>'
        out += [f'<line class="axis" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{bottom}" y2="{bottom + 4}"/>', label]
    out.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    out.append(f'<text class="soft" x="{WIDTH - RIGHT}" y="{bottom + 34}" text-anchor="end">minibatch</text>')
    for row, (at, words) in enumerate(((unmoved, "largest without swapping"), (best, "efficiency-optimal"))):
        if at is not None:
            end = at > widest * 0.7
            out.append(f'<line class="turn" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{TOP - 8}" y2="{bottom}"/>')
            anchor, dx = ("end", -6) if end else ("start", 6)
            place = f'x="{x(at) + dx:.1f}" y="{bottom - 12 - 18 * row}" text-anchor="{anchor}"'
            out.append(f'<text class="soft over" {place}>{words}: {at}</text>')
    if kept:
        path = "L".join(f"{x(r['batch']):.1f} {y(samples.speed(r['samples_per_second'])):.1f}" for r in kept)
        out.append(f'<path class="curve" d="M{path}"/>')
    for r in kept:
        fill = "var(--area)" if r["moved_bytes"] else "var(--paper)"
        moved = f"{sizes.text(r['moved_bytes'])} moved" if r["moved_bytes"] else "nothing moves"
        speed = samples.speed(r["samples_per_second"])
        title = (
            f"{r['batch']}: {rate(speed)} {samples.per_second}, {duration(r['step_seconds'])} per iteration, {moved}"
        )
        out.append(
            f'<circle cx="{x(r["batch"]):.1f}" cy="{y(speed):.1f}" r="4" fill="{fill}" '
            f'stroke="var(--area)" stroke-width="1.6"><title>{escape(title)}</title></circle>'
        )
    for r in rows:
        if not r["fits"]:
            place = f'x="{x(r["batch"]):.1f}" y="{bottom - 6}" text-anchor="middle"'
            out.append(f'<text class="bad" {place}>×<title>{r["batch"]}: {escape(r["why"])}</title></text>')
    height = bottom + BELOW
    size = style = ""
    if heading is not None:
        size = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        style = f'<style>{STYLE}</style><rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>'
        style += f'<text x="{LEFT + 12}" y="{TOP - 16}" font-weight="600">{escape(heading)}</text>'
    body = "\n".join(out)
    return f'<svg class="mini" {size} viewBox="0 0 {WIDTH} {height}" role="img">{style}\n{body}\n</svg>\n'


def page(document: Document, heading: str, sentences: Sequence[str], version: str) -> str:
    """An HTML page: the picture, the sentences `says`, and the table."""
    headings, lines = cells(document)
    head = "".join(f"<th>{escape(h)}</th>" for h in headings)
    body = "".join(
        f'<tr class="{"" if r["fits"] else "refused"}">' + "".join(f"<td>{escape(c)}</td>" for c in line) + "</tr>"
        for r, line in zip(document["rows"], lines, strict=True)
    )
    text = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    sections = f"""<section><h2>Throughput by batch size</h2>
<p class="dim">A filled point swaps tensors. Point at anything for its numbers.</p>
<div class="scroll">{picture(document)}</div></section>
<section><h2>Result</h2>{text}</section>
<section><h2>Batch sizes tried</h2>
<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
</div></section>{ranks.section(_scaling(document)) if document["scaling"] else ""}"""
    return framed(heading, sections, f"Made by minidnn {escape(version)}. Sizes are binary: 1 GiB is 1024 MiB.")


# A tuning has its sentences itself, and gives them to the page.
LOOK = Look(cells, picture=lambda document, title, notes: picture(document, title), page=page)
