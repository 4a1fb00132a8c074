"""Double-buffered inputs: the device has them when the step begins, each in one of two places, whatever the policy."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.reference import ReferenceDevice
from minidnn.costs import estimate
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.machine import Machine
from minidnn.memory.planning import arrange
from minidnn.memory.policies import plan_file
from minidnn.memory.schedule import Offload, Prefetch, aligned
from minidnn.optimizers import SGD
from minidnn.program import Role
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.zoo import load
from tests.support.paths import NET_FILES, SMALL_NETS
from tests.support.policies import EVERY, FEW
from tests.support.slow import extended_are, usual_are

SPEC = TrainSpec(SGD(momentum=0.9, weight_decay=5e-4), seed=1, iter_size=2)
TURNS = ["ACCUMULATE", "TRAIN", "ACCUMULATE", "TEST", "TRAIN", "TEST", "ACCUMULATE", "TRAIN"]


def made(net: str, device=None):
    fuses = device.fuses if device is not None else None
    return list(
        programs(load(NET_FILES / f"{net}.yaml"), SPEC, ("TRAIN", "TEST"), fuses=fuses, double_buffered=True).values()
    )


def write(machine: Machine, name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    for t in machine.loaded[name].schedule.program.inputs:
        value = random.standard_normal(t.shape) if t.role is Role.INPUT else np.zeros(t.shape)
        if t.role is not Role.INPUT:  # for half of the batches: another class and rate, and mirrored samples
            value[..., -1] = (0.01 if t.name == "rate" else 1) * (seed % 2)
        machine.write(t, value, name)


def trained(net: str, arrangement, device) -> dict[str, bytes]:
    """What is persistent, and each step's outputs, after some steps of all programs. A batch is written during a
    step."""
    with Machine(device, arrangement, debug=True, delays=1e-3) as m:
        weights = load(NET_FILES / f"{net}.yaml").initial(seed=1)
        for t in m.persistent:
            m.set(t, weights[t.name].reshape(t.shape) if t.name in weights else np.zeros(t.shape, t.dtype))
        found = {}
        write(m, TURNS[0], 0)
        for k, name in enumerate(TURNS):
            following = TURNS[(k + 1) % len(TURNS)]
            m.step(name, meanwhile=lambda k=k, following=following: write(m, following, k + 1))
            found |= {f"{k} {t.name}": m.read(t, name).tobytes() for t in arrangement.schedules[name].program.outputs}
        return found | {t.name: m.get(t).tobytes() for t in m.persistent}


@pytest.mark.parametrize(
    "policy", usual_are(["vdnn_all:m"], ["baseline:m", *FEW, "superneurons_memory:p", "sqrt_n:p", "vdnn_pp:m"])
)
@pytest.mark.parametrize("net", usual_are(["residual"], ["residual", "inception"]))
def test_policies_train_to_the_same_bytes_as_with_offloads(net, policy):
    device = ReferenceDevice()
    early, costs = made(net, device), estimate(device)
    assert [bool(p.double_buffered) for p in early] == [True, True, False]
    late = arrange([p.synchronous_inputs() for p in early], "baseline:m", costs)
    assert trained(net, arrange(early, policy, costs), device) == trained(net, late, device)


@pytest.mark.parametrize("policy", extended_are(["best"], EVERY))
@pytest.mark.parametrize("net", usual_are(["lenet"], SMALL_NETS))
def test_they_have_two_places_and_make_no_offload(net, policy):
    """The proof is part of `arrange`."""
    for name, s in arrange(made(net), policy, estimate(ReferenceDevice())).schedules.items():
        early = s.program.double_buffered
        persistent = {b.residencies[0].tensor: b for b in s.buffers if b.persistent}
        assert all(persistent[t].nbytes == 2 * aligned(t.nbytes) for t in early), name
        assert not [x for x in s.instructions if isinstance(x, (Offload, Prefetch)) and x.residency.tensor in early]
        assert (early == set(s.program.inputs)) == (name != "TEST")


def test_a_budget_without_room_for_two_places_has_offloads(tmp_path):
    costs, early = estimate(ReferenceDevice()), made("lenet")
    late = [p.synchronous_inputs() for p in early]
    most, least = (arrange(p, "liveness:m", costs).arena for p in (early, late))
    assert least < most
    kept = arrange(early, "liveness:m", costs, most)
    assert kept.schedules["TRAIN"].program.double_buffered
    tight = arrange(early, "liveness:m", costs, most - 1)
    assert not any(s.program.double_buffered for s in tight.schedules.values())
    assert str(tight.schedules["TRAIN"]) == str(arrange(late, "liveness:m", costs, most - 1).schedules["TRAIN"])
    with pytest.raises(BudgetError) as refused:
        arrange(early, "liveness:m", costs, least - 1)
    assert refused.value.smallest == least


def test_a_plan_file_fits_both(tmp_path):
    """It was made for one of them. Its offload intervals of inputs do not matter where inputs are early."""
    costs, early = estimate(ReferenceDevice()), made("lenet")
    late = [p.synchronous_inputs() for p in early]
    for k, those in enumerate((early, late)):
        saved = tmp_path / f"{k}.plan"
        plan_file.save(saved, arrange(those, "vdnn_all:m", costs), costs)
        for other in (early, late):
            found = arrange(other, str(saved), costs).schedules["TRAIN"]
            assert str(found) == str(arrange(other, "vdnn_all:m", costs).schedules["TRAIN"])
