"""The page of papers, docs/papers.md: who proposed each policy, and where the text was silent, made of the one table of
them (memory/policies/bibliography.py)."""

from __future__ import annotations

from minidnn.memory.policies import names, summary
from minidnn.memory.policies.bibliography import PAPERS, RELATIVES, VARIANTS, Paper

HEAD = """# Who proposed what

`make reference` generates this page from `minidnn/memory/policies/bibliography.py`: do not edit it.

Each policy follows a paper, or is minidnn's own. The list below each policy gives our assumptions where the text is
silent or was not available. What follows a paper has the name of its system; what is partial, or decides otherwise, is
called "-style". [The board](board.md) compares the policies, and [the policies in pictures](policies.md) explains
them. No policy follows [the relatives](papers.md#relatives), but ideas of theirs meet ours.
"""

RELATED = """## Relatives

| system | what it proposed | what of minidnn's meets it |
|---|---|---|"""


def papers_page() -> str:
    """The text of docs/papers.md."""
    whose: dict[str, list[str]] = {}
    for name, paper in PAPERS.items():
        whose.setdefault(paper.title if paper.authors else "minidnn's own", []).append(name)
    parts = [HEAD]
    for title, policies in whose.items():
        parts.append(f"## {title}\n")
        first = PAPERS[policies[0]]
        if first.authors:
            parts.append(f"{first.authors}. {first.venue} {first.year}.\n")
        parts += [_policy(name, PAPERS[name]) for name in policies]
    related = [f"| {r.system} ({r.who}, {r.venue} {r.year}) | {r.idea} | {r.here} |" for r in RELATIVES]
    return "\n".join([*parts, RELATED, *related]) + "\n"


def _policy(name: str, paper: Paper) -> str:
    variants = [variant for variant in names() if VARIANTS.get(variant) == name]
    more = f" Variants: {', '.join(f'`{variant}`' for variant in variants)}." if variants else ""
    called = f", {paper.called}" if paper.called else ""
    where = f" It follows {_part(paper.section)}." if paper.authors else ""
    what = summary(name) if paper.authors else paper.title.partition(": ")[2].capitalize()
    lines = [f"**`{name}`**{called}: {what}.{where}{more}", "", *(f"- {sentence}" for sentence in paper.silent)]
    return "\n".join(lines).rstrip() + "\n"


def _part(section: str) -> str:
    """A part of a paper in a sentence: section III-C, or the abstract."""
    return section if section.startswith("the ") else f"section {section}"
