"""The cuda backend's own kernels, run on the CPU under AddressSanitizer and UndefinedBehaviorSanitizer: they touch no
byte beside their tensors, nothing misaligned, and compute nothing that C++ does not define."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from minidnn.backends.families import FAMILIES
from tests.support.cuda import host as cuda_host
from tests.support.cuda.op_examples import all_examples
from tests.support.cuda.sanitizer import RUNTIME
from tests.support.paths import ROOT

OURS = {family: [kind for kind in kinds if kind in cuda_host.kinds()] for family, kinds in FAMILIES.items()}
OURS = {family: kinds for family, kinds in OURS.items() if kinds}  # cuDNN has all of the others

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(RUNTIME is None, reason="no g++ with AddressSanitizer"),
]


def build(*kinds: str) -> None:
    """What the kinds' examples launch: no compiler runs under a sanitizer."""
    ops = [e.op for e in all_examples() if e.op.kind in kinds]
    recipes = [recipe for op in ops for recipe in cuda_host.kinds()[op.kind](op)]
    for source in {step.source for recipe in recipes for step in recipe.steps}:
        cuda_host.build(cuda_host.KERNELS / f"{source}.cu", sanitize=True)


def sanitized(*words: str) -> subprocess.CompletedProcess:
    options = "detect_leaks=0:abort_on_error=0:exitcode=66"
    env = {**os.environ, "LD_PRELOAD": str(RUNTIME), "ASAN_OPTIONS": options, "PYTHONPATH": str(ROOT),
           "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests" / "support" / "cuda" / "sanitized.py"), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=ROOT)


def test_each_kind_has_a_family():
    assert sorted(kind for kinds in OURS.values() for kind in kinds) == sorted(cuda_host.kinds())


@pytest.mark.parametrize("family", OURS)
def test_kernels_stay_within_their_tensors(family):
    build(*OURS[family])
    done = sanitized(*OURS[family])
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert f"of {len(OURS[family])} kinds" in done.stdout


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("--overrun", "heap-buffer-overflow"),
        ("--misaligned", "misaligned address"),
        ("--overflow", "null pointer|signed integer overflow|SEGV"),
    ],
)
def test_the_sanitizers_are_there(fault, says):
    build("identity.forward")
    done = sanitized(fault)
    assert done.returncode != 0 and "calls" in done.stdout
    assert any(word in done.stderr for word in says.split("|")), done.stderr[-2000:]
