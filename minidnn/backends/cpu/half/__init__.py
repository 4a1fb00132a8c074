"""Ops on tensors of 16 bits: the recipes of float32, on copies in the workspace.

What an op reads is widened there, and what it writes is rounded once, from there into its place. So arithmetic is that
of float32, and a recipe keeps its name. A read and a write that may have the same bytes share a copy.

Copies of whole tensors would take back what 16 bits save. So most ops go over their tensors in blocks, of which a cache
holds the copies:

- *by elements* (elements.py), where each element of a result depends on the same element of the operands: ReLU, sums,
  updates
- *by rows* (rows.py), as ops in parts of the batch do (memory/parts/): convolutions, inner products, BatchNorm in two
  passes. A parameter's gradient is added up over the blocks in float32, and rounded once
- *by outputs* (outputs.py): inner products with large weights, all rows of them or one block

How large a block is follows from the op's shapes alone. Joins and other moves of elements need no copies (moves.py).
All other ops are converted as a whole.
"""

from minidnn.backends.cpu.half import copies, elements, moves, outputs, rows
from minidnn.backends.cpu.half.copies import Convert, Of, halved, pattern
from minidnn.backends.cpu.recipe import Recipe
from minidnn.program import Op

__all__ = ["halved", "pattern", "recipes"]


def recipes(of: Of, convert: Convert, op: Op) -> list[Recipe]:
    """The recipes of an op with tensors of 16 bits. `of`: those of an op that has none"""
    for way in (moves.recipes, elements.squares, elements.recipes, rows.recipes, outputs.recipes):
        if (result := way(of, convert, op)) is not None:
            return result
    return copies.at_once(of, convert, op)
