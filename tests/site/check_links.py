"""Every link of the built site that stays within it leads to a file that is there, and to a place in it."""

from __future__ import annotations

import os
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.paths import ROOT

SITE = Path(os.environ.get("SITE", ROOT / "out" / "site"))
PAGES = sorted(SITE.rglob("*.html"))


class Page(HTMLParser):
    """The links of a page, and the places in it that links may lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places.add(given.get("id") or "")
        self.links += [link for name in ("href", "src") if (link := given.get(name))]


@cache
def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def test_links_within_the_site_lead_somewhere(record_property):
    if not PAGES:
        pytest.skip("there is no site: make docs")
    broken, followed = [], 0
    for page in PAGES:
        for link in read(page).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            followed += 1
            if not path.exists() or (path.suffix == ".html" and unquote(parts.fragment) not in read(path).places):
                broken.append(f"{page.relative_to(SITE)}: {link}")
    assert broken == []
    record_property("links followed", followed)
