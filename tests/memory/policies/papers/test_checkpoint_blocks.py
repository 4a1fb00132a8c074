"""Checkpoint per block: a block's input is kept, and the block runs again as a whole before its backward."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn.memory.planning import arrange
from minidnn.memory.policies import find
from minidnn.memory.policies.shared.blocks import blocks
from minidnn.memory.policies.shared.lacking import Lacking
from minidnn.program import Program
from tests.support.aten import transformer
from tests.support.programs import Builder, chain, costs


def again(program: Program) -> list[str]:
    """The ops that run again, in order."""
    order = find("checkpoint_blocks:m")(program, costs(), 1 << 40).order
    return [op.name for p, op in enumerate(order) if op in order[:p]]


def residual(blocks: int = 3) -> Program:
    """Blocks of two convolutions, with a ReLU and a sum that work in place."""
    b = Builder()
    x = b.add("stem", "convolution", "data")
    for i in range(blocks):
        y = b.add(f"block{i}/relu", "relu", b.add(f"block{i}/a", "convolution", x))
        x = b.add(f"block{i}/sum", "eltwise", b.add(f"block{i}/b", "convolution", y), x)
    b.add("fc", "inner_product", b.add("pool", "pooling", x, size=16), size=4)
    return b.program()


def test_each_block_runs_again_once_the_last_first():
    """As PyTorch's early_stop has it, the sum at a block's end does not run: it is the next one's input."""
    program = residual()
    assert again(program) == [f"block{i}/{name}.forward" for i in (2, 1, 0) for name in ("a", "relu")]
    first = next(op for op in program.ops[program.forward :] if op.layer.startswith("block1/"))
    order = find("checkpoint_blocks:m")(program, costs(), 1 << 40).order
    runs = [p for p, op in enumerate(order) if op.name == "block1/a.forward"]
    assert program.forward < runs[1] <= order.index(first) + 4


def test_what_outlives_forward_is_the_inputs_of_blocks_and_what_lies_outside():
    program = residual()
    schedule = arrange([program], "checkpoint_blocks:m", costs()).schedules["TRAIN"]
    live = {
        t.name
        for b in schedule.buffers for t in [r.tensor for r in b.residencies if r.lo < program.forward < r.hi]
        if t not in program.fixed and t.name != "loss"
    }  # fmt: skip
    assert live == {"stem.y", "block0/sum.y", "block1/sum.y", "block2/sum.y", "pool.y", "fc.y"} & live
    assert {"stem.y", "block0/sum.y", "block1/sum.y"} <= live


def test_a_transformer_s_blocks_run_again_as_a_whole():
    program = transformer(2)
    spans = blocks(program)
    names = again(program)
    for span in spans:
        inside = [op.name for op in program.ops[span.start : span.stop]]
        assert inside[-1] not in names and [name for name in inside[:-2] if name not in names] == []
    peaks = [arrange([program], p, costs()).schedules["TRAIN"].live_peak for p in ("checkpoint_blocks:m", "liveness:m")]
    assert peaks[0] < 0.7 * peaks[1]


def test_an_op_that_changes_what_is_there_runs_once_in_a_block_too():
    """And what reads its result before it is changed stays."""
    program = residual()
    op = next(op for op in program.ops if op.name == "block1/a.forward")
    weight = op.reads[1]
    changing = replace(op, writes=(*op.writes, weight))
    ops = tuple(changing if one is op else one for one in program.ops)
    assert "block1/a.forward" not in again(replace(program, ops=ops))


def test_a_net_without_blocks_is_told_of_sqrt_n():
    with pytest.raises(Lacking, match=r"TRAIN have no names that tell blocks .* sqrt_n finds segments of its own"):
        arrange([chain(4)], "checkpoint_blocks", costs())


def test_a_program_without_backward_has_nothing_to_run_again():
    program = chain(4)
    test = Program("TEST", program.ops[: program.forward], program.inputs, program.persistent, program.outputs)
    assert arrange([test], "checkpoint_blocks:m", costs()).schedules["TEST"].plan.order == test.ops
    assert arrange([test], "selective:m", costs()).schedules["TEST"].plan.order == test.ops
