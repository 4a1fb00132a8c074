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
- *by columns* (columns.py): the gradient of Embed, a sum of rows

How large a block is follows from the op's shapes alone. Joins and other moves of elements need no copies (moves.py).
Some kernels take tensors of 16 bits as they are: those of Dropout, and of LayerNorm and its kin where rows are pieces
of memory. A thread of theirs has a copy of the row that it works on. All other ops are converted as a whole.
"""

from minidnn.backends.cpu.half import columns, copies, elements, moves, outputs, rows
from minidnn.backends.cpu.half.copies import Convert, Of, halved, pattern
from minidnn.backends.cpu.recipe import Recipe
from minidnn.program import Op

__all__ = ["halved", "pattern", "recipes"]


def recipes(of: Of, convert: Convert, op: Op) -> list[Recipe]:
    """The recipes of an op with tensors of 16 bits. `of`: those of kernels that take an op's tensors as they are"""
    for way in (moves.recipes, elements.squares, elements.recipes, rows.recipes, outputs.recipes, columns.recipes):
        if (result := way(of, convert, op)) is not None:
            return result
    return copies.at_once(of, convert, op)
