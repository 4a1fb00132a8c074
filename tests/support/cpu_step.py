"""A whole training step of a net file on the cpu without a solver, for tests that run it or count its allocations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minidnn.costs import Staging, estimate
from minidnn.memory.execution.machine import Machine
from minidnn.memory.planning import arrange
from minidnn.optimizers import SGD
from minidnn.program import Role
from minidnn.programs.autodiff import differentiate
from minidnn.programs.fusion import fused
from minidnn.programs.scalars import SCALE
from minidnn.programs.spec import TrainSpec
from minidnn.zoo import load
from tests.support.paths import NET_FILES


def machine(
    net: str, device, policy: str, format: str = "float32", fuse: bool = True, staging: Staging | None = None, **options
) -> Machine:
    """A machine with the net's initial weights and a batch of noise. fuse: whether ops are fused as the device can."""
    loaded = load(NET_FILES / f"{net}.yaml")
    spec = TrainSpec(SGD(momentum=0.9, weight_decay=5e-4), seed=1, loss_scale=256)  # so small that no step is skipped
    program = differentiate(loaded.graph("TRAIN", format=format), train=spec)
    program = fused(program, device.fuses if fuse else None)
    costs = replace(estimate(device), staging=staging)
    made = Machine(device, arrange([program], policy, costs), **options)
    weights = loaded.initial(seed=1)
    for t in program.persistent:
        zero = np.zeros(t.shape, t.dtype)
        zero[:1] = spec.loss_scale if t == SCALE else 0
        made.set(t, weights[t.name].reshape(t.shape) if t.name in weights else zero)
    feed(made)
    return made


def feed(made: Machine, iteration: int = 0) -> None:
    """Write a batch of noise to the machine; it depends on the iteration alone."""
    random = np.random.default_rng(iteration)
    for t in made.arrangement.schedules["TRAIN"].program.inputs:
        if t.role == Role.CONTROL:
            value = np.full(t.shape, 0.01 if t.name == "rate" else iteration, t.dtype)
        elif t.dtype == "int32":
            value = random.integers(0, 5, t.shape).astype(t.dtype)
        else:
            value = random.standard_normal(t.shape).astype(t.dtype)
        made.write(t, value, "TRAIN")


def persistent(made: Machine) -> dict[str, np.ndarray]:
    program = made.arrangement.schedules["TRAIN"].program
    return {t.name: np.array(made.get(t)) for t in program.lasting}


def trained(net: str, device, policy: str, steps: int = 4, **options) -> dict[str, np.ndarray]:
    """What lasts of a net after so many steps, all of it finite. options: those of `machine`"""
    with machine(net, device, policy, **options) as m:
        for k in range(steps):
            feed(m, k)
            m.step("TRAIN")
        result = persistent(m)
    assert all(np.isfinite(v).all() for v in result.values())
    return result
