"""The page of papers, docs/papers.md: who proposed each policy, and where the text was silent, made of the one table of
them (memory/policies/bibliography.py)."""

from __future__ import annotations

from minidnn.memory.policies import names, summary
from minidnn.memory.policies.bibliography import PAPERS, VARIANTS, Paper

HEAD = """# Who proposed what

`make reference` generates this page from `minidnn/memory/policies/bibliography.py`: do not edit it.

Each policy follows a paper, or is minidnn's own. The list below each policy gives our assumptions where the text is
silent or was not available. A policy that deviates far from its paper is called "-style". [The board](board.md)
compares the policies, and [the policies by their pictures](policies.md) explains them.
"""


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
    return "\n".join(parts)


def _policy(name: str, paper: Paper) -> str:
    variants = [variant for variant in names() if VARIANTS.get(variant) == name]
    more = f" Variants: {', '.join(f'`{variant}`' for variant in variants)}." if variants else ""
    where = (
        f" It follows {_part(paper.section)}{', with large deviations' if paper.style else ''}."
        if paper.authors
        else ""
    )
    what = summary(name) if paper.authors else paper.title.partition(": ")[2].capitalize()
    lines = [f"**`{name}`**: {what}.{where}{more}", "", *(f"- {sentence}" for sentence in paper.silent)]
    return "\n".join(lines).rstrip() + "\n"


def _part(section: str) -> str:
    """A part of a paper in a sentence: section III-C, or the abstract."""
    return section if section.startswith("the ") else f"section {section}"
