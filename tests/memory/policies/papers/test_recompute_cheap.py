"""recompute_cheap: what runs again and what never does, what that saves, and that nothing is held longer for it."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn import zoo
from minidnn.costs import profile
from minidnn.memory.budget import BudgetError
from minidnn.memory.plan import in_place_sharing
from minidnn.memory.planning import arrange
from minidnn.memory.policies.papers.recompute_cheap import GIVEN_BACK, droppable
from minidnn.memory.policies.shared.recompute import Repeatable
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import PRODUCTS, Op, Pass, Program, Role, Tensor
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.programs.spec import TrainSpec
from minidnn.zoo import load
from tests.support.examples import examples
from tests.support.oracle import broken
from tests.support.programs import Builder, costs, wild_graph
from tests.support.slow import usual_are

MIB = 1 << 20
TRAIN = TrainSpec(SGD(momentum=0.9, weight_decay=5e-4))


@lru_cache
def program(name, batch, fuses=None):
    found = zoo.find(name, batch)
    return programs(found if isinstance(found, Net) else load(found, batch), TRAIN, ("TRAIN",), fuses=fuses)["TRAIN"]


@lru_cache
def planned(p, policy="recompute_cheap:m"):
    (s,) = arrange([p], policy, profile("titan_x")).schedules.values()
    return s


def again(s):
    """How often each op runs after its first time."""
    return Counter(s.plan.order) - Counter(s.program.ops)


# What remains of liveness' peak, at most. Most of it is what convolutions write, the weights and their momenta.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch", "left", "kinds"),
    [
        ("resnet50", 8, 0.52, {"batch_norm.forward", "scale.forward", "relu.forward", "eltwise.forward"}),
        ("resnet20", 64, 0.45, {"batch_norm.forward", "scale.forward", "relu.forward", "eltwise.forward"}),
        ("googlenet", 8, 0.77, {"concat.forward", "lrn.forward", "pooling.forward"}),
        ("vgg16", 4, 0.99, {"pooling.forward"}),
        pytest.param(
            "densenet121",
            2,
            0.33,
            {"batch_norm.forward", "scale.forward", "relu.forward", "concat.forward"},
            marks=pytest.mark.extended,
        ),
    ],
)
def test_cheap_layers_run_again_and_convolutions_never(name, batch, left, kinds):
    p = program(name, batch)
    s = planned(p)
    runs = again(s)
    assert kinds <= {op.kind for op in runs}
    assert not [op.name for op in runs if op.family in PRODUCTS or op.kind == "batch_norm.statistics"]
    assert s.live_peak <= left * planned(p, "liveness:m").live_peak


def test_what_was_fused_with_a_convolution_is_a_convolution():
    p = program("googlenet", 8, as_cuda)
    assert "convolution.forward_relu" in {op.kind for op in p.ops}
    runs = again(planned(p))
    assert runs and not [op.name for op in runs if op.family in PRODUCTS]


@pytest.mark.parametrize(("name", "batch"), [("lenet", 64), ("cifar10_quick", 100)])
def test_where_the_peak_is_a_gradients_nothing_runs_again(name, batch):
    """At the first pooling's backward. There is something to drop in the second net."""
    p = program(name, batch)
    s = planned(p)
    assert s.plan.order == p.ops
    assert bool(droppable(Repeatable(p, in_place_sharing(p)))) == (name == "cifar10_quick")


@pytest.mark.slow
@pytest.mark.parametrize("depth", usual_are([20], [20, 56, 110]))
def test_a_chain_of_cheap_layers_runs_about_once_and_is_not_all_held(depth):
    """The sums of a stage, of which resnet110 has 18: each is made of the one before it."""
    p = program(f"resnet{depth}", 16)
    s, able = planned(p), Repeatable(p, in_place_sharing(p))
    cheap = {op for op in able.maker.values() if op.family not in PRODUCTS}
    assert sum(again(s).values()) <= 1.1 * len(cheap)
    sums = sorted((t.nbytes for op in p.ops if op.kind == "eltwise.forward" for t in op.writes), reverse=True)
    of_stage = sum(sums[: len(sums) // 3])
    kept = sum(t.nbytes for t in p.persistent)
    kept += sum(t.nbytes for op in p.ops if op.kind == "convolution.forward" for t in op.writes)
    assert s.live_peak - kept < (1.2 if depth == 20 else 0.8 if depth == 56 else 0.55) * of_stage


@pytest.mark.slow
def test_the_cap_gives_little_back():
    p = program("resnet50", 8)
    s, whole = planned(p), planned(p, "liveness:m").live_peak
    able = Repeatable(p, in_place_sharing(p))
    dropped = {able.final(t) for t in droppable(able)}
    read = {t for op in p.ops[able.forward :] for t in op.reads}
    made = {t for op in p.ops[: able.forward] for t in op.writes if t in read and t not in able.later}
    outlive = sum(t.nbytes for t in {*p.persistent, *(made - dropped)})
    assert outlive < s.live_peak < outlive + (whole - outlive) * (1 / GIVEN_BACK + 0.08)


# ---- what is dropped


def dropped(p):
    return {t.name for t in droppable(Repeatable(p, in_place_sharing(p)))}


def test_nothing_outlives_forward_for_a_run():
    """Nobody in backward reads what the first convolution wrote: its pooling's is kept, and not made again of that."""
    a, b, c = (Tensor(name, (64,)) for name in "abc")
    data = Tensor("data", (64,), role=Role.INPUT)
    w, v = Tensor("w", (4,), role=Role.PARAM), Tensor("v", (4,), role=Role.PARAM)
    loss = Tensor("loss", (1,))
    dc, db, dv = (Tensor(f"d{x.name}", x.shape, role=Role.GRADIENT) for x in (c, b, v))

    def made(*saved):
        dx = Tensor("da", a.shape, role=Role.GRADIENT)
        ops = (
            Op("conv.forward", "convolution.forward", "conv", Pass.FORWARD, (data, w), (a,)),
            Op("pool.forward", "pooling.forward", "pool", Pass.FORWARD, (a,), (b,)),
            Op("ip.forward", "inner_product.forward", "ip", Pass.FORWARD, (b, v), (c,)),
            Op("loss.forward", "loss.forward", "loss", Pass.LOSS, (c,), (loss,)),
            Op("loss.backward", "loss.backward", "loss", Pass.BACKWARD, (c,), (dc,)),
            Op("ip.backward_filter", "inner_product.backward_filter", "ip", Pass.BACKWARD, (b, dc), (dv,)),
            Op("ip.backward_data", "inner_product.backward_data", "ip", Pass.BACKWARD, (v, dc), (db,)),
            Op("pool.backward", "pooling.backward", "pool", Pass.BACKWARD, (*saved, db), (dx,)),
            Op("conv.backward_filter", "convolution.backward_filter", "conv", Pass.BACKWARD, (data, dx), (dw,)),
        )  # fmt: skip
        return Program("TRAIN", ops, (data,), (w, v, dw, dv), (loss,))

    dw = Tensor("dw", w.shape, role=Role.PARAM_GRADIENT)
    assert dropped(made()) == set()
    assert dropped(made(a)) == {"b"}


def test_nothing_is_held_longer_in_backward_for_a_run():
    """`early` is made of a map that backward is done with before it needs `early`; `late` is not."""
    b = Builder()
    stem = b.add("stem", "convolution", "data")
    early = b.add("early", "scale", stem)
    first = b.add("first", "convolution", early)
    second = b.add("second", "convolution", stem)
    late = b.add("late", "scale", second)
    third = b.add("third", "convolution", late)
    b.add("fc", "inner_product", b.add("join", "eltwise", first, third), size=4)
    p = b.program()
    scales = {"early.y", "late.y"}
    assert dropped(p) & scales == scales
    # scale.backward reads x in that program: without it, `stem.y` is read last for `second`, which comes before `first`
    ops = tuple(
        Op(op.name, op.kind, op.layer, op.during, op.reads[-1:], op.writes) if op.kind == "scale.backward" else op
        for op in p.ops
    )
    bare = Program(p.name, ops, p.inputs, p.persistent, p.outputs, p.layers)
    assert dropped(bare) & scales == set()


def test_what_a_weight_made_is_made_again_of_that_weight():
    """A Scale's gamma is updated as soon as its gradient is there: nothing is made again of the new one."""
    p = program("resnet20", 8)
    s = planned(p)
    changed = set()
    for op in s.plan.order:
        if op in again(s):
            assert not changed.intersection(op.reads)
        if op.during is Pass.UPDATE:
            changed.update(op.writes)
    assert any(t.name.startswith("scale") for t in changed)


# ---- any program


@given(st.integers(0, 1 << 30), st.integers(2, 14))
@examples(40)
def test_any_wild_graph_is_right_and_holds_no_more_than_liveness(seed, layers):
    p = wild_graph(seed, layers)
    s = arrange([p], "recompute_cheap:m", costs()).schedules["TRAIN"]
    assert broken(s) is None
    assert s.live_peak <= arrange([p], "liveness:m", costs(), proof=False).schedules["TRAIN"].live_peak
    assert not [op.name for op in again(s) if op.family in PRODUCTS]


def test_a_budget_is_refused_with_the_smallest_that_it_keeps():
    p = program("resnet20", 8)
    with pytest.raises(BudgetError, match="the smallest budget recompute_cheap:m can keep is") as refused:
        arrange([p], "recompute_cheap:m", profile("titan_x"), MIB)
    smallest = refused.value.smallest
    assert arrange([p], "recompute_cheap:m", profile("titan_x"), smallest).arena <= smallest
    with pytest.raises(BudgetError):
        arrange([p], "recompute_cheap:m", profile("titan_x"), smallest - 1)


def test_forward_alone_is_as_it_was():
    p = programs(load(zoo.find("lenet"), 4), None, ("TEST",))["TEST"]
    assert planned(p).plan.order == p.ops
