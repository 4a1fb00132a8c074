"""What lives on the host, the optimizer's state or weights, too: the same bytes as on the device under every policy."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest

import minidnn
from minidnn.backends import open_device
from minidnn.costs import estimate
from minidnn.errors import InvalidInput
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.trace import copied
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import Plan, complete
from minidnn.memory.policies import CHOOSING
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.optimizers import SGD
from minidnn.program import Role, nbytes
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from tests.support.policies import EVERY
from tests.support.slow import usual_are
from tests.support.trains import held_out, train

ADAM = dict(type="Adam", momentum2=0.99)
NET = "residual"


@lru_cache
def on_device(policy="liveness:m"):
    return train(NET, "cpu", policy, **ADAM)


FEW = "best", "liveness:m", "vdnn_all:m", "superneurons"


@pytest.mark.parametrize("policy", usual_are(FEW[1:], EVERY))
def test_every_policy_ends_with_the_same_bytes(policy):
    """Freed bytes are NaN, and copies are late at random."""
    found = train(NET, "cpu", policy, state="all", debug=True, delays=1e-3, **ADAM)
    assert found == on_device(policy if policy in CHOOSING else "liveness:m")


@pytest.mark.parametrize("policy", usual_are(FEW[1:], FEW))
def test_the_optimizer_s_state_alone(policy):
    found = train(NET, "cpu", policy, state="host", debug=True, delays=1e-3, **ADAM)
    assert found == on_device(policy if policy in CHOOSING else "liveness:m")


@pytest.mark.parametrize("device, policy", [("cpu", "vdnn_all:m"), ("reference", "recompute_all:m")])
def test_all_programs_of_a_net_find_it(device, policy):
    """ACCUMULATE and TEST, too."""
    options = dict(iter_size=2, test_data=held_out(), **ADAM)
    found = train(NET, device, policy, state="all", debug=True, delays=1e-3, **options)
    assert found == train(NET, device, "liveness:m", **options)


@pytest.mark.parametrize("options", [dict(host_ring="64KiB"), dict(host_ring="64KiB", compress=True)])
def test_a_ring_is_for_others(options):
    assert train(NET, "cpu", "vdnn_all:m", state="host", debug=True, **options, **ADAM) == on_device()


def lenet(state, type="Adam", **options):
    given = dict(base_lr=0.001, lr_policy="fixed", type=type, momentum=0.9, device="cpu", seed=3, batch=32)
    return minidnn.Solver(minidnn.load("digits_lenet"), state=state, **given | options)


def ends(solver):
    return {name: value.tobytes() for name, value in solver.values().items()}


def test_the_device_has_room_for_other_things():
    with lenet("device") as plain, lenet("host") as host_resident:
        program, other = host_resident.session.programs["TRAIN"], plain.session.programs["TRAIN"]
        state = nbytes(program.host_resident)
        assert state == nbytes(t for t in other.persistent if t.role is Role.STATE) > 0
        assert plain.arrangement.arena - host_resident.arrangement.arena > state / 2
        schedule = host_resident.arrangement.schedules["TRAIN"]
        moved = copied(schedule.instructions, schedule)
        assert moved["offload_bytes"] == moved["prefetch_bytes"] == state
        budget = host_resident.arrangement.arena
        plain.step(3)
        want = ends(plain)
    with pytest.raises(BudgetError):
        lenet("device", policy="liveness:p", budget=budget)
    with lenet("host", policy="best", budget=budget) as best:
        assert best.arrangement.arena <= budget
        best.step(3)
        assert ends(best) == want


@pytest.mark.parametrize(
    "type, first, then",
    [("SGD", "host", "device"), ("LAMB", "device", "host"), ("LAMB", "all", "device"), ("SGD", "host", "all")],
)
def test_a_run_goes_on_where_the_state_lives_elsewhere(type, first, then, tmp_path):
    options = dict(type=type, iter_size=2, snapshot_prefix=str(tmp_path / "run"), **(
        dict(momentum2=0.99, weight_decay=0.01) if type == "LAMB" else {}
    ))  # fmt: skip
    with lenet(first, **options) as solver:
        solver.step(2)
        path = solver.save().path
        solver.step(2)
        want = ends(solver)
    assert ends(solver) == want, "values stay readable when the solver is closed"
    with lenet(then, resume=path, **options) as again:
        again.step(2)
        assert ends(again) == want


def test_a_schedule_that_leaves_a_state_behind_is_refused():
    device = open_device("cpu")
    train_spec, net = TrainSpec(SGD(momentum=0.9)), minidnn.load("digits_lenet")
    (program,) = programs(net, train_spec, ("TRAIN",), fuses=device.fuses, state="host").values()
    costs = estimate(device)
    plan = complete(program, costs, Plan())
    schedule = place(lower(program, plan))
    verify(schedule)
    (leaving, *_) = [
        offload for offload in plan.offloads if offload.tensor in program.host_resident and offload.prefetch_at is None
    ]
    stays = replace(plan, offloads=tuple(offload for offload in plan.offloads if offload is not leaving))
    with pytest.raises(ScheduleError, match=r"does not have the final value of .*, which lives there"):
        verify(place(lower(program, stays)))


def test_a_place_that_does_not_exist_is_refused():
    with pytest.raises(InvalidInput, match="state: 'disk' is not one of device, host, all"):
        lenet("disk")
