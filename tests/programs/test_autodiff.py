"""Differentiation: what ops a graph becomes, in which order; and that they compute the gradient, on any DAG."""

from __future__ import annotations

import sys
import zlib

import numpy as np
import pytest

from minidnn.backends.philox import keep_mask
from minidnn.layers import FACTS, Facts
from minidnn.optimizers import SGD
from minidnn.optimizers.squares import Blocks
from minidnn.program import Pass, Role
from minidnn.programs.autodiff import NotTrainable, differentiate
from minidnn.programs.spec import TrainSpec
from minidnn.programs.steps import ClipAttrs
from tests.support.graphs import graph, net, tensor
from tests.support.interpret import run, run_ops
from tests.support.paths import SMALL_NETS

DATA = """
- {name: data, type: Input, top: data, input_param: {shape: {dim: [4, 3, 6, 6]}}}
- {name: label, type: Input, top: label, input_param: {shape: {dim: 4}}}
"""
CONV = "convolution_param: {num_output: 3, kernel_size: 3, pad: 1}"
END = """
- {name: ip, type: InnerProduct, bottom: x, top: ip, inner_product_param: {num_output: 3}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
CHAIN = f"""{DATA}
- {{name: conv, type: Convolution, bottom: data, top: conv, {CONV}}}
- {{name: relu, type: ReLU, bottom: conv, top: conv}}
- {{name: pool, type: Pooling, bottom: conv, top: x, pooling_param: {{kernel_size: 2, stride: 2}}}}
{END}"""
RESIDUAL = f"""{DATA}
- {{name: stem, type: Convolution, bottom: data, top: a, {CONV}}}
- {{name: relu0, type: ReLU, bottom: a, top: a}}
- {{name: conv, type: Convolution, bottom: a, top: b, {CONV}}}
- {{name: sum, type: Eltwise, bottom: [b, a], top: x}}
- {{name: relu1, type: ReLU, bottom: x, top: x}}
{END}"""
FORK = f"""{DATA}
- {{name: stem, type: Convolution, bottom: data, top: a, {CONV}}}
- {{name: one, type: Convolution, bottom: a, top: b, {CONV}}}
- {{name: two, type: Convolution, bottom: a, top: c, {CONV}}}
- {{name: three, type: Convolution, bottom: a, top: d, {CONV}}}
- {{name: join, type: Concat, bottom: [b, c, d, a], top: x}}
{END}"""
# One gradient tensor stands for four: outer's top, inner, and a and b through a sum within a sum; a also forks.
SHARED = f"""{DATA}
- {{name: stem, type: Convolution, bottom: data, top: a, {CONV}}}
- {{name: left, type: Convolution, bottom: a, top: b, {CONV}}}
- {{name: inner, type: Eltwise, bottom: [a, b], top: i}}
- {{name: right, type: Convolution, bottom: a, top: c, {CONV}}}
- {{name: twice, type: Eltwise, bottom: [c, c], top: t}}
- {{name: outer, type: Eltwise, bottom: [i, a, t], top: x}}
{END}"""
TWO_LOSSES = f"""{DATA}
- {{name: stem, type: Convolution, bottom: data, top: x, {CONV}}}
- {{name: aux_ip, type: InnerProduct, bottom: x, top: aux_ip, inner_product_param: {{num_output: 3}}}}
- {{name: aux, type: SoftmaxWithLoss, bottom: [aux_ip, label], top: aux, loss_weight: 0.3}}
{END}
- {{name: accuracy, type: Accuracy, bottom: [ip, label], top: accuracy}}
"""
WEIGHTED = RESIDUAL.replace("name: stem,", "name: stem, loss_weight: 0.25,").replace(
    "name: sum,", "name: sum, loss_weight: -0.1,"
)
GRAPHS = {"chain": CHAIN, "residual": RESIDUAL, "fork": FORK, "shared": SHARED, "two losses": TWO_LOSSES}
GRAPHS |= {"weighted": WEIGHTED}
SPEC = TrainSpec(SGD(momentum=0.9, weight_decay=0.01))


def names(program, phase=None):
    return [op.name for op in program.ops if phase is None or op.during is phase]


def op(program, name):
    return next(o for o in program.ops if o.name == name)


def lines(program, *phases):
    return [
        f"{o.name}: {' '.join(t.name for t in o.reads)} -> {' '.join(t.name for t in o.writes)}"
        for o in program.ops
        if o.during in phases
    ]


# ---- what ops, in which order


def test_chain():
    program = differentiate(graph(CHAIN), train=TrainSpec(SGD(momentum=0.9)))
    assert program.name == "TRAIN"
    assert lines(program, *Pass) == [
        "conv.forward: data conv.w conv.b -> conv.y",
        "relu.forward: conv.y -> relu.y",
        "pool.forward: relu.y -> pool.y pool.index",
        "ip.forward: pool.y ip.w ip.b -> ip.y",
        "loss.forward: ip.y label -> loss.y loss.prob",
        "objective.forward: loss.y -> objective",
        "loss.backward: loss.prob label -> ip.y.grad",
        "ip.backward_filter: pool.y ip.y.grad -> ip.w.grad",
        "ip.backward_bias: ip.y.grad -> ip.b.grad",
        "ip.backward_data: ip.w ip.y.grad -> pool.y.grad",
        "ip.update_w: ip.w ip.w.grad rate objective ip.w.momentum -> ip.w ip.w.momentum",
        "ip.update_b: ip.b ip.b.grad rate objective ip.b.momentum -> ip.b ip.b.momentum",
        "pool.backward: pool.index pool.y.grad -> relu.y.grad",
        "relu.backward: relu.y relu.y.grad -> conv.y.grad",
        "conv.backward_filter: data conv.y.grad -> conv.w.grad",
        "conv.backward_bias: conv.y.grad -> conv.b.grad",
        "conv.update_w: conv.w conv.w.grad rate objective conv.w.momentum -> conv.w conv.w.momentum",
        "conv.update_b: conv.b conv.b.grad rate objective conv.b.momentum -> conv.b conv.b.momentum",
    ]
    assert [t.name for t in program.inputs] == ["data", "label", "rate"]
    assert [t.name for t in program.outputs] == ["loss.y", "objective"]
    assert [t.name for t in program.persistent] == [
        "conv.w", "conv.b", "ip.w", "ip.b",
        "ip.w.momentum", "ip.b.momentum", "conv.w.momentum", "conv.b.momentum",
    ]  # fmt: skip
    assert program.layers == ("data", "label", "conv", "relu", "pool", "ip", "loss")


def test_a_fork_adds_as_soon_as_there_are_two():
    program = differentiate(graph(FORK))
    assert lines(program, Pass.BACKWARD)[4:] == [
        "join.backward: join.y.grad -> one.y.grad two.y.grad three.y.grad stem.y.grad.join",
        "three.backward_filter: stem.y three.y.grad -> three.w.grad",
        "three.backward_bias: three.y.grad -> three.b.grad",
        "three.backward_data: three.w three.y.grad -> stem.y.grad.three",
        "three.add_stem.y.grad.sum2: stem.y.grad.join stem.y.grad.three -> stem.y.grad.sum2",
        "two.backward_filter: stem.y two.y.grad -> two.w.grad",
        "two.backward_bias: two.y.grad -> two.b.grad",
        "two.backward_data: two.w two.y.grad -> stem.y.grad.two",
        "two.add_stem.y.grad.sum3: stem.y.grad.sum2 stem.y.grad.two -> stem.y.grad.sum3",
        "one.backward_filter: stem.y one.y.grad -> one.w.grad",
        "one.backward_bias: one.y.grad -> one.b.grad",
        "one.backward_data: one.w one.y.grad -> stem.y.grad.one",
        "one.add_stem.y.grad: stem.y.grad.sum3 stem.y.grad.one -> stem.y.grad",
        "stem.backward_filter: data stem.y.grad -> stem.w.grad",
        "stem.backward_bias: stem.y.grad -> stem.b.grad",
    ]
    add = op(program, "one.add_stem.y.grad")
    assert [(a.name, b.name) for a, b in add.inplace] == [
        ("stem.y.grad.sum3", "stem.y.grad"),
        ("stem.y.grad.one", "stem.y.grad"),
    ]


def test_the_gradient_of_a_sum_is_shared_not_copied():
    program = differentiate(graph(RESIDUAL))
    backward = lines(program, Pass.BACKWARD)
    assert not any(line.startswith("sum.") for line in backward)
    assert "conv.backward_data: conv.w sum.y.grad -> relu0.y.grad.conv" in backward
    assert "conv.add_relu0.y.grad: sum.y.grad relu0.y.grad.conv -> relu0.y.grad" in backward


@pytest.mark.parametrize("kind", ["Dropout", "TanH"])
def test_a_relu_reads_what_overwrites_it_and_keeps_its_signs(kind):
    over = f"- {{name: over, type: {kind}, bottom: conv, top: TOP}}\n- {{name: pool, type: Pooling, bottom: TOP,"
    inside, beside = (
        differentiate(graph(CHAIN.replace("- {name: pool, type: Pooling, bottom: conv,", over.replace("TOP", top))))
        for top in ("conv", "d")
    )
    assert "relu.backward: over.y relu.y.grad -> conv.y.grad" in lines(inside, Pass.BACKWARD)
    assert "relu.backward: relu.y relu.y.grad -> conv.y.grad" in lines(beside, Pass.BACKWARD)
    assert ("iteration" in {t.name for t in inside.inputs}) == (kind == "Dropout")


def test_no_gradient_flows_through_a_threshold():
    """Nor does one from a forced gradient of the data: what is below has no backward."""
    step = CHAIN.replace("type: ReLU, bottom: conv, top: conv", "type: Threshold, bottom: conv, top: conv")
    assert step != CHAIN
    for head in ("name: net", "name: net\nforce_backward: true"):
        found = names(differentiate(graph(step, head=head), train=SPEC), Pass.BACKWARD)
        assert not [n for n in found if n.startswith(("conv", "relu"))] and "ip.backward_filter" in found


def test_several_losses():
    program = differentiate(graph(TWO_LOSSES), train=SPEC)
    objective = op(program, "objective.forward")
    assert [t.name for t in objective.reads] == ["aux.y", "loss.y"]
    assert objective.attrs.weights == (0.3, 1.0)
    assert op(program, "aux.backward").attrs.loss_weight == 0.3
    assert [t.name for t in program.outputs] == ["aux.y", "loss.y", "accuracy.y", "objective"]
    # accuracy reads ip, too, but sends no gradient: ip's is whole, not a part
    assert [t.name for t in op(program, "loss.backward").writes] == ["ip.y.grad"]


def test_no_gradient_where_nothing_learns():
    frozen = CHAIN.replace("top: conv, conv", "top: conv, param: [{lr_mult: 0}, {lr_mult: 0}], conv", 1)
    assert names(differentiate(graph(frozen), train=SPEC), Pass.BACKWARD) == [
        "loss.backward", "ip.backward_filter", "ip.backward_bias",
    ]  # fmt: skip
    half = CHAIN.replace("top: conv, conv", "top: conv, param: [{lr_mult: 1}, {lr_mult: 0}], conv", 1)
    program = differentiate(graph(half), train=SPEC)
    assert "conv.backward_filter" in names(program) and "conv.backward_bias" not in names(program)
    assert {"conv.w", "conv.b"} <= {t.name for t in program.persistent}
    assert "conv.b.momentum" not in {t.name for t in program.persistent}


HEAD = """
- {name: data, type: Input, top: data, input_param: {shape: {dim: [4, 6]}}}
- {name: label, type: Input, top: label, input_param: {shape: {dim: 4}}}
- {name: ip, type: InnerProduct, bottom: data, top: x, MULT inner_product_param: {num_output: 5, bias_term: false}}
- {name: loss, type: InnerProductWithLoss, bottom: [x, label], top: loss, MULT
   inner_product_param: {num_output: 3, bias_term: false}}
"""


@pytest.mark.parametrize(
    ("below", "head", "writes"),
    [(1, 1, ["y", "dx", "dw"]), (1, 0, ["y", "dx"]), (0, 1, ["y", "dw"])],
)
def test_the_loss_of_an_inner_product_computes_the_gradients_that_are_wanted(below, head, writes):
    text = HEAD
    for mult in (below, head):
        text = text.replace("MULT", f"param: [{{lr_mult: {mult}}}],", 1)
    program = differentiate(graph(text), train=SPEC)
    made = op(program, "loss.forward")
    assert [t.name for t in made.writes] == [f"loss.{n}" for n in writes] and made.attrs.gradients == tuple(writes[1:])
    assert made.flops == 2 * 4 * 5 * 3 * len(writes)
    test = differentiate(graph(text, "TEST"))
    assert [t.name for t in op(test, "loss.forward").writes] == ["loss.y"]


def test_a_frozen_bias_of_a_loss_has_no_gradient():
    for mult, writes in ((1, ["y", "dw", "db"]), (0, ["y", "dw"])):
        text = HEAD.replace("MULT", "param: [{lr_mult: 0}],", 1).replace("3, bias_term: false", "3")
        text = text.replace("MULT", f"param: [{{lr_mult: 1}}, {{lr_mult: {mult}}}],", 1)
        made = op(differentiate(graph(text), train=SPEC), "loss.forward")
        assert [t.name for t in made.writes] == [f"loss.{n}" for n in writes]


def test_no_gradient_where_no_loss_is_above():
    side = CHAIN + "- {name: side, type: InnerProduct, bottom: x, top: side, inner_product_param: {num_output: 3}}"
    program = differentiate(graph(side), train=SPEC)
    assert [n for n in names(program) if n.startswith("side")] == ["side.forward"]
    assert names(program, Pass.BACKWARD) == names(differentiate(graph(CHAIN), train=SPEC), Pass.BACKWARD)
    weightless = TWO_LOSSES.replace("loss_weight: 0.3", "loss_weight: 0")
    program = differentiate(graph(weightless), train=SPEC)
    assert not any("aux" in n for n in names(program, Pass.BACKWARD))
    assert "aux.y" in [t.name for t in program.outputs]


def test_propagate_down_overrules():
    stopped = CHAIN.replace("name: ip,", "name: ip, propagate_down: false,")
    assert names(differentiate(graph(stopped), train=SPEC), Pass.BACKWARD) == [
        "loss.backward", "ip.backward_filter", "ip.backward_bias",
    ]  # fmt: skip


def test_propagate_down_forces():
    """A gradient that nothing needs, and no more: as in Caffe the layer below has a backward only for reasons of its
    own."""
    still = CHAIN.replace("top: conv, conv", "top: conv, param: [{lr_mult: 0}, {lr_mult: 0}], conv", 1)
    forced = still.replace("name: ip,", "name: ip, propagate_down: true,")
    assert names(differentiate(graph(forced), train=SPEC), Pass.BACKWARD) == [
        "loss.backward", "ip.backward_filter", "ip.backward_bias", "ip.backward_data",
    ]  # fmt: skip
    data = CHAIN.replace("name: conv,", "name: conv, propagate_down: true,")
    assert [t.name for t in op(differentiate(graph(data)), "conv.backward_data").writes] == ["data.grad"]


def test_propagate_down_stops_one_branch_of_a_fork():
    stopped = RESIDUAL.replace("name: sum,", "name: sum, propagate_down: [true, false],")
    program = differentiate(graph(stopped), train=SPEC)
    assert [t.name for t in op(program, "conv.backward_data").writes] == ["relu0.y.grad"]
    assert "gradient.add" not in [o.kind for o in program.ops]


def test_force_backward_overrules_propagate_down_as_in_caffe():
    stopped = CHAIN.replace("name: ip,", "name: ip, propagate_down: false,")
    program = differentiate(graph(stopped, head="force_backward: true"))
    assert [t.name for t in op(program, "conv.backward_data").writes] == ["data.grad"]


def test_a_loss_weight_makes_any_top_a_loss():
    """The sum is taken at once, so that the top need not live until the objective; its gradient is one number."""
    weighted = CHAIN.replace("name: conv,", "name: conv, loss_weight: 0.25,").replace(
        "name: pool,", "name: pool, loss_weight: -2,"
    )
    program = differentiate(graph(weighted), train=SPEC)
    assert lines(program, Pass.FORWARD, Pass.LOSS) == [
        "conv.forward: data conv.w conv.b -> conv.y",
        "conv.sum_conv.y: conv.y -> conv.y.sum",
        "relu.forward: conv.y -> relu.y",
        "pool.forward: relu.y -> pool.y pool.index",
        "pool.sum_pool.y: pool.y -> pool.y.sum",
        "ip.forward: pool.y ip.w ip.b -> ip.y",
        "loss.forward: ip.y label -> loss.y loss.prob",
        "objective.forward: conv.y.sum pool.y.sum loss.y -> objective",
    ]
    assert op(program, "objective.forward").attrs.weights == (0.25, -2, 1)
    assert lines(program, Pass.BACKWARD)[3:-2] == [
        "ip.backward_data: ip.w ip.y.grad -> pool.y.grad.ip",
        "pool.fill_pool.y.grad.pool:  -> pool.y.grad.pool",
        "pool.add_pool.y.grad: pool.y.grad.ip pool.y.grad.pool -> pool.y.grad",
        "pool.backward: pool.index pool.y.grad -> relu.y.grad",
        "relu.backward: relu.y relu.y.grad -> conv.y.grad.relu",
        "conv.fill_conv.y.grad.conv:  -> conv.y.grad.conv",
        "conv.add_conv.y.grad: conv.y.grad.relu conv.y.grad.conv -> conv.y.grad",
    ]


def test_a_top_that_is_a_loss_alone_has_a_gradient_of_one_number():
    ends = CHAIN.rsplit("- ", 1)[0].replace("name: ip,", "name: ip, loss_weight: 3,")
    program = differentiate(graph(ends), train=SPEC)
    assert lines(program, Pass.BACKWARD)[:2] == [
        "ip.fill_ip.y.grad:  -> ip.y.grad", "ip.backward_filter: pool.y ip.y.grad -> ip.w.grad",
    ]  # fmt: skip
    assert [t.name for t in program.outputs] == ["objective"]


def test_gradient_of_the_data():
    assert "conv.backward_data" not in names(differentiate(graph(CHAIN)))
    for program in (
        differentiate(graph(CHAIN), Facts(first_dx=True)),
        differentiate(graph(CHAIN, head="force_backward: true")),
    ):
        assert [t.name for t in op(program, "conv.backward_data").writes] == ["data.grad"]


def test_facts_change_what_is_read():
    program = differentiate(graph(CHAIN), FACTS["vdnn2016"])
    assert [t.name for t in op(program, "pool.backward").reads] == ["relu.y", "pool.y.grad"]
    assert not any(t.name == "pool.index" for t in program.tensors)


def test_without_updates_gradients_are_persistent():
    program = differentiate(graph(CHAIN))
    assert names(program, Pass.UPDATE) == []
    gradients = [t.name for t in program.persistent if t.role is Role.PARAM_GRADIENT]
    assert gradients == ["ip.w.grad", "ip.b.grad", "conv.w.grad", "conv.b.grad"]
    assert [t.name for t in program.inputs] == ["data", "label"]


def test_the_update_follows_the_last_read_of_the_weight():
    for name in SMALL_NETS:
        program = differentiate(net(name), train=SPEC)
        at = {o: p for p, o in enumerate(program.ops)}
        for update in (o for o in program.ops if o.kind == "sgd.update"):
            w, dw = update.reads[:2]
            others = [o for o in program.ops if o is not update and (w in o.reads or dw in o.writes)]
            assert max(at[o] for o in others) < at[update]
            assert all(o.layer == update.layer for o in program.ops[max(at[o] for o in others) + 1 : at[update]])


def test_clipping_waits_for_all_gradients():
    program = differentiate(graph(CHAIN), train=TrainSpec(clip_gradients=5.0))
    updates = ["ip.update_w", "ip.update_b", "conv.update_w", "conv.update_b"]
    assert names(program)[-6:] == ["gradient.squares", "gradient.clip", *updates]
    squares, clip = op(program, "gradient.squares"), op(program, "gradient.clip")
    assert [t.name for t in squares.reads] == ["ip.w.grad", "ip.b.grad", "conv.w.grad", "conv.b.grad"]
    assert clip.reads == squares.writes and clip.attrs == ClipAttrs(5.0, Blocks.of(squares.reads))
    update = op(program, "ip.update_w")
    assert [t.name for t in update.reads] == ["ip.w", "ip.w.grad", "rate", "objective", "clip"]
    assert update.attrs.clipped


def test_accumulation():
    spec = TrainSpec(SGD(momentum=0.9), iter_size=4)
    first = differentiate(graph(CHAIN), train=TrainSpec(SGD(momentum=0.9), iter_size=4, accumulate=True))
    last = differentiate(graph(CHAIN), train=spec)
    assert (first.name, last.name) == ("ACCUMULATE", "TRAIN")
    assert first.persistent == last.persistent
    assert [n for n in names(first) if n.startswith("ip.")][-2:] == ["ip.accumulate_w", "ip.accumulate_b"]
    assert "rate" not in {t.name for t in first.inputs}
    assert [n for n in names(last) if n.startswith("conv.")][-4:] == [
        "conv.sum_w", "conv.update_w", "conv.sum_b", "conv.update_b",
    ]  # fmt: skip
    assert [t.name for t in op(last, "conv.update_w").reads][:2] == ["conv.w", "conv.w.grad.sum"]
    assert op(last, "conv.update_w").attrs.scale == 0.25


def test_decay_and_rate_per_parameter():
    text = CHAIN.replace("top: conv, conv", "top: conv, param: [{lr_mult: 1}, {lr_mult: 2, decay_mult: 0}], conv", 1)
    program = differentiate(graph(text), train=TrainSpec(SGD(weight_decay=0.01, regularization="L1")))
    w, b = op(program, "conv.update_w").attrs, op(program, "conv.update_b").attrs
    assert (w.lr_mult, w.decay, w.regularization, w.momentum) == (1.0, 0.01, "L1", 0.0)
    assert (b.lr_mult, b.decay) == (2.0, 0.0)


def test_test_phase_is_forward_alone():
    program = differentiate(graph(TWO_LOSSES, "TEST"))
    assert program.name == "TEST"
    assert {o.during for o in program.ops} == {Pass.FORWARD, Pass.LOSS}
    assert "objective.forward" not in names(program)
    assert [t.name for t in program.outputs] == ["aux.y", "loss.y", "accuracy.y"]
    deploy = graph(CHAIN.rsplit("- ", 1)[0], "TEST")
    assert [t.name for t in differentiate(deploy).outputs] == ["ip.y"]
    assert [t.name for t in differentiate(deploy).inputs] == ["data"]


def test_keep():
    g = graph(CHAIN)
    assert [t.name for t in differentiate(g, keep=[tensor(g, "ip")]).outputs] == ["loss.y", "objective", "ip.y"]
    with pytest.raises(ValueError, match="cannot keep data: it is an input"):
        differentiate(g, keep=[tensor(g, "data")])


def test_errors():
    with pytest.raises(ValueError, match="net has no loss to train with"):
        differentiate(graph(CHAIN.rsplit("- ", 1)[0]))
    accuracy = CHAIN + "- {name: a, type: Accuracy, bottom: [ip, label], top: a, loss_weight: 1}"
    with pytest.raises(NotTrainable, match="layer a: Accuracy has no gradient"):
        differentiate(graph(accuracy))
    with pytest.raises(NotTrainable, match="layer label: its top 'label' has a loss_weight, but holds labels"):
        differentiate(graph(CHAIN.replace("name: label, type: Input,", "name: label, type: Input, loss_weight: 1,")))
    with pytest.raises(NotTrainable, match="no gradient flows into 'label', which SoftmaxWithLoss compares with"):
        differentiate(graph(CHAIN.replace("name: loss,", "name: loss, propagate_down: [true, true],")))
    through = CHAIN + "- {name: more, type: SoftmaxWithLoss, bottom: [ip, ip], top: more}"
    with pytest.raises(ValueError, match="need 4 labels"):
        differentiate(graph(through))


# ---- that they compute the gradient


def start(program, seed=0):
    """Random values for inputs and persistent tensors; states begin at zero, labels are classes."""
    random = np.random.default_rng(seed)
    values = {}
    for t in (*program.inputs, *program.persistent):
        if t.role is Role.LABEL:
            values[t.name] = random.integers(0, 3, t.shape).astype(np.int32)
        elif t.name == "iteration":
            values[t.name] = np.array([3])
        elif t.role in (Role.STATE, Role.PARAM_GRADIENT):
            values[t.name] = np.zeros(t.shape)
        else:
            # Weights by their fan-in: scores stay small, away from the loss's floor under probabilities.
            fan_in = t.size / t.shape[0] if t.role is Role.PARAM else 1.0
            values[t.name] = random.standard_normal(t.shape) / np.sqrt(fan_in)
    return values


@pytest.mark.slow
@pytest.mark.parametrize("name", [*GRAPHS, *(f"nets/{n}" for n in (*SMALL_NETS, "moves"))])
def test_numeric_gradient_of_whole_nets(name):
    """Central differences of the objective at places of every parameter. Whoever shares a gradient tensor and
    whatever stands in place, the sum at each fork must be right."""
    program = differentiate(graph(GRAPHS[name]) if name in GRAPHS else net(name.removeprefix("nets/")))
    values = start(program)
    held = run(program, values, "float64")
    forward = [o for o in program.ops if o.during in (Pass.FORWARD, Pass.LOSS)]
    places = np.random.default_rng(1)

    def objective(t, i, step):
        changed = values | {t.name: values[t.name].copy()}
        changed[t.name].flat[i] += step
        return run_ops(forward, changed, "float64")["objective"][0]

    for t in (t for t in program.persistent if t.role is Role.PARAM):
        gradient = held[f"{t.name}.grad"]
        for i in places.choice(t.size, min(3, t.size), replace=False):
            numeric = (objective(t, i, 1e-6) - objective(t, i, -1e-6)) / 2e-6
            assert gradient.flat[i] == pytest.approx(numeric, rel=1e-4, abs=1e-7), f"{t.name}[{i}]"


def in_torch(g, values):
    """(objective, parameters) of a graph, by PyTorch's own layers on float64."""
    import torch
    import torch.nn.functional as F

    blobs, learned, objective = {}, {}, 0.0
    for node in g.layers:
        layer, kind = node.layer, node.layer.type
        p = {q.name: torch.tensor(values[f"{node.name}.{q.name}"], requires_grad=True) for q in node.parameters}
        learned |= {f"{node.name}.{name}": v for name, v in p.items()}
        x = [blobs[b] for b in node.bottoms]
        if kind == "Input":
            y = torch.tensor(values[node.tops[0].tensor.name])
        elif kind == "Convolution":
            a = layer.attrs()
            y = F.conv2d(x[0], p["w"], p.get("b"), a.stride, a.pad, a.dilation, a.group)
        elif kind == "InnerProduct":
            y = F.linear(x[0].flatten(1), p["w"].flatten(1), p.get("b"))
        elif kind == "Pooling":
            a = layer.attrs(x[0].shape)
            pool = F.max_pool2d if a.method == "MAX" else F.avg_pool2d
            y = pool(x[0], a.kernel, a.stride, a.pad, ceil_mode=True)
        elif kind == "ReLU":
            y = F.relu(x[0])
        elif kind == "LRN":
            q = layer.param
            y = F.local_response_norm(x[0], q.local_size, q.alpha, q.beta, q.k)
        elif kind == "BatchNorm":
            y = F.batch_norm(x[0], None, None, training=True, eps=layer.param.eps)
        elif kind == "Scale":
            y = x[0] * p["gamma"].view(1, -1, 1, 1) + (p["beta"].view(1, -1, 1, 1) if "beta" in p else 0)
        elif kind == "Dropout":
            ratio = layer.param.dropout_ratio
            keep = keep_mask(tuple(x[0].shape), ratio, 0, int(values["iteration"][0]), zlib.crc32(node.name.encode()))
            y = x[0] * torch.from_numpy(keep) / (1 - ratio)
        elif kind == "Concat":
            y = torch.cat(x, layer.param.axis)
        elif kind == "Eltwise":
            terms = [c * v for c, v in zip(layer.attrs().coeff, x, strict=True)] if layer.attrs().coeff else x
            together = {"SUM": torch.add, "PROD": torch.mul, "MAX": torch.maximum}[layer.param.operation]
            y = terms[0]
            for term in terms[1:]:
                y = together(y, term)
        elif kind == "Flatten":
            y = x[0].flatten(layer.param.axis)
        elif kind == "SoftmaxWithLoss":
            y = F.cross_entropy(x[0], x[1].long())
        else:
            assert kind == "Accuracy"
            y = None
        if weight := layer.loss_weight():
            objective = objective + weight * y.sum()
        blobs[node.tops[0]] = y
    return objective, learned


@pytest.mark.peer("torch")
@pytest.mark.parametrize("name", [*GRAPHS, *(f"nets/{n}" for n in SMALL_NETS)])
def test_whole_nets_equal_pytorch(name):
    g = graph(GRAPHS[name]) if name in GRAPHS else net(name.removeprefix("nets/"))
    program = differentiate(g)
    values = start(program, 4)
    held = run(program, values, "float64")
    objective, learned = in_torch(g, values)
    objective.backward()
    assert held["objective"][0] == pytest.approx(objective.item(), rel=1e-9)
    for t in (t for t in program.persistent if t.role is Role.PARAM):
        np.testing.assert_allclose(held[f"{t.name}.grad"], learned[t.name].grad.numpy(), rtol=1e-7, atol=1e-9)


def train(programs, values, steps):
    """Steps of the named programs in turn on one batch; the persistent values at the end."""
    for step in range(steps):
        for k, program in enumerate(programs, step * len(programs)):
            held = run(program, values | {"rate": np.array([0.1]), "iteration": np.array([k])}, "float64")
            values = values | {t.name: held[t.name] for t in program.persistent}
    return values


def spread(**options):
    """Weights after some steps."""
    spec = TrainSpec(SGD(momentum=0.9, weight_decay=0.01), **options)
    program = differentiate(graph(CHAIN), train=spec)
    programs = [program]
    if spec.iter_size > 1:
        accumulate = TrainSpec(SGD(momentum=0.9, weight_decay=0.01), accumulate=True, **options)
        programs = [differentiate(graph(CHAIN), train=accumulate)] * (spec.iter_size - 1) + programs
    end = train(programs, start(program), 3)
    return {t.name: end[t.name] for t in program.persistent if t.role is Role.PARAM}


def test_accumulating_equal_batches_changes_nothing():
    plain, accumulated = spread(), spread(iter_size=3)
    for name in plain:
        np.testing.assert_allclose(accumulated[name], plain[name], rtol=1e-12)


def test_a_threshold_of_zero_clips_all_gradients_to_nothing():
    """As in Caffe, where only a negative one means no clipping."""
    assert "gradient.clip" in names(differentiate(graph(CHAIN), train=TrainSpec(clip_gradients=0.0)))
    assert "gradient.clip" not in names(differentiate(graph(CHAIN), train=TrainSpec(clip_gradients=-0.1)))


def test_clipping_applies_before_the_division_by_iter_size():
    """As Caffe clips: the norm is that of the sum. Three equal batches at threshold 3c are one batch at c."""
    plain, accumulated, free = spread(clip_gradients=0.1), spread(clip_gradients=0.3, iter_size=3), spread()
    for name in plain:
        np.testing.assert_allclose(accumulated[name], plain[name], rtol=1e-12)
        assert not np.allclose(free[name], plain[name], rtol=1e-3)


def test_sgd_by_hand():
    """v = 0.9 v + rate lr_mult (g + decay w); w -= v: the rate stands inside the momentum."""
    program = differentiate(graph(CHAIN), train=SPEC)
    gradients = differentiate(graph(CHAIN))
    values = start(program) | {"iteration": np.array([0])}
    w, v = values["conv.w"].copy(), 0.0
    for rate in (0.1, 0.01):
        at = {t.name: values.get(t.name, np.zeros(t.shape)) for t in (*gradients.inputs, *gradients.persistent)}
        g = run(gradients, at, "float64")["conv.w.grad"]
        v = 0.9 * v + rate * (g + 0.01 * w)
        w = w - v
        held = run(program, values | {"rate": np.array([rate])}, "float64")
        values = values | {t.name: held[t.name] for t in program.persistent}
        np.testing.assert_allclose(values["conv.w"], w, rtol=1e-12)


# ---- size


def deep(blocks):
    text = DATA + f"- {{name: stem, type: Convolution, bottom: data, top: x0, {CONV}}}\n"
    for i in range(blocks):
        text += f"- {{name: c{i}, type: Convolution, bottom: x{i}, top: y{i}, {CONV}}}\n"
        text += f"- {{name: b{i}, type: BatchNorm, bottom: y{i}, top: y{i}}}\n"
        text += f"- {{name: s{i}, type: Scale, bottom: y{i}, top: y{i}}}\n"
        text += f"- {{name: e{i}, type: Eltwise, bottom: [y{i}, x{i}], top: x{i + 1}}}\n"
        text += f"- {{name: r{i}, type: ReLU, bottom: x{i + 1}, top: x{i + 1}}}\n"
    return graph(text + END.replace("bottom: x,", f"bottom: x{blocks},"))


def dense(blocks):
    """Every layer reads every earlier one."""
    text, blobs = DATA + f"- {{name: stem, type: Convolution, bottom: data, top: x0, {CONV}}}\n", ["x0"]
    for i in range(1, blocks):
        text += f"- {{name: j{i}, type: Eltwise, bottom: [{', '.join(blobs)}, x0], top: y{i}}}\n"
        text += f"- {{name: c{i}, type: Convolution, bottom: y{i}, top: x{i}, {CONV}}}\n"
        blobs.append(f"x{i}")
    return graph(text + END.replace("bottom: x,", f"bottom: x{blocks - 1},"))


@pytest.mark.slow
def test_linear_in_the_number_of_uses():
    """Counted in calls of functions, which are the same on any machine: so many per use of a tensor by an op."""
    per_use = []
    for g in (deep(40), deep(160), dense(50)):
        calls = 0

        def count(*_):
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            program = differentiate(g, train=SPEC)
        finally:
            sys.setprofile(None)
        per_use.append(calls / sum(len(o.tensors) for o in program.ops))
    assert max(per_use) < 2.5 * min(per_use), per_use  # one that grows quadratically is 4 times apart or more
