"""The site: the Markdown of docs/, the documents of the root, and what is read from the package itself."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import minidnn  # noqa: E402

project, version, release = "minidnn", minidnn.__version__, minidnn.__version__
# Each page shows its version, and whether that is one that was released.
unreleased = f"## {release} (unreleased)" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
html_title = f"minidnn {release}{' (unreleased)' if unreleased else ''}"
author, copyright = "the authors of minidnn", "the authors of minidnn"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "extensions.links",
    "extensions.docstrings",
    "extensions.commands",
]
exclude_patterns = ["notebooks/*.ipynb", "journeys/*.py", "journeys/*.sh"]
highlight_language = "none"
smartquotes = False  # an option begins with two hyphens
nitpicky = True
# Types of other packages, and values that the package hands about without documenting them, have no page to link to.
nitpick_ignore_regex = [("py:.*", r"(?!minidnn\.(?:Net|Solver|Session|L|load)\b).*")]
myst_heading_anchors = 4  # GitHub's anchors, so that a link works there as here
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autoclass_content = "both"
autodoc_typehints = "none"  # docstrings say types, shapes and units

html_theme = "furo"
html_static_path = ["style"]
templates_path = ["templates"]
_ABOVE = ["sidebar/brand.html", "sidebar/search.html", "sidebar/scroll-start.html", "sidebar/navigation.html"]
html_sidebars = {"**": [*_ABOVE, "versions.html", "sidebar/scroll-end.html"]}
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_show_copyright = html_show_sphinx = False
