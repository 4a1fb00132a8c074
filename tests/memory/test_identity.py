"""The promise: with the same algorithm per op, every policy trains to the same bytes, on every device.

Freed bytes are poisoned with NaN, the copies run on real threads and are delayed at random."""

from __future__ import annotations

from functools import lru_cache

import pytest

from minidnn.memory.budget import BudgetError
from tests.support.paths import SMALL_NETS
from tests.support.policies import ABOUT, EVERY, KINDS, TIGHT, TRAINED
from tests.support.slow import quick_are, usual_are, usual_pairs
from tests.support.trains import STEPS, baseline, held_out, train

ON_REFERENCE = ["residual", "inception"]  # the machine is the same there; the other nets show it on cpu
OTHERS = [("cpu", net) for net in SMALL_NETS if net != "residual"] + [("reference", net) for net in ON_REFERENCE]


@pytest.mark.parametrize(
    ("device", "net", "policy"),
    [("cpu", "residual", policy) for policy in TRAINED]
    + usual_pairs([pytest.param(*other, marks=pytest.mark.slow) for other in OTHERS], TRAINED),
)
def test_bit_identical_to_baseline(device, net, policy):
    want, losses, algorithms = baseline(net, device, "p" if policy.endswith((":p", "dyn")) else "m")
    got, got_losses, got_algorithms = train(net, device, policy, debug=True, delays=2e-3)
    assert got_algorithms == algorithms, "compared with the same algorithms"
    assert got_losses == losses
    assert [name for name in want if want[name] != got[name]] == []


@pytest.mark.parametrize(("policy", "net"), ABOUT.items())
def test_policies_that_are_about_some_nets_are_bit_identical_to_baseline(policy, net):
    want, losses, algorithms = baseline(net, "cpu", "m")
    got, got_losses, got_algorithms = train(net, "cpu", f"{policy}:m", debug=True, delays=2e-3)
    assert got_algorithms == algorithms, "compared with the same algorithms"
    assert got_losses == losses and got == want


@pytest.mark.parametrize("policy", ["vdnn_all:m", "layrub:m", "recompute_all:m", "sqrt_n:m"])
def test_every_function_of_elements_is_bit_identical_to_baseline(policy):
    """Under the smallest budget, on a net with each type of activation."""
    with pytest.raises(BudgetError) as refused:
        train("activations", "cpu", policy, budget=1)
    want, losses, algorithms = baseline("activations", "cpu", "m")
    smallest = refused.value.smallest
    got, got_losses, got_algorithms = train("activations", "cpu", policy, debug=True, delays=2e-3, budget=smallest)
    assert got_algorithms == algorithms, "compared with the same algorithms"
    assert got_losses == losses and got == want


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "policy", "net"),
    usual_pairs([pytest.param("reference", "liveness:m"), pytest.param("cpu", "layrub:m")], SMALL_NETS),
)
def test_a_mask_in_relus_stead_changes_no_number(device, net, policy):
    """Also below a Dropout that works in place (chain, inception). Under these facts nothing is fused."""
    want, losses, _ = baseline(net, device, "m", fuse=False)
    got, got_losses, _ = train(net, device, policy, facts="layrub", debug=True, delays=2e-3)
    assert got_losses == losses and got == want


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "net", "policy"),
    [
        *usual_pairs(["cpu"], SMALL_NETS, TIGHT),
        ("reference", "residual", TIGHT[0]),
        pytest.param("reference", "inception", TIGHT[0], marks=pytest.mark.extended),
    ],
)
def test_bit_identical_under_the_smallest_budget(device, net, policy):
    with pytest.raises(BudgetError) as refused:
        train(net, device, policy, budget=1)
    want, losses, algorithms = baseline(net, device, policy[-1])
    got, got_losses, got_algorithms = train(net, device, policy, debug=True, delays=2e-3, budget=refused.value.smallest)
    assert got_algorithms == algorithms, "compared with the same algorithms"
    assert got_losses == losses
    assert [name for name in want if want[name] != got[name]] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "policy", "compress"),
    usual_pairs(SMALL_NETS, [pytest.param(p, c) for p in ("vdnn_all:p", "vdnn_conv:m") for c in (False, True)]),
)
def test_bit_identical_through_a_pinned_ring(net, policy, compress):
    """A ring for the largest that travels: each tensor's bytes in it are another's soon after."""
    with pytest.raises(BudgetError) as refused:
        train(net, "cpu", policy, host_ring=1, compress=compress)
    want, losses, _ = baseline(net, "cpu", policy[-1])
    ring = dict(host_ring=refused.value.smallest, compress=compress)
    got, got_losses, _ = train(net, "cpu", policy, debug=True, delays=2e-3, **ring)
    assert got_losses == losses and got == want


@lru_cache
def baseline_between_tests():
    return train("inception", "reference", "baseline:m", clip_gradients=0.5, iter_size=2, test_data=held_out())


@pytest.mark.parametrize(
    "policy",
    quick_are(["vdnn_all:m", "layrub:m"], [policy for policy in EVERY if policy in KINDS])
    + usual_are([], [policy for policy in EVERY if policy not in KINDS]),
)
def test_bit_identical_with_clipping_accumulation_and_tests_between_under_the_smallest_budget(policy):
    """Every policy there is, three programs in one arena: on the reference, which has one algorithm per op."""
    options = dict(clip_gradients=0.5, iter_size=2, test_data=held_out())
    want, losses, algorithms = baseline_between_tests()
    with pytest.raises(BudgetError) as refused:
        train("inception", "reference", policy, budget=1, **options)
    smallest = refused.value.smallest
    got, got_losses, got_algorithms = train(
        "inception", "reference", policy, debug=True, delays=1e-3, budget=smallest, **options
    )
    assert got_algorithms == algorithms
    assert got_losses == losses and len(losses) > 2 * STEPS
    assert [name for name in want if want[name] != got[name]] == []


@pytest.mark.parametrize("net", ["chain", "residual"])
def test_bit_identical_with_clipping_and_accumulation(net):
    options = dict(clip_gradients=0.5, iter_size=2)
    want, losses, _ = train(net, "cpu", "baseline:m", **options)
    got, got_losses, _ = train(net, "cpu", "vdnn_all:m", debug=True, delays=2e-3, **options)
    assert got_losses == losses and got == want
