"""Ops in parts end with the bytes of whole ops, which take the algorithms that work part by part."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn.backends import open_device
from minidnn.costs import estimate
from minidnn.memory.budget import BudgetError
from minidnn.memory.policies.plan_file import save
from minidnn.training.comparison import restricted
from tests.support.paths import NET_FILES


def trained(net, device, policy, side=12, batch=6, **options):
    """(the bytes of all values, the losses, the arrangement) after three steps."""
    random = np.random.default_rng(7)
    data = random.standard_normal((4 * batch, 3, side, side)).astype(np.float32)
    labels = random.integers(0, 5, 4 * batch).astype(np.int32)
    with minidnn.Solver(
        net,
        policy=policy,
        device=device,
        seed=3,
        data=(data, labels),
        base_lr=0.02,
        momentum=0.9,
        max_iter=9,
        **options,
    ) as solver:
        losses = [solver.step().loss for _ in range(3)]
        return {name: a.tobytes() for name, a in solver.values().items()}, losses, solver.arrangement


def as_whole(net, device, arrangement, **sizes):
    """The same training by ops as a whole without a budget, and with the same algorithms part by part."""
    forced = restricted(estimate(open_device(device)), arrangement)
    assert forced is not None
    return trained(net, device, "baseline:p", costs=forced, **sizes)


CASES = [
    ("cpu", "residual", "liveness:m@2"),
    ("cpu", "chain", "vdnn_all:m@3"),
    ("cpu", "inception", "layrub:m@3"),
    ("cpu", "images", "liveness@2"),
    ("cpu", "shared", "vdnn_pp:m@6"),
    ("cpu", "activations", "superneurons@3"),
    ("cpu", "residual", "vdnn_all:m@3"),
    ("reference", "residual", "sqrt_n:p@2"),
    ("reference", "inception", "recompute_all:m@2"),
    ("reference", "nested", "liveness:p@6"),
]


@pytest.mark.parametrize(
    ("device", "net", "policy"), [CASES[0], *(pytest.param(*c, marks=pytest.mark.slow) for c in CASES[1:])]
)
def test_parts_end_with_the_bytes_of_the_whole(device, net, policy):
    file = NET_FILES / f"{net}.yaml"
    got, losses, arrangement = trained(minidnn.load(file), device, policy, debug=True, delays=1e-3)
    assert arrangement.schedules["TRAIN"].program.parts
    want, want_losses, whole = as_whole(minidnn.load(file), device, arrangement)
    assert not whole.schedules["TRAIN"].program.parts
    assert losses == want_losses
    assert [name for name in want if want[name] != got[name]] == []


@pytest.mark.parametrize("device", ["cpu", pytest.param("reference", marks=pytest.mark.slow)])
def test_batch_norms_that_are_not_fused_run_in_two_passes(device):
    """BatchNorm, Scale and ReLU one by one."""
    net = minidnn.load(NET_FILES / "residual.yaml")
    got, losses, arrangement = trained(net, device, "vdnn_all:m@2", debug=True, delays=1e-3, fuse=False)
    twice = {op.part.within.kind for op in arrangement.schedules["TRAIN"].program.ops if op.part and op.part.within}
    assert twice == {"batch_norm.forward", "batch_norm.backward"}
    want, want_losses, _ = as_whole(net, device, arrangement, fuse=False)
    assert losses == want_losses and got == want


@pytest.mark.parametrize("name", ["chain", pytest.param("residual", marks=pytest.mark.extended)])
def test_best_keeps_a_budget_that_is_refused_without_parts(name):
    """Real steps on the cpu, with freed bytes poisoned and copies delayed."""
    sizes = dict(side=64, batch=24)
    net = minidnn.load(NET_FILES / f"{name}.yaml").with_batch(24).with_images(64)
    with pytest.raises(BudgetError) as refused:
        trained(net, "cpu", "best@1", budget=1, **sizes)
    budget = refused.value.smallest * 3 // 4
    with pytest.raises(BudgetError):
        trained(net, "cpu", "best@1", budget=budget, **sizes)
    got, losses, arrangement = trained(net, "cpu", "best", budget=budget, debug=True, delays=1e-3, **sizes)
    assert arrangement.arena <= budget and arrangement.schedules["TRAIN"].program.parts
    want, want_losses, _ = as_whole(net, "cpu", arrangement, **sizes)
    assert losses == want_losses and got == want


def test_a_saved_plan_holds_its_parts(tmp_path):
    path = tmp_path / "chain.plan"
    net = minidnn.load(NET_FILES / "chain.yaml")
    got, losses, arrangement = trained(net, "cpu", "vdnn_all:m@3")
    save(path, arrangement, estimate(open_device("cpu")))
    again, losses_again, same = trained(net, "cpu", str(path))
    assert same.schedules["TRAIN"].program.parts == arrangement.schedules["TRAIN"].program.parts
    assert losses == losses_again and got == again


def test_a_snapshot_says_by_how_many_rows_sums_were_made(tmp_path):
    """So resuming in other parts says that last bits may differ, and the files of the same parts are the same."""
    data = np.zeros((12, 3, 12, 12), np.float32), np.zeros(12, np.int32)
    net = minidnn.load(NET_FILES / "chain.yaml")

    def solver(policy, **options):
        given = dict(device="reference", seed=1, data=data, base_lr=0.01, lr_policy="fixed", max_iter=2)
        return minidnn.Solver(net, policy=policy, **given, **options)

    def saved(policy, **options):
        with solver(policy, **options) as one:
            one.step()
            return one.save(tmp_path / policy.replace(":", "_")).path, one.arrangement

    path, arrangement = saved("vdnn_all:m@2")
    whole, _ = saved("baseline:p", costs=restricted(estimate(open_device("reference")), arrangement))
    assert path.read_bytes() == whole.read_bytes()
    with solver("liveness:m", resume=path) as one:
        (note,) = one.notes
        assert "'conv1.backward_filter': 'default/3'" in note and "last bits may differ" in note
        assert "forward" not in note, "rows have the same bytes"
    with solver("liveness:m@2", resume=path) as one:
        assert one.notes == []
