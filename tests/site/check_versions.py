"""The site of each release stands beside that of the files as they are, and each links to the others."""

from __future__ import annotations

import shutil
import subprocess

from docs import versions
from tests.support.paths import ROOT

CONF = 'templates_path = ["templates"]\nhtml_sidebars = {"**": ["versions.html"]}\n'
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")


def test_each_version_shows_its_own_pages_and_links_to_the_others(tmp_path):
    root, docs, site = tmp_path / "root", tmp_path / "root" / "docs", tmp_path / "site"
    docs.mkdir(parents=True)
    shutil.copytree(ROOT / "docs" / "templates", docs / "templates")
    (docs / "conf.py").write_text(CONF)

    def git(*words):
        subprocess.run(["git", *AUTHOR, "-C", str(root), *words], check=True, capture_output=True)

    git("init")
    for version in ("0.9.0", "0.10.0"):
        (docs / "index.rst").write_text(f"The page of {version}\n====================\n")
        git("add", ".")
        git("commit", "-m", version)
        git("tag", f"v{version}")
    (docs / "index.rst").write_text("The page of now\n===============\n")

    versions.build(root, site)
    assert versions.releases(root) == ["0.10.0", "0.9.0"]
    assert "url=0.10.0/index.html" in (site / "index.html").read_text()
    for name, shown in {"main": "now", "0.10.0": "0.10.0", "0.9.0": "0.9.0"}.items():
        page = (site / name / "index.html").read_text()
        assert f"The page of {shown}" in page and f"<strong>{name}</strong>" in page
        others = {"main", "0.10.0", "0.9.0"} - {name}
        assert all(f'href="../{other}/index.html"' in page.replace("./../", "../") for other in others), page
