"""Python with OpenBLAS's kernels for another CPU, on two threads. Any other BLAS ignores the choice, and is tested as
it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from minidnn import cpuinfo
from tests.support.paths import ROOT

LEVELS = {"Sandybridge": "x86-64-v3", "Haswell": "x86-64-v3", "Zen": "x86-64-v3", "SkylakeX": "x86-64-v4"}
CORES = list(LEVELS)


def run_as(core: str, *statements: str) -> None:
    """Run these statements in a process of their own, on a CPU that runs the kernels; else skip the test."""
    if not cpuinfo.runs(LEVELS[core]):
        pytest.skip(f"this CPU does not run the kernels for {core}")
    done = subprocess.run(
        [sys.executable, "-c", "; ".join(statements)],
        cwd=ROOT, env={**os.environ, "OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "2"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
