"""What an index shows as the package's page: the README, with links that lead somewhere. setup.cfg has everything else.

A link into the repository needs the repository's address, which is `Source` of setup.cfg's project_urls. Where that is
not stated, the text of a link stays, and of a picture its description.
"""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from setuptools import setup

PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]*)\)")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)]*)\)")


def page(readme: str, source: str | None) -> str:
    """The README for readers who do not have the repository's files; `source`: its address, if it is known."""
    if source is None:
        return LINK.sub(r"\1", PICTURE.sub(r"*(\1)*", readme))
    return LINK.sub(rf"[\1]({source}/blob/HEAD/\2)", PICTURE.sub(rf"![\1]({source}/raw/HEAD/\2)", readme))


if __name__ == "__main__":
    here = Path(__file__).parent
    config = configparser.ConfigParser()
    config.read(here / "setup.cfg", encoding="utf-8")
    urls = dict(re.findall(r"(\w+) *= *(\S+)", config["metadata"].get("project_urls", "")))
    setup(
        long_description=page((here / "README.md").read_text(encoding="utf-8"), urls.get("Source")),
        long_description_content_type="text/markdown",
    )
