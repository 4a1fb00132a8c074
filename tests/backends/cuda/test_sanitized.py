"""The cuda backend's own kernels, run on the CPU under AddressSanitizer and UndefinedBehaviorSanitizer: they touch no
byte beside their tensors, nothing misaligned, and compute nothing that C++ does not define."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.cuda import host as cuda_host
from tests.support.cuda.sanitizer import RUNTIME
from tests.support.paths import ROOT

KINDS = sorted(cuda_host.kinds())


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(RUNTIME is None, reason="no g++ with AddressSanitizer"),
]


@pytest.fixture(scope="module", autouse=True)
def built():
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        paths = [cuda_host.KERNELS / f"{source}.cu" for source in cuda_host.sources()]
        list(pool.map(lambda path: cuda_host.build(path, sanitize=True), paths))


def sanitized(*words: str) -> subprocess.CompletedProcess:
    options = "detect_leaks=0:abort_on_error=0:exitcode=66"
    env = {**os.environ, "LD_PRELOAD": str(RUNTIME), "ASAN_OPTIONS": options, "PYTHONPATH": str(ROOT),
           "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests" / "support" / "cuda" / "sanitized.py"), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=ROOT)


def test_kernels_stay_within_their_tensors():
    done = sanitized(*KINDS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert f"of {len(KINDS)} kinds" in done.stdout


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("--overrun", "heap-buffer-overflow"),
        ("--misaligned", "misaligned address"),
        ("--overflow", "null pointer|signed integer overflow|SEGV"),
    ],
)
def test_the_sanitizers_are_there(fault, says):
    done = sanitized(fault)
    assert done.returncode != 0 and "calls" in done.stdout
    assert any(word in done.stderr for word in says.split("|")), done.stderr[-2000:]
