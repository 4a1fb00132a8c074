"""Policies on programs of PyTorch's ops: layers are paths of modules, kinds are ATen's, and nothing comes or goes."""

from __future__ import annotations

import pytest

from minidnn.memory.budget import BudgetError
from minidnn.memory.planning import arrange
from minidnn.memory.policies import find
from minidnn.memory.policies.papers.flashneuron import compressible
from minidnn.memory.policies.papers.superneurons_steps import checkpoints
from minidnn.memory.policies.papers.vdnn import feature_extraction
from minidnn.memory.policies.shared.lacking import Lacking
from minidnn.memory.policies.shared.layers import calls, joins
from minidnn.memory.policies.shared.orders import makers
from minidnn.memory.policies.shared.recompute import Repeatable
from minidnn.program import Program, Role, nbytes
from tests.support.aten import Tape, classifier, transformer
from tests.support.policies import ABOUT, EVERY, SOLVED, TIGHT
from tests.support.programs import KB, costs
from tests.support.slow import usual_pairs

POLICIES = dict.fromkeys([*EVERY, *TIGHT, *(f"{name}:m" for name in ABOUT)])
PROGRAMS = {"transformer": transformer(), "fused": transformer(fused=True), "classifier": classifier()}


@pytest.mark.parametrize(("policy", "net"), usual_pairs(POLICIES, PROGRAMS))
def test_every_policy_has_a_proved_plan_or_says_what_the_net_lacks(policy, net):
    program = PROGRAMS[net]
    least = nbytes(program.persistent)
    whole = arrange([program], "liveness:m", costs()).schedules["TRAIN"].live_peak
    for budget in (None, least + (whole - least) * 7 // 10):
        try:
            schedule = arrange([program], policy, costs(), budget).schedules["TRAIN"]
        except (BudgetError, Lacking) as refused:
            assert policy.partition(":")[0] in str(refused)
        else:
            assert budget is None or schedule.arena <= budget


@pytest.mark.parametrize("policy", SOLVED)
def test_an_integer_program_has_a_proved_plan_too(policy):
    tape = Tape()
    x = tape.linear("fc1", tape.call("relu", "aten.relu", tape.linear("fc0", tape.batch)))
    program = tape.program(tape.linear("fc2", x, 4))
    whole = arrange([program], "liveness:p", costs()).schedules["TRAIN"].arena
    assert arrange([program], policy, costs(), whole - KB).schedules["TRAIN"].arena < whole


def left(program: Program, policy: str) -> set[str]:
    return {t.tensor.name for t in find(policy)(program, costs(), 1 << 40).offloads}


def test_vdnn_s_classifier_is_what_no_other_product_and_no_join_comes_behind():
    """A transformer's inner products are features, but its head; those behind a CNN's convolutions are a classifier."""
    features = {layer.name for layer in feature_extraction(PROGRAMS["transformer"])}
    assert {"h.0.attn.q", "h.1.mlp.2", "ln_f"} <= features and "head" not in features
    assert {"features.2.conv", "pool"} <= (seen := {layer.name for layer in feature_extraction(PROGRAMS["classifier"])})
    assert not {"classifier.0", "classifier.2"} & seen
    # an inner product that is summed with what is computed from it alone stays a classifier
    tape = Tape()
    x = tape.linear("fc", tape.call("conv", "convolution.convolution", tape.batch))
    program = tape.program(tape.call("sum", "aten.add", x, tape.call("act", "aten.relu", x)))
    assert [layer.name for layer in feature_extraction(program)] == ["conv"]


def test_a_product_before_features_is_no_classifier_though_the_batch_alone_is_added_to_it():
    tape = Tape()
    x = tape.batch
    for i in range(3):
        y = tape.linear(f"{i}.b", tape.call(f"{i}.relu", "aten.relu", tape.linear(f"{i}.a", x)))
        x = tape.call(f"{i}", "aten.add", x, y)
    program = tape.program(tape.linear("head", x, 4))
    assert {layer.name for layer in feature_extraction(program)} >= {f"{i}.{part}" for i in range(3) for part in "ab"}
    assert "head" not in {layer.name for layer in feature_extraction(program)}
    assert len(left(program, "vdnn_all")) > 3


def test_vdnn_moves_maps_and_never_what_the_caller_owns():
    maps = left(PROGRAMS["fused"], "vdnn_all:m")
    assert {"h.0.attn.q.addmm.y", "h.0.mlp.1.gelu.y"} <= maps
    assert not maps & {t.name for t in PROGRAMS["fused"].persistent}
    for policy in ("vdnn_all:m", "layrub:m", "layrub_inter:m", "layrub_2018:m", "superneurons_offload:m"):
        assert "batch" not in left(PROGRAMS["classifier"], policy)


def test_each_call_of_a_module_is_a_layer():
    """Of a module that runs several times, or around others. Backward belongs to the call that it goes back over."""
    program = PROGRAMS["transformer"]
    of = {op.name: call for op, call in calls(program).items()}
    assert [of[f"drop.mul{n}"] for n in ("", "#1", "#2", "#3")] == ["drop", "drop#1", "drop#2", "drop#3"]
    back = {name: call for name, call in of.items() if name.startswith("drop.mul") and name.endswith("backward")}
    assert len(back) == 4 and all(call == of[name.partition(".h.")[0]] for name, call in back.items())
    assert of["h.1.add"] == "h.1" and of["h.1.add#1"] == "h.1#1"
    assert set(calls(classifier()).values()) >= {"features.0.bn", "relu", "relu#1", "relu#3"}


def test_superneurons_keeps_products_and_joins_and_moves_them():
    program = PROGRAMS["fused"]
    kept = {t.name for t in checkpoints(Repeatable(program, {}))}
    assert {"h.0.attn.q.addmm.y", "h.0.attn._scaled_dot_product_flash_attention.y", "h.0.add.y"} <= kept
    assert not {"h.0.mlp.1.gelu.y", "drop.mul.y", "drop.empty_like.y"} & kept
    assert {"h.0.attn.q.addmm.y", "h.0.mlp.0.addmm.y"} <= left(program, "superneurons_offload:m")


def test_a_join_has_two_maps_of_its_result_s_size_neither_made_of_the_other():
    """Not a dropout's mask with what it masks, nor a sum of gradients, nor a scale."""
    assert {op.name for op in joins(PROGRAMS["fused"])} == {"h.0.add", "h.0.add#1", "h.1.add", "h.1.add#1"}


def test_flashneuron_knows_pytorch_s_relus():
    names = {t.name for t in compressible(PROGRAMS["classifier"])}
    assert names == {"relu.relu.y", "relu.relu#1.y", "relu.relu#2.y", "relu.relu#3.y"}


# ---- what runs again


def counted() -> Program:
    """Ops that read a buffer before it changes, and behind that; and a map that is changed in place."""
    tape = Tape()
    count = tape.owns("count", 64, Role.STATE)
    x = tape.call("a", "aten.mul", tape.batch, count)
    tape.change("counting", count)
    y = tape.call("b", "aten.mul", x, count)
    z = tape.call("c", "aten.exp", y)
    before = tape.call("before", "aten.tanh", z)
    tape.change("c", z)
    after = tape.call("after", "aten.tanh", z)
    return tape.program(tape.call("sum", "aten.add", before, after))


def test_what_reads_a_value_that_changes_later_runs_once():
    """Not `a`, which reads the count before it changes, nor `before`; not `c`, whose result changes."""
    program = counted()
    again = {op.name for op in set(Repeatable(program, {}).maker.values())}
    assert again >= {"b.mul", "after.tanh"} and not again & {"a.mul", "c.exp", "before.tanh", "counting.add_"}
    assert not {op.name for op in makers(program, costs()).values()} & {"a.mul", "c.exp", "before.tanh"}


@pytest.mark.parametrize("policy", POLICIES)
def test_plans_are_right_where_values_change_within_a_step(policy):
    program = counted()
    for kib in (None, 260, 400):
        try:
            arrange([program], policy, costs(), kib and kib * 1024)
        except (BudgetError, Lacking):
            assert kib is not None or policy.partition(":")[0] in ABOUT
