"""Layrub: what it decides, what the proof says to it, and what must fail the proof instead of training wrongly."""

from __future__ import annotations

import random

import pytest

from minidnn.layers import FACTS
from minidnn.memory.budget import BudgetError
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import Plan, complete, in_place_sharing
from minidnn.memory.planning import arrange
from minidnn.memory.policies.papers.layrub import layrub, layrub_intra, over_activations
from minidnn.memory.proof.verify import ScheduleError, verify
from minidnn.memory.schedule import Buffer, Compute, Offload, Prefetch, Residency, Wait
from minidnn.optimizers import SGD
from minidnn.program import Role, Tensor
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn.zoo import load
from tests.support.mutate import mutate
from tests.support.oracle import broken
from tests.support.paths import NET_FILES, SMALL_NETS
from tests.support.programs import PROGRAMS, chain, costs, random_graph, wild_graph

POLICIES = ["layrub:m", "layrub_intra:m", "layrub_inter:m", "layrub:p", "layrub_2018:m", "layrub_2018_inter:m"]


def real(net: str, facts: str = "layrub", updates: bool = False):
    """The TRAIN program of one of tests/support/nets."""
    train = TrainSpec(SGD(momentum=0.9)) if updates else None
    return programs(load(NET_FILES / f"{net}.yaml"), train, ("TRAIN",), facts=FACTS[facts])["TRAIN"]


def planned(program, **fields):
    return place(lower(program, complete(program, costs(), Plan(**fields))))


def scheduled(program, policy="layrub:m"):
    return arrange([program], policy, costs()).schedules["TRAIN"]


# ---- the proof


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("make", [*PROGRAMS.values(), *(lambda seed=seed: random_graph(seed) for seed in range(6))])
def test_proved_and_the_oracle_agrees(make, policy):
    assert broken(scheduled(make(), policy)) is None


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("facts", ["default", "layrub"])
@pytest.mark.parametrize("net", SMALL_NETS)
def test_proved_on_nets_with_updates(net, facts, policy):
    s = scheduled(real(net, facts, updates=True), policy)
    assert s.live_peak <= s.arena


@pytest.mark.slow
def test_what_breaks_a_schedule_with_blocks_is_refused():
    r = random.Random(2018)
    schedules = [scheduled(make(), policy) for make in PROGRAMS.values() for policy in ("layrub:m", "layrub_inter:m")]
    caught = 0
    while caught < 300:
        m = mutate(r.choice(schedules), r)
        if broken(m) is None:
            continue
        with pytest.raises(ScheduleError):
            verify(m)
        caught += 1


def test_data_gradient_before_filter_gradient_fails_the_proof():
    """Section 3.1: with aliasing, the gradient of an activation is written over what the filter's gradient reads."""
    p = real("chain")
    share = layrub_intra(p, costs(), 0).share
    filters = [op for op in p.ops if op.kind.endswith("backward_filter")]
    op = next(op for op in filters if any(target == op.reads[0] for target in share.values()))
    ops = list(p.ops)
    data = next(o for o in ops if o.name == f"{op.layer}.backward_data")
    assert share[data.writes[0]] == op.reads[0]
    verify(planned(p, share=share))
    ops.remove(data)
    ops.insert(ops.index(op), data)
    verify(planned(p, share=in_place_sharing(p), order=tuple(ops)))  # nothing is wrong with the order as such
    x, dx = op.reads[0].name, data.writes[0].name
    with pytest.raises(ScheduleError, match=rf"instruction \d+: {op.name} reads {x}, but its bytes hold {dx}"):
        verify(planned(p, share=share, order=tuple(ops)))


def test_without_the_mask_a_gradient_over_a_relu_in_place_fails_the_proof():
    masked, plain = real("residual", "layrub"), real("residual", "default")
    over = over_activations(masked, in_place_sharing(masked), held=True)
    dx, y = next((a.name, b.name) for a, b in over.items() if a.name == "r1a.y.grad")
    relu = next(op for op in plain.ops if op.name == "r1a.backward")
    named = {t.name: t for t in plain.tensors}
    assert over_activations(plain, in_place_sharing(plain), held=True).get(named[dx]) != named[y], "nobody chooses it"
    with pytest.raises(ScheduleError, match=rf"{relu.name} reads {y}, but its bytes hold {dx}"):
        verify(planned(plain, share={**in_place_sharing(plain), named[dx]: named[y]}))


# ---- what it decides


def test_intra_takes_the_activations_bytes_and_nothing_else_for_gradients():
    p = real("chain")
    base = arrange([p], "baseline_caffe:m", costs()).schedules["TRAIN"]
    s = scheduled(p, "layrub_intra:m")
    over = {a.name: b.name for a, b in s.plan.share.items() if b.role is Role.ACTIVATION and a.role is Role.GRADIENT}
    assert over
    assert all(a.startswith(b) for a, b in over.items()), "each gradient over its own activation"
    maps = frozenset({Role.ACTIVATION, Role.GRADIENT})
    assert len(set(s.curve(maps).tolist())) == 1, "all is there for the whole step, as in Caffe"
    saved = sum(t.nbytes for t in p.tensors if t.name in over and t not in in_place_sharing(p))
    assert base.curve(maps).max() - s.curve(maps).max() == saved > 0
    assert not any(isinstance(x, Offload) and x.residency.tensor.role is Role.ACTIVATION and x.residency.tensor.size > 1
                   for x in s.instructions)  # fmt: skip


def at(s, kind, name):
    return next(
        i
        for i, x in enumerate(s.instructions)
        if isinstance(x, kind) and (x.op.name if isinstance(x, Compute) else x.residency.tensor.name) == name
    )


def test_a_map_leaves_beside_the_layer_behind_its_last_consumer_and_comes_back_one_layer_ahead():
    s = scheduled(chain(5), "layrub_inter:m")
    # conv1 is the last consumer of relu0.y; conv2 and relu2 are the next main layer
    out, back = at(s, Offload, "relu0.y"), at(s, Prefetch, "relu0.y")
    assert at(s, Compute, "relu1.forward") < out < at(s, Compute, "conv2.forward")
    barrier = next(
        i for i, x in enumerate(s.instructions) if isinstance(x, Wait) and (x.stream, x.on) == ("compute", out)
    )
    assert at(s, Compute, "relu2.forward") < barrier < at(s, Compute, "conv3.forward")
    # conv1's backward wants it: it comes beside that of conv2, and compute waits for it behind that
    assert at(s, Compute, "relu3.backward.0") < back < at(s, Compute, "relu2.backward.0")
    arrival = next(
        i for i, x in enumerate(s.instructions) if isinstance(x, Wait) and (x.stream, x.on) == ("compute", back)
    )
    assert at(s, Compute, "conv2.backward_data.0") < arrival < at(s, Compute, "relu1.backward.0")


def test_the_host_has_the_batch_and_the_last_maps_stay():
    s = scheduled(chain(5))
    out = {x.residency.tensor.name for x in s.instructions if isinstance(x, Offload)}
    back = [x.residency.tensor.name for x in s.instructions if isinstance(x, Prefetch)]
    assert "data" not in out and back.count("data") == 2
    assert "relu0.y" in out and not {"pool.y", "fc.y"} & out
    assert out - {"loss"} == set(back) - {"data"}, "what leaves comes back"


@pytest.mark.parametrize("policy", ["layrub:m", "layrub_inter:m"])
def test_the_blocks_of_a_deeper_net_are_the_same(policy):
    few, many = ({b.name: b.nbytes for b in scheduled(chain(n), policy).buffers if b.name} for n in (6, 24))
    assert few == many and len(few) >= 3
    used = [b for b in scheduled(chain(24), policy).buffers if b.name]
    assert min(len(b.residencies) for b in used) > 4, "all of them are taken in turns"


def test_the_hybrid_leaves_the_fetched_bytes_to_the_gradient():
    program = real("residual")
    inter, hybrid = (scheduled(program, policy) for policy in ("layrub_inter:m", "layrub:m"))
    assert hybrid.arena < inter.arena
    fetched = {s.tensor for b in hybrid.buffers if b.name for s in b.residencies if s.arrives}
    assert any(target in fetched for dx, target in hybrid.plan.share.items() if dx.name.endswith(".grad"))
    alone = [
        b for b in hybrid.buffers if b.residencies and b.residencies[0].tensor.role is Role.GRADIENT and not b.name
    ]
    assert not alone, "all gradients of maps lie in blocks"


def test_masks_and_indices_travel_too_in_blocks_of_their_own():
    s = scheduled(real("chain"))
    kept = {residency.tensor.name for b in s.buffers if b.name.startswith("kept") for residency in b.residencies}
    assert {"relu1.mask", "pool1.index", "relu2.mask"} <= kept and "conv1.y" not in kept
    assert "relu1.mask" in {x.residency.tensor.name for x in s.instructions if isinstance(x, Offload)}


def test_bytes_that_many_share_are_called_by_the_ends():
    b = Buffer(4, 0, 9)
    b.residencies += [Residency(Tensor(f"t{i}", (1,)), 0, i, i + 1) for i in range(9)]
    assert b.label == "t0=t1=(6 more)=t8"
    b.residencies.pop()
    assert b.label == "t0=t1=t2=t3=t4=t5=t6=t7"


def test_gradients_of_parameters_are_held():
    p = real("chain", updates=True)
    gradients = {t for t in p.tensors if t.role is Role.PARAM_GRADIENT}
    assert gradients and gradients <= scheduled(p).plan.hold


def test_a_budget_changes_nothing_and_is_refused_with_what_it_takes():
    whole = arrange([chain(5)], "layrub:m", costs())
    assert str(arrange([chain(5)], "layrub:m", costs(), whole.arena).schedules["TRAIN"]) == str(
        whole.schedules["TRAIN"]
    )
    with pytest.raises(BudgetError) as refused:
        arrange([chain(5)], "layrub:m", costs(), whole.arena - 1)
    assert refused.value.smallest == refused.value.needed == whole.arena


def test_a_program_without_backward_moves_only_what_it_must():
    program = programs(load(NET_FILES / "residual.yaml"), None, ("TEST",))["TEST"]
    plan = complete(program, costs(), layrub(program, costs(), 0))
    assert {t.tensor for t in plan.offloads} == {*program.inputs, *program.outputs}


@pytest.mark.parametrize("policy", ["layrub:m", "layrub_intra:m"])
def test_a_gradient_that_a_later_layer_updates_in_place_has_its_bytes_by_then(policy):
    """It takes those of an activation where it is first written, or none: there that may still be read."""
    program = wild_graph(20417250, 3)
    by_name = {t.name: t for t in program.tensors}
    dy, x = by_name["dropout2.y.grad"], by_name["dropout0.y"]
    first, update = (op for op in program.ops if dy in op.writes)
    assert update.layer == "dropout2" and by_name["dropout2.y"] in first.reads
    s = arrange([program], policy, costs()).schedules["TRAIN"]  # proved
    assert s.plan.share[by_name["dropout2.y"]] == x and s.plan.share.get(dy) != x
    assert broken(s) is None
