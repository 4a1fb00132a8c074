"""Checkpoint per block, as PyTorch's users have it: torch.utils.checkpoint around each block of a model, or in
`transformers` gradient_checkpointing_enable(). It is the scheme of Chen et al. 2016 (sqrt_n.py) with a model's own
blocks as segments.

Of a block's tensors only those outlive forward that ops outside of the block read: its result, which is the next
block's input. A block runs again, the last one too, before the first layer of its backward. Like PyTorch's (with
`early_stop`, its default) the run ends with the last op that backward needs. What lies outside of blocks is kept.

The budget changes nothing. sqrt_n finds segments of its own, and stops at a budget.
"""

from __future__ import annotations

from minidnn.costs import Costs
from minidnn.memory.plan import Plan, in_place_sharing
from minidnn.memory.policies.shared.algorithms import Algorithms, choose
from minidnn.memory.policies.shared.blocks import blocks
from minidnn.memory.policies.shared.lacking import Lacking
from minidnn.memory.policies.shared.recompute import Repeatable, by_segments, preserving, read_in_backward
from minidnn.program import Program, Tensor


def checkpoint_blocks(program: Program, costs: Costs, budget: int, algorithms: Algorithms = "m") -> Plan:
    """Only block inputs are kept; blocks are recomputed.

    Raises Lacking where no names of layers tell blocks.
    """
    block = _inner(program, blocks(program))
    if not block and program.forward < len(program.ops):
        raise Lacking(
            f"checkpoint_blocks runs a model's blocks again, and the layers of {program.name} have no names that tell "
            "blocks which are alike, such as block1/conv and block2/conv, or h.0.attn and h.1.attn; sqrt_n finds "
            "segments of its own"
        )
    share = preserving(program, in_place_sharing(program), block.keys())
    able = Repeatable(program, share)
    dropped = block.keys() & able.maker.keys()
    segment = {t: block[t] for t in read_in_backward(program, dropped)}
    return Plan(by_segments(able, segment, dropped), algorithm=choose(program, costs, algorithms), share=share)


def _inner(program: Program, found: list[range]) -> dict[Tensor, int]:
    """{tensor that a block makes, and no op of forward outside of it reads: the block's number}"""
    ops = program.ops[: program.forward]
    number = {p: k for k, span in enumerate(found) for p in span}
    result = {t: number[p] for p, op in enumerate(ops) if p in number for t in op.writes}
    for p, op in enumerate(ops):
        for t in op.reads:
            if t in result and number.get(p) != result[t]:
                del result[t]
    return result
