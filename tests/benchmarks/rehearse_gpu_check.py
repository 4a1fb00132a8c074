"""The whole of `make gpu-check` in small, on a CUDA of the host's memory: `make gpu-check-rehearse`. `make test` runs
parts of it only (test_gpu_check.py). Without PyTorch there is nothing to compile, and no other's time to draw."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

from benchmarks.gpu_check import __main__ as command
from benchmarks.gpu_check.journal import CODE, Journal
from tests.support.paths import ROOT
from tests.support.peers import installed

ENDINGS = ("json", "jsonl", "md", "svg")
TORCH = installed("torch")


def gpu_check(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    asked = [sys.executable, "-m", "benchmarks.gpu_check", "--rehearse", *arguments]
    return subprocess.run(
        asked,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, CODE: "of the test", **environment},  # whoever edits the sources meanwhile
    )


def test_the_whole_script_in_small(tmp_path):
    done = gpu_check("--results", str(tmp_path / "results"), OUT=str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    folder = tmp_path / "results" / "rehearsal"
    assert "(0, in the card's steps of" in done.stdout.splitlines()[-2], "the goals are the last that it prints"
    records = Journal(folder / "results.jsonl").latest(any_code=True)
    assert {item for item, _ in records} == set(command.ITEMS)
    assert {r["state"] for r in records.values()} == {"ok"}
    text = (folder / "results.md").read_text()
    done_here = command.ITEMS if TORCH else command.ITEMS.keys() - {"k", "t"}
    assert "A rehearsal" in text and all(f"## ({letter})" in text for letter in done_here)
    assert json.loads((folder / "properties.json").read_text())["deviceVer"] == 900
    brought = sorted(p.name for p in (tmp_path / "out" / "rehearsal").iterdir())
    costs, *rest = brought
    assert re.fullmatch(r"costs-cuda-\w+\.json", costs)
    assert rest == ["plans.json", "properties.json", *(f"results.{x}" for x in ENDINGS)]
    summary = json.loads((folder / "results.json").read_text())
    assert {goal["met"] for goal in summary["goals"]} <= {True, False} and summary["cases"]["a"]
    drawn = (folder / "results.svg").read_text() if TORCH else ""
    assert all((f"tests/residual, 4, {x}" in drawn) == TORCH for x in ("float32", "bfloat16"))

    before = time.time()
    done = gpu_check("--results", str(tmp_path / "results"), "--only", "g,h")
    assert done.returncode == 0 and "ok (" not in done.stdout, "what was done is not done again"
    done = gpu_check("--results", str(tmp_path / "results"), "--only", "h", "--again")
    assert done.returncode == 0 and "properties: ok (" in done.stdout
    newest = Journal(folder / "results.jsonl").latest(any_code=True)["h", "properties"]
    assert newest["time"] >= before - 1
