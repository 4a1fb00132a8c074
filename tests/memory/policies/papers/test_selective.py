"""Selective recomputation: the core of attention runs again, and nothing else."""

from __future__ import annotations

import pytest

from minidnn.memory.planning import arrange
from minidnn.memory.policies import find
from minidnn.memory.policies.shared.lacking import Lacking
from minidnn.nets.net import Net
from minidnn.program import Program
from minidnn.programs.build import programs
from tests.support.aten import Tape, transformer
from tests.support.paths import NET_FILES
from tests.support.programs import chain, costs


def again(program: Program) -> list[str]:
    """The ops that run again, in order."""
    order = find("selective:m")(program, costs(), 1 << 40).order
    return [op.name for p, op in enumerate(order) if op in order[:p]]


def test_the_core_s_inner_tensors_are_made_again_and_its_result_is_kept():
    """Product, scale, softmax, the dropout's mask and what it masks; not the product with the values, whose result is
    kept, nor the dropout behind the projection."""
    core = ["matmul.bmm", "aten.div", "aten._softmax", "aten.empty_like", "aten.mul"]
    program = transformer(2)
    kinds = {op.name: op.kind for op in program.ops}
    names = again(program)
    assert [kinds[name] for name in names] == 2 * core
    assert names[0] == "h.1.attn.bmm" and names[5] == "h.0.attn.bmm", "the last layer's first"
    assert arrange([program], "selective:m", costs()).schedules["TRAIN"].live_peak < (
        arrange([program], "liveness:m", costs()).schedules["TRAIN"].live_peak
    )


def test_a_fused_attention_runs_again_whole():
    program = transformer(2, fused=True)
    assert again(program) == [f"h.{i}.attn._scaled_dot_product_flash_attention" for i in (1, 0)]


def test_attention_of_a_net_of_layers():
    """Its softmax may write over the scores. Ops that only move the product's result are no part of the core."""
    program = programs(Net.from_file(NET_FILES / "attention.yaml"), None, ("TRAIN",))["TRAIN"]
    assert again(program) == ["scores.forward", "weights.forward"]


def test_products_with_what_is_computed_of_weights_alone_are_no_attention():
    """As of weights in another number format, which are made anew in each step."""
    tape = Tape()
    x = tape.batch
    for i in range(2):
        half = tape.call(f"{i}", "aten._to_copy", tape.owns(f"{i}.weight"))
        x = tape.call(f"{i}", "aten.gelu", tape.call(f"{i}", "matmul.bmm", x, half))
    with pytest.raises(Lacking):
        arrange([tape.program(x)], "selective:m", costs())


def test_a_bias_of_the_scores_is_not_written_over_before_the_core_has_run_again():
    """It is as large as the scores, and only the core reads it."""
    tape = Tape()
    q, k, bias = (tape.linear(name, tape.batch, 256) for name in ("q", "k", "bias"))
    scores = tape.call("attn", "matmul.bmm", q, k, size=256)
    masked = tape.call("attn", "aten.add", scores, bias, size=256)
    tape.over(bias, masked)
    weights = tape.call("attn", "aten._softmax", masked, size=256)
    tape.saves(weights)
    program = tape.program(tape.call("attn", "matmul.bmm", weights, k, size=256))
    assert arrange([program], "liveness:m", costs()).schedules["TRAIN"].plan.share, "it would be"
    assert again(program) == ["attn.bmm", "attn.add", "attn._softmax"]
    arrange([program], "selective:m", costs())


def test_a_net_without_attention_is_refused():
    with pytest.raises(Lacking, match=r"selective runs the core of attention again, and TRAIN has none: .*cheap"):
        arrange([chain(4)], "selective", costs())


def test_views_of_one_tensor_are_both_factors():
    """As of queries, keys and values that one product has made."""
    tape = Tape()
    qkv = tape.linear("qkv", tape.batch)
    weights = tape.call("attn", "aten._softmax", tape.call("attn", "matmul.bmm", qkv))
    program = tape.program(tape.linear("out", tape.call("attn", "matmul.bmm", weights, qkv)))
    assert again(program) == ["attn.bmm", "attn._softmax"]
    tape = Tape()
    fused = tape.call("attn", "attention.fused", tape.linear("qkv", tape.batch), tape.owns("mask"))
    assert again(tape.program(tape.linear("out", fused))) == ["attn.fused"]
