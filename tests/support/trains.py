"""Small nets trained for a few steps: the bytes of their values at the end, their losses and their algorithms."""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

import minidnn
from minidnn.backends import open_device
from tests.support.cuda.fake import fake_device
from tests.support.paths import NET_FILES

STEPS = 3
opened = cache(open_device)  # it makes the recipes of an op once
loaded = cache(minidnn.load)


def noise() -> tuple[np.ndarray, np.ndarray]:
    """24 images of noise, and labels of 5 classes."""
    random = np.random.default_rng(7)
    return random.standard_normal((24, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 24).astype(np.int32)


def train(net, device, policy, **options):
    parameters = dict(
        base_lr=0.02, momentum=0.9, weight_decay=5e-4, lr_policy="step", gamma=0.5, stepsize=2, max_iter=9
    )
    with minidnn.Solver(
        loaded(NET_FILES / f"{net}.yaml"),
        policy=policy,
        device=opened(device),
        seed=3,
        data=noise(),
        **parameters,
        **options,
    ) as solver:
        before = {name: array.copy() for name, array in solver.values().items()}
        losses = []
        for _ in range(STEPS):
            losses.append(solver.step().loss)
            if "test_data" in options:
                losses += solver.test().outputs.values()
        values = solver.values()
        algorithms = {op.name: a for op, a in solver.arrangement.schedules["TRAIN"].plan.algorithm.items()}
    assert all(np.isfinite(losses))
    changed = sum(not np.array_equal(before[name], values[name]) for name in values)
    assert changed > len(values) * 0.8, "training changes the weights"
    return {name: array.tobytes() for name, array in values.items()}, losses, algorithms


@lru_cache
def baseline(net, device, algorithms, fuse=True):
    return train(net, device, f"baseline:{algorithms}", fuse=fuse)


def held_out():
    random = np.random.default_rng(8)
    return random.standard_normal((12, 3, 12, 12)).astype(np.float32), random.integers(0, 5, 12).astype(np.int32)


def train_on_cuda(net: str, format: str, policy: str, device: str = "") -> dict[str, np.ndarray]:
    """The values after STEPS steps of `train`'s data, on an imitation of CUDA, or else on this device."""
    options = dict(policy=policy, format=format, seed=3, data=noise(), base_lr=0.02, momentum=0.9, max_iter=STEPS)
    with minidnn.Solver(loaded(NET_FILES / f"{net}.yaml"), device=device or fake_device(), **options) as solver:
        solver.step(STEPS)
        return {name: array.copy() for name, array in solver.values().items()}
