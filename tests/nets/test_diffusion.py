"""A diffusion model learns to tell noise, which every batch has anew; and with the same bytes under every policy."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn.training.feed import Filled
from minidnn.zoo.diffusion import DDPM

SIZES = dict(batch=16, size=8, channels=16, multipliers=(1, 2), blocks=1, attended=4, groups=4, times=100)
SMALL = dict(batch=2, channels=8)


def trained(steps, policy="liveness", device="cpu", **sizes):
    """(losses, the values at the end)"""
    options = dict(device=device, policy=policy, type="Adam", base_lr=0.003, max_iter=steps, seed=1)
    with minidnn.Solver(DDPM(**SIZES | sizes), **options) as solver:
        losses = [solver.step().loss for _ in range(steps)]
        return losses, {name: value.tobytes() for name, value in solver.values().items()}


@pytest.mark.slow
def test_it_learns_to_tell_noise():
    losses, _ = trained(50, dropout=0.0)
    assert losses[0] == pytest.approx(1, abs=0.1), "at first it tells no noise: the mean square of a normal number"
    assert np.mean(losses[-10:]) < 0.75


def test_each_batch_has_times_and_noise_of_its_own():
    graph = DDPM(**SIZES).graph("TRAIN")
    drawn = [list(Filled.of(graph, graph["drawn"], 1).values(None, 16 * i).values()) for i in range(60)]
    times, noises = (np.stack(values) for values in zip(*drawn, strict=True))
    assert times.dtype == np.int32 and 0 <= times.min() < 3 and 97 <= times.max() < 100
    assert len({values.tobytes() for values in noises}) == len({values.tobytes() for values in times}) == 60
    assert (noises.mean(), noises.std()) == pytest.approx((0, 1), abs=0.01)


@pytest.mark.slow
def test_every_policy_trains_the_same_bytes():
    want = trained(2, "baseline", **SMALL)
    for policy in ("recompute_all", "vdnn_all"):
        assert trained(2, policy, **SMALL) == want


@pytest.mark.slow
def test_the_reference_trains_alike():
    ours, theirs = (trained(2, device=device, **SMALL)[0] for device in ("cpu", "reference"))
    assert ours == pytest.approx(theirs, rel=1e-5)
