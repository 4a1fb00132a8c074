"""A comparison of policies as an HTML page: a summary, a table, the bytes at the peak, and one step of each policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minidnn import sizes
from minidnn.report.draw import NARROW, WIDTH, Scale, draw_panel, draw_roles, kinds, panel_height
from minidnn.report.interactive import scripts
from minidnn.report.markup import escape
from minidnn.report.page import key
from minidnn.report.page import page as framed
from minidnn.report.panel import Panel
from minidnn.report.policies import REFUSED, cells, equal, groups, noise, slowdown, spread, sure
from minidnn.report.tradeoff import tradeoff

CLOSE = 0.98  # of another's time: what takes no less is not called quicker
LEVEL = 1.001  # times another's time: what takes no more is as quick
LEFT_ALIGNED = ("policy", "fits", "algorithms", "weights equal")
FOLDED = ("time", "slowdown")  # columns whose intervals take a line of their own where room is short
NARROW_TOO = ("policy", "fits", "peak", "time", "slowdown", "weights equal")  # columns that a narrow window has, too


def page(panels: Sequence[Panel], budget: int | None, heading: str, notes: str, version: str) -> str:
    """The whole page as HTML. heading: names the net and the budget. notes: where the seconds come from."""
    scale = Scale(panels, budget)
    base = next((p for p in panels if p.policy.startswith("baseline")), None)
    steps = "\n".join(
        f'<div class="scroll"><svg class="mini step" viewBox="0 0 {WIDTH} {panel_height(p)}" role="img" '
        f'aria-label="One step of {escape(p.policy)}">{draw_panel(p, scale, budget, base, 0)}</svg></div>'
        for p in panels
    )
    body = f"""<p class="dim">{escape(notes)}</p>
<p class="says">{escape(sentences(panels, budget))}</p>
<section><h2>Policies</h2><div class="scroll" tabindex="0">{_table(panels)}</div>
{_unranked(panels)}{_reasons(panels)}</section>
<section><h2>Time against memory</h2>
<p class="dim">Further left takes less device memory, further down is faster.{_whiskers(panels)}</p>
{_both(lambda wide: tradeoff(panels, budget, wide))}</section>
<section><h2>Device memory at the worst moment</h2>
<p class="dim">The live bytes at each policy's peak, by purpose.{_ratios(base, panels)}</p>
{_both(lambda wide: _roles(panels, budget, wide))}</section>
<section><h2>One step</h2>
<p class="dim">Live bytes on the device over time, and below them the streams: compute, copies out to the host and
copies back in. All policies share one scale.{_drawn_note(base, panels)} Point at anything for its name.</p>
{key(kinds(panels))}
{steps}</section>
{scripts(panels, scale, base) if panels else ""}"""
    return framed(heading, body, f"Made by minidnn {escape(version)}. Sizes are binary: 1 GiB is 1024 MiB.")


def _both(drawn: Callable[[int], str]) -> str:
    """A picture at its usual width, and the same for a narrow window: CSS shows one of them."""
    return f'<div class="usual">{drawn(WIDTH)}</div><div class="narrow">{drawn(NARROW)}</div>'


def _roles(panels: Sequence[Panel], budget: int | None, wide: int) -> str:
    inside, height = draw_roles(panels, budget, 24, wide)
    return f'<svg class="mini" viewBox="0 0 {wide} {height + 28:g}" role="img">{inside}</svg>'


def _whiskers(panels: Sequence[Panel]) -> str:
    if not any(p.row.get("timed_steps") for p in panels):
        return ""
    return " A line through a point is the interval of its time; where two intervals overlap, the order is not known."


def _ratios(base: Panel | None, panels: Sequence[Panel]) -> str:
    return " The factor after a size is relative to baseline." if base is not None and len(panels) > 1 else ""


def _drawn_note(base: Panel | None, panels: Sequence[Panel]) -> str:
    note = " The dashed curve is baseline's." if base is not None and len(panels) > 1 else ""
    if any(p.row.get("timed_steps") for p in panels):
        drawn = "the median of separately traced steps" if apart(panels) else "the median step of the table"
        note += f" Of a policy that was run, the picture shows {drawn}."
    return note


def sentences(panels: Sequence[Panel], budget: int | None) -> str:
    """The comparison's result in a few sentences."""
    if not panels:
        return ""
    words = []
    base = next((p for p in panels if p.policy.startswith("baseline")), None)
    kept = [p for p in panels if p.row["fits"]]
    if base is not None:
        need = sizes.text(base.row["peak_bytes"])
        if base.row["fits"]:
            words.append(f"{base.policy} takes {need}.")
        elif budget is not None and base.row["peak_bytes"] > budget:
            words.append(f"{base.policy} needs {need} and is refused at a budget of {sizes.text(budget)}.")
        else:  # refused, but not for a device budget
            words.append(f"{base.policy} is refused.")
    if not kept and len(panels) > 1:
        least = min(panels, key=lambda p: p.row["peak_bytes"])
        peak = sizes.text(least.row["peak_bytes"])
        words.append(f"None of these policies fits; {least.policy} needs the least device memory: {peak}.")
    others = [p for p in kept if p is not base]
    if others:
        least = min(others, key=lambda p: p.row["peak_bytes"])
        words.append(f"{least.policy} trains the same network in {sizes.text(least.row['peak_bytes'])}{_cost(least)}.")
        fastest = groups([p.row for p in others])[0]
        quickest = next(p for p in others if p.row is fastest[0])
        level = [p for p in others if _time(p) <= LEVEL * _time(quickest)]
        if len(fastest) > 1 and all(map(sure, fastest)):
            named = ", ".join(row["policy"] for row in fastest)
            words.append(f"The fastest policies that save memory are too noisy to rank: {named}.")
        elif sure(quickest.row) and quickest is not least and _time(quickest) < CLOSE * _time(least):
            named, are = ", ".join(p.policy for p in level), "is" if len(level) == 1 else "are"
            saves = "saves" if len(level) == 1 else "save"
            peak = sizes.text(min(p.row["peak_bytes"] for p in level))
            words.append(f"{named} {are} the fastest that {saves} memory: {peak}{_cost(quickest)}.")
    words += equal([p.row for p in panels])
    return " ".join(words)


def apart(panels: Sequence[Panel]) -> bool:
    """Whether steps are drawn that are not those of the table: on a device whose timed steps cannot be traced."""
    return any(p.row["step_seconds"] != p.seconds for p in panels)


def _time(p: Panel) -> float:
    return float(p.row["step_seconds"])


def _cost(p: Panel) -> str:
    if p.row["slowdown"] is None or not sure(p.row):
        return ""
    result = spread(p.row, "slowdown")
    if result is not None and result.low <= 1 <= result.high:
        return ", as fast as baseline within the noise"
    return f", at {slowdown(p.row).replace('×', '')} times baseline's time"


def _table(panels: Sequence[Panel]) -> str:
    headings, lines = cells([p.row for p in panels])
    classes = {"l": LEFT_ALIGNED, "fold": FOLDED, "usual": [h for h in headings if h not in NARROW_TOO]}
    own = {h: [kind for kind, columns in classes.items() if h in columns] for h in headings}
    out = ['<table class="kept"><thead><tr>']
    out += [f'<th class="{" ".join(kinds)}">{h}</th>' for h, kinds in own.items()]
    out.append("</tr></thead><tbody>")
    for p, line in zip(panels, lines, strict=True):
        out.append(f'<tr class="{"" if p.row["fits"] else "refused"}">')
        for heading, text in zip(headings, line, strict=True):
            kinds = [*own[heading]]
            if heading == "algorithms":
                kinds.append("wrap")
            if heading in ("fits", "weights equal"):
                kinds += {"yes": ["yes"], "NO": ["no"], "refused": ["no"]}.get(text, [])
            shown = escape(text)
            if heading in FOLDED:  # before the interval, and on a phone between a number and its unit, too
                number, _, interval = shown.partition(" (")
                shown = f"<span>{number}</span> ({interval}" if interval else number
            out.append(f'<td class="{" ".join(kinds)}">{shown}</td>')
        out.append("</tr>")
    more = ", ".join(h for h, kinds in own.items() if "usual" in kinds)
    note = f'<p class="dim note narrow">A wider window has more columns: {more}.</p>' if more else ""
    return "".join((*out, f"</tbody></table>{note}"))


def _unranked(panels: Sequence[Panel]) -> str:
    return "".join(f'<p class="dim note">{escape(sentence)}</p>' for sentence in noise([p.row for p in panels]))


def _reasons(panels: Sequence[Panel]) -> str:
    details = "".join(
        f"<details><summary>Why {escape(p.policy)} was refused</summary><pre>{escape(p.row['why'])}</pre></details>"
        for p in panels
        if p.row.get("why")
    )
    return details and f'{details}<p class="dim note">{REFUSED}</p>'
