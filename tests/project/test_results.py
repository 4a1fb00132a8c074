"""What was measured names CPUs and GPUs, and no folder of the machine that it was measured on."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import ROOT

FOLDERS = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|var|opt|usr|mnt|work|srv|Users)/[\w.-]+")


@pytest.mark.parametrize("folder", ["benchmarks/results", "docs", "models"])
def test_no_result_names_a_folder_of_a_machine(folder):
    paths = [p for p in (ROOT / folder).rglob("*") if p.suffix in (".json", ".md", ".svg", ".html", ".yaml", ".txt")]
    assert paths
    found = {f"{p.relative_to(ROOT)}: {m.group()}" for p in paths for m in FOLDERS.finditer(p.read_text())}
    assert not found


def test_the_pattern_finds_one():
    assert FOLDERS.search('"device": "oneDNN, /tmp/fresh/.venv/lib/x.so"') and not FOLDERS.search("https://a.b/tmp/x")
