"""cuDNN's plans without a GPU: from the properties of cards, for real nets and odd geometries, and whole schedules with
their workspaces. The checks are in tests/support/cuda/plans.py; each runs in a process of its own.

What cannot be proved here: that a plan computes the right numbers, and how long it takes.
"""

from __future__ import annotations

import ctypes.util
import shutil
import subprocess
import sys
from importlib import metadata

import pytest

from minidnn.backends.cuda import packages
from tests.support.paths import ROOT, SUPPORT


def missing() -> str | None:
    """Why these tests cannot run here; None where they must."""
    try:
        metadata.version("nvidia-cudnn-frontend")
    except metadata.PackageNotFoundError:
        return "nvidia-cudnn-frontend is not installed (`make test-cuda-offline` installs what this needs)"
    return None


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> str:
    """The tests' libcuda.so.1; "none" where there is a real one, or no compiler."""
    gcc = shutil.which("gcc")
    if gcc is None or ctypes.util.find_library("cuda"):
        return "none"
    library = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    source = SUPPORT / "cuda" / "driver.c"
    subprocess.run([gcc, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o", library], check=True)
    return str(library)


@pytest.fixture
def check(driver, record_property):
    """Run a check of tests/support/cuda/plans.py; `pytest --tell` shows what it counted."""

    def run(*words: str) -> None:
        command = [sys.executable, "-m", "tests.support.cuda.plans", driver, *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            record_property("told", line)
        if done.returncode:
            how = f"died of signal {-done.returncode}" if done.returncode < 0 else "failed"
            pytest.fail(f"{' '.join(words)} {how}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}", pytrace=False)

    return run


# cuDNN for CUDA 12 as the extra cuda12 installs it has kernels for all of them, that for CUDA 13 for the first three.
OLD = ("v100", "p100", "titan_x") if packages._version("nvidia-cudnn-cu12") else ()
CARDS = ("h200", "a100", "t4", *OLD)


@pytest.mark.parametrize("card", CARDS)
def test_every_convolution_and_product_of_real_nets_has_plans(card, check):
    check("nets", card)


@pytest.mark.parametrize("card", CARDS)
def test_a_relu_changes_no_plan(card, check):
    check("fusing", card)


@pytest.mark.parametrize("card", CARDS)
def test_odd_geometries_have_plans(card, check):
    check("odd", card)


@pytest.mark.parametrize("card", CARDS)
def test_a_limit_of_workspace_is_obeyed(card, check):
    check("limits", card)


@pytest.mark.parametrize("card", CARDS)
def test_tf32_and_determinism_only_take_plans_away(card, check):
    check("barred", card)


@pytest.mark.parametrize("card", [card for card in CARDS if card not in ("p100", "titan_x")])
def test_batches_of_more_than_32_bits_of_elements_have_the_plans_of_smaller_ones(card, check):
    check("large", card)


def test_names_stay(check):
    check("same_each_time", "h200")


def test_a_geometry_is_worked_out_once(check):
    check("shared")


def test_half_precision(check):
    check("formats", *CARDS)


# Where products of 16 bits are not quicker, cuDNN computes them in float32, and its workspaces do not halve.
@pytest.mark.parametrize("card", [card for card in CARDS if card not in ("p100", "titan_x")])
def test_whole_nets_in_half_precision(card, check):
    check("halved", card)


def test_refusals_say_what_to_do(check):
    check("refusals")


@pytest.mark.parametrize("card", CARDS)
def test_schedules_with_these_workspaces_hold(card, check):
    check("schedules", card)


def test_compiled_plans_come_last(check, driver):
    if driver == "none":
        pytest.skip("no gcc: without a driver's library cuDNN lists no plans that it would compile")
    check("compiled")


def test_cudnn_without_cublas_ends_in_a_message(check):
    check("without_cublas")


def test_half_a_cudnn_ends_in_a_message(check):
    check("in_pieces")
