"""Speed against the number of ranks: a table, sentences on where more stop paying and why, a picture and a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from minidnn.report.draw import STYLE, WIDTH
from minidnn.report.look import Cells, Look
from minidnn.report.markup import escape
from minidnn.report.page import page as framed
from minidnn.report.plot import coloured
from minidnn.report.table import duration, rate, size
from minidnn.results.counted import Counted, planned
from minidnn.spoken import many

PAYS = 0.5  # of what one of the fewest ranks does: what each further rank has to add
LEFT, RIGHT, TOP, HEIGHT, BELOW = 90, 90, 60, 300, 52
HEAD, LINE, NOTED = 40, 16, 150  # pixels of the heading and of a line of the note, and the letters of one
HEADINGS = (
    "policy", "ranks", "batch", "peak", "one iteration", "compute", "net", "exposed", "sent",
)  # fmt: skip
SPARED = ("batch", "net", "peak", "sent", "compute")
Row = Mapping[str, Any]  # results/ranks.py


def cells(document: Row) -> Cells:
    """Headings, and a line for each number of ranks. One policy's name is not repeated."""
    rows, samples = document["rows"], planned(document["tokens"])
    headings = *HEADINGS, samples.per_second, "efficiency"
    lines = [_line(r, samples, len(headings)) for r in rows]
    first = 0 if len({r["policy"] for r in rows}) > 1 else 1
    return headings[first:], [line[first:] for line in lines]


def _line(r: Row, samples: Counted, columns: int) -> list[str]:
    head = [r["policy"], str(r["ranks"]), str(r["batch"])]
    if not r["fits"]:
        return [*head, "refused", *["–"] * (columns - 4)]
    names = ("iteration_seconds", "compute_seconds", "net_seconds", "exposed_seconds")
    seconds = (duration(r[name]) if r[name] else "0" for name in names)
    return [
        *head, size(r["peak_bytes"]), *seconds, size(r["sent_bytes"]),
        rate(samples.speed(r["samples_per_second"])), "–" if r["efficiency"] is None else f"{r['efficiency']:.3f}",
    ]  # fmt: skip


def sentences(document: Row) -> list[str]:
    """Sentences on each policy: the number of ranks up to which it pays, the reason why no further, and refusals."""
    sentences = ["Exposed: the time of communication that compute does not hide. All times are predicted."]
    for policy, own in _by_policy(document["rows"]).items():
        sentences += _pays(policy, own)
        refused = next((r for r in own if not r["fits"]), None)
        if refused is not None:
            sentences.append(f"{policy} on {many(refused['ranks'], 'rank')} is refused: {refused['why']}")
    return sentences


def pays(rows: Sequence[Row]) -> tuple[Row | None, Row | None]:
    """(the last of one policy's rows whose marginal throughput per rank is at least PAYS of the first row's, the next
    row); None for a row that does not exist."""
    last: Row | None = None
    kept = [r for r in rows if r["fits"]]
    for row in kept:
        if last is not None:
            added = (row["samples_per_second"] - last["samples_per_second"]) / (row["ranks"] - last["ranks"])
            if added < PAYS * kept[0]["samples_per_second"] / kept[0]["ranks"]:
                return last, row
        last = row
    return last, None


def _pays(policy: str, rows: Sequence[Row]) -> list[str]:
    last, beyond = pays(rows)
    if last is None:
        return []
    most = f"{policy} pays off up to {many(last['ranks'], 'rank')}"
    if beyond is None:
        return [f"{most}, the most that were asked for."]
    return [
        f"{most}. From there to {beyond['ranks']}, each added rank brings "
        f"less than {PAYS:g} of the throughput of a rank in the smallest run. {_why(beyond)}"
    ]


def _why(r: Row) -> str:
    latency, volume = r["saved_without_latency_seconds"], r["saved_without_bytes_seconds"]
    exposed, whole = r["exposed_seconds"], r["iteration_seconds"]
    if exposed < 0.1 * whole:
        return "Little of that is communication: summing gradients takes the time, or the batch of a rank is too small."
    cause = "latency" if latency > volume else "bandwidth"
    sentences = (
        f"The reason is {cause}: {duration(exposed)} of {duration(whole)} are exposed; a link without latency would "
        f"save {duration(latency)}, and one with unlimited bandwidth {duration(volume)}."
    )
    if r["net_seconds"] > r["compute_seconds"]:
        lasts, beside = duration(r["net_seconds"]), duration(r["compute_seconds"])
        return f"{sentences} Communication takes {lasts} and compute {beside}, so compute cannot hide all of it."
    return sentences


def _by_policy(rows: Sequence[Row]) -> dict[str, list[Row]]:
    result: dict[str, list[Row]] = {}
    for row in rows:
        result.setdefault(row["policy"], []).append(row)
    return result


def picture(document: Row, title: str, notes: str) -> str:
    """The picture in a file of its own."""
    return drawn(document, f"{title}: speed relative to as many independent devices", notes)


def drawn(document: Row, heading: str = "", note: str = "") -> str:
    """An SVG: samples per second over those of as many devices that do not wait for each other (y), against ranks (x,
    by powers of two). A ring marks the last number that pays. Without a heading it is part of a page."""
    kept = [r for r in document["rows"] if r["fits"]]
    most = max((r["ranks"] for r in kept), default=1)
    least = min((r["ranks"] for r in kept), default=1)
    octaves = max(math.log2(most / least), 1.0)
    noted = wrap(note, NOTED) if heading else []
    top = TOP + LINE * len(noted) if heading else TOP - HEAD
    bottom, end = top + HEIGHT, WIDTH - RIGHT

    def x(ranks: int) -> float:
        return LEFT + (end - LEFT) * math.log2(ranks / least) / octaves

    def y(part: float) -> float:
        return top + HEIGHT * (1 - min(part, 1.1) / 1.1)

    out = []
    if heading:
        out.append(f'<text class="head" x="{LEFT}" y="30">{escape(heading)}</text>')
    for i, line in enumerate(noted):
        out.append(f'<text class="soft" x="{LEFT}" y="{49 + LINE * i}">{escape(line)}</text>')
    for tenths in range(0, 11, 2):
        at = y(tenths / 10)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{end}" y1="{at:.1f}" y2="{at:.1f}"/>')
        out.append(f'<text class="soft" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{10 * tenths} %</text>')
    for ranks in sorted({r["ranks"] for r in kept}):
        at = x(ranks)
        out.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        out.append(f'<text class="soft" x="{at:.1f}" y="{bottom + 17}" text-anchor="middle">{ranks}</text>')
    out.append(f'<line class="axis" x1="{LEFT}" x2="{end}" y1="{bottom}" y2="{bottom}"/>')
    out.append(f'<text class="soft" x="{end}" y="{bottom + 36}" text-anchor="end">ranks</text>')
    colours = coloured(r["policy"] for r in kept)
    for policy, own in _by_policy(kept).items():
        out += _curve(policy, own, planned(document["tokens"]), colours[policy], x, y)
    height = bottom + BELOW
    frame = f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="speed against ranks"'
    style = ""
    if heading:
        frame = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" {frame}'
        style = f'<style>{STYLE}</style><rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>'
    body = "\n".join(out)
    return f'<svg class="mini" {frame}>{style}\n{body}\n</svg>\n'


def _curve(policy: str, rows: Sequence[Row], samples: Counted, colour: str, x: Any, y: Any) -> list[str]:
    one = rows[0]["samples_per_second"] / rows[0]["ranks"]
    places = [(x(r["ranks"]), y(r["samples_per_second"] / r["ranks"] / one)) for r in rows]
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
    out = [f'<path d="M{path}" fill="none" stroke="var(--{colour})" stroke-width="2"/>']
    last, beyond = pays(rows)
    for r, (a, b) in zip(rows, places, strict=True):
        part, speed = r["samples_per_second"] / r["ranks"] / one, rate(samples.speed(r["samples_per_second"]))
        text = (
            f"{policy}, {many(r['ranks'], 'rank')}: {speed} {samples.per_second}, "
            f"{part:.0%} of as many independent devices; "
            f"exposed {duration(r['exposed_seconds'])} of {duration(r['iteration_seconds'])}"
        )
        place = f'cx="{a:.1f}" cy="{b:.1f}"'
        out.append(f'<circle {place} r="3.8" fill="var(--{colour})"><title>{escape(text)}</title></circle>')
        if beyond is not None and r is last:
            out.append(f'<circle {place} r="8" fill="none" stroke="var(--{colour})" stroke-width="1.6"/>')
            words, beside = escape(f"{policy} pays off up to {r['ranks']}"), f'x="{a + 12:.1f}" y="{b - 6:.1f}"'
            out.append(f'<text class="soft over" {beside}>{words}</text>')
    end = places[-1]
    out.append(f'<text class="soft over" x="{end[0] + 8:.1f}" y="{end[1] + 4:.1f}">{escape(policy)}</text>')
    return out


def section(document: Row) -> str:
    """The picture, the sentences and the table, as sections of a page."""
    headings, lines = cells(document)
    head = "".join(f"<th>{escape(h)}</th>" for h in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in line) + "</tr>" for line in lines)
    text = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences(document))
    return f"""<section><h2>Speed against ranks</h2>
<p class="dim">Samples per second, relative to as many devices that do not wait for each other. Point at anything for
its numbers.</p>
<div class="scroll">{drawn(document)}</div></section>
<section><h2>Where more ranks stop paying off</h2>{text}</section>
<section><h2>Ranks</h2><div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
</div></section>"""


def page(document: Row, heading: str, notes: str, version: str) -> str:
    """An HTML page: the picture, the sentences and the table."""
    body = f'<p class="dim">{escape(notes)}</p>{section(document)}'
    return framed(heading, body, f"Made by minidnn {escape(version)}. Sizes are binary: 1 GiB is 1024 MiB.")


LOOK = Look(cells, sentences, SPARED, picture, page)
