"""The profile of the card at hand: its facts from a driver, played by tests/support/cuda/driver.c. No GPU was asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from minidnn import costs, sizes
from minidnn.backends.cuda.at_hand import CardFacts, profile
from minidnn.backends.cuda.packages import Card
from tests.backends.cuda.test_packages import driver, needs_gcc, no_driver  # noqa: F401  (a fixture)
from tests.support.paths import ROOT

GiB = 2**30


def facts_of(name: str) -> tuple[Card, CardFacts]:
    """A known card, by the numbers that its driver would give, under a name that nobody knows."""
    gpu = costs.gpu(name)
    capability = {"rtx3060": (8, 6), "rtx4090": (8, 9), "a100": (8, 0), "t4": (7, 5), "a10": (8, 6), "l4": (8, 9)}[name]
    bus = 256
    brand = "GeForce" if name.startswith("rtx") else "card"
    return Card(0, f"{brand} unheard of", capability), CardFacts(
        memory=sizes.parse(gpu.memory.value), multiprocessors=int(gpu.multiprocessors.value), clock=gpu.clock.value,
        memory_clock=gpu.memory_bandwidth.value * 8 / bus / 2, bus=bus, l2=sizes.parse(gpu.l2.value),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["rtx3060", "rtx4090", "a100", "t4", "a10", "l4"])
def test_a_card_by_its_facts_is_the_profile_that_a_person_wrote(name):
    found, known = profile(*facts_of(name)), costs.gpu(name)
    assert "unheard of" in found.title
    for field in (
        "peak_flops",
        "memory_bandwidth",
        "float16_flops",
        "tf32_flops",
        "link_out",
        "gemm",
        "fast",
        "tensor",
    ):
        mine, written = getattr(found, field), getattr(known, field)
        assert (mine is None) == (written is None), field
        assert mine is None or mine.value == pytest.approx(written.value, rel=0.01), field
    assert sizes.parse(found.memory.value) == sizes.parse(known.memory.value) and found.host_memory is None


def test_a_known_card_has_its_profile_and_its_own_memory():
    _, facts = facts_of("rtx3060")
    found = profile(Card(0, "NVIDIA GeForce RTX 3060", (8, 6)), facts.__class__(**{**vars(facts), "memory": 8 * GiB}))
    assert found.title == costs.gpu("rtx3060").title and sizes.parse(found.memory.value) == 8 * GiB


def test_a_card_that_shares_the_cpu_s_memory_has_half_of_it():
    found = profile(Card(0, "Orin", (8, 7)), CardFacts(32 * GiB, 16, 1.3e9, 3.2e9, 256, 4 << 20, shared=True))
    assert sizes.parse(found.memory.value) == sizes.parse(found.host_memory.value) == 16 * GiB
    assert found.pcie is None and found.link_out.value < found.memory_bandwidth.value / 2
    assert found.float16_flops.value == pytest.approx(costs.gpu("orin").float16_flops.value, rel=0.01)
    assert found.duplex_in.value == costs.gpu("orin").duplex_in.value < costs.gpu("rtx3060").duplex_in.value


def test_a_card_without_tensor_cores():
    found = profile(Card(0, "NVIDIA GeForce GTX 1080", (6, 1)), CardFacts(8 * GiB, 20, 1.733e9, 5.0e9, 256, 2 << 20))
    assert found.float16_flops is found.tf32_flops is None
    assert found.peak_flops.value == pytest.approx(8.87e12, rel=0.01) and found.link_out.value == 12.8e9
    assert (
        profile(Card(0, "NVIDIA GeForce GTX 1660", (7, 5)), CardFacts(6 * GiB, 22, 1.8e9, 4e9, 192, 1)).float16_flops
        is None
    )


@pytest.mark.slow
@needs_gcc
@no_driver
@pytest.mark.parametrize(
    ("card", "title"),
    [("NVIDIA GeForce RTX 3060", "GeForce RTX 3060 (Ampere, 2021)"), ("NVIDIA Q9", "NVIDIA Q9 (compute")],
)
def test_gpu_here_asks_the_driver(driver, card, title):  # noqa: F811
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    env |= {"LD_LIBRARY_PATH": str(driver), "PYTHONPATH": str(ROOT), "FAKE_CUDA": "0,13000,1,86", "FAKE_CARD": card}
    command = [sys.executable, "-m", "minidnn", "plan", "lenet", "--gpu", "here"]
    run = subprocess.run([*command, "--json"], env=env, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["device"] == "here" and found["origin"] == "profile" and found["rows"][0]["fits"]
    run = subprocess.run([*command, "--budget", "9GiB"], env=env, capture_output=True, text=True, cwd=ROOT)
    assert f"Simulated on {title}" in run.stdout and "from the profile here" in run.stdout
