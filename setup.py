"""What an index shows as the package's page: the README, and links beside it. setup.cfg has everything else.

Links lead to the files of this version, at the tag vVERSION. They need the repository's address, which is `Source` of
setup.cfg's project_urls. Where that is not stated, the text of a link stays, and of a picture its description.
"""

from __future__ import annotations

import configparser
import re
import runpy
from pathlib import Path

from setuptools import setup

PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]*)\)")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)]*)\)")


def page(readme: str, source: str | None, version: str) -> str:
    """The README for readers who do not have the repository's files; `source`: its address, if it is known."""
    if source is None:
        return LINK.sub(r"\1", PICTURE.sub(r"*(\1)*", readme))
    files, raw = f"{source}/blob/v{version}", f"{source}/raw/v{version}"
    return LINK.sub(rf"[\1]({files}/\2)", PICTURE.sub(rf"![\1]({raw}/\2)", readme))


def links(source: str | None, version: str) -> dict[str, str]:
    """The links beside the page, by name; none without the repository's address."""
    if source is None:
        return {}
    files = f"{source}/blob/v{version}"
    return {
        "Source": source,
        "Documentation": f"{files}/docs/index.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{source}/issues",
    }


if __name__ == "__main__":
    here = Path(__file__).parent
    config = configparser.ConfigParser()
    config.read(here / "setup.cfg", encoding="utf-8")
    urls = dict(re.findall(r"(\w+) *= *(\S+)", config["metadata"].get("project_urls", "")))
    source, version = urls.get("Source"), runpy.run_path(str(here / "minidnn" / "version.py"))["__version__"]
    setup(
        long_description=page((here / "README.md").read_text(encoding="utf-8"), source, version),
        long_description_content_type="text/markdown",
        project_urls=links(source, version) | urls,
    )
