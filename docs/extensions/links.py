"""Links of a document lead to files of the repository, as on GitHub. Here they are led to the pages of the site.

README.md and its neighbours lie outside of docs/. A page includes each of them; a link to one of them becomes a link to
its page, and links within it are read from where it lies.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
PAGES = {  # a document outside of docs/: the page that includes it
    "README.md": "index.md",
    "DESIGN.md": "design.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "tests/README.md": "testing.md",
    "benchmarks/README.md": "measuring.md",
    "release/README.md": "releasing.md",
}
_LINK = re.compile(r"(\]\()([^)#\s]+)")


def led(text: str, lies: Path, shown: Path) -> str:
    """The text of a document in the folder `lies`, with its links as a page in the folder `shown` needs them."""

    def target(link: re.Match[str]) -> str:
        start, name = link.groups()
        if "://" in name or name.startswith("mailto:"):
            return link.group()
        path = Path(os.path.normpath(lies / name))
        if page := PAGES.get(os.path.relpath(path, DOCS.parent)):
            path = DOCS / page
        return start + os.path.relpath(path, shown)

    return _LINK.sub(target, text)


def _of_page(app: Any, name: str, content: list[str]) -> None:
    folder = (DOCS / name).parent
    content[0] = led(content[0], folder, folder)


def _of_included(app: Any, path: Path, page: str, content: list[str]) -> None:
    content[0] = led(content[0], (DOCS / path).resolve().parent, DOCS)  # the pages that include any lie in docs/


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _of_page)
    app.connect("include-read", _of_included)
    return {"parallel_read_safe": True}
