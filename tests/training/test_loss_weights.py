"""Nets whose losses are the sums of any tops: as of Caffe, under every policy, in 16 bits."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn.formats import HALF
from tests.support.paths import NET_FILES
from tests.support.policies import FEW
from tests.support.slow import quick_are
from tests.support.trains import train


@pytest.mark.parametrize("policy", quick_are(["vdnn_all:m"], [*FEW, "recompute_all:m"]))
def test_bit_identical_to_baseline(policy):
    suffix = "p" if policy.endswith((":p", "dyn")) else "m"
    want, losses, algorithms = train("weighted", "cpu", f"baseline:{suffix}")
    got, got_losses, got_algorithms = train("weighted", "cpu", policy, debug=True, delays=1e-3)
    assert got_algorithms == algorithms and got_losses == losses and got == want


def solver(net, **options):
    random = np.random.default_rng(7)
    data = random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)
    return minidnn.Solver(net, seed=3, data=data, base_lr=0.02, momentum=0.9, **options)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_the_loss_is_the_weighted_sum_of_all_elements(device):
    text = (NET_FILES / "weighted.yaml").read_text().replace("loss_weight: 0.001,", "")
    with solver(minidnn.Net.from_text(text), device=device, keep=["energy", "join", "loss"]) as s:
        first = s.step()
        sums = {name: float(np.sum(s.blobs[name], dtype=np.float64)) for name in ("energy", "join", "loss")}
        assert s.step(10).loss < first.loss
    assert first.loss == pytest.approx(0.0002 * sums["energy"] + 0.0001 * sums["join"] + sums["loss"], rel=1e-5)


@pytest.mark.parametrize("format", HALF)
def test_16_bits_train_nearly_as_float32_does(format):
    """Also with float16's scale, which multiplies the gradients of all losses alike."""
    ends = []
    for each in ("float32", format):
        options = {"minidnn": {"loss_scale": 512}}
        with solver(minidnn.load(NET_FILES / "weighted.yaml"), device="reference", format=each, **options) as s:
            s.step(4)
            ends.append(s.params["left"]["w"])
    moved = np.abs(ends[0]).max()
    assert np.abs(ends[1] - ends[0]).max() < 0.03 * moved
