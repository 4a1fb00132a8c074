"""Constants: what nodes compute from values that are known when the file is read.

FOLDED has a NumPy function for each operator whose cost is known before it runs. Each asks the budget first, which is
in proportion to the file: a file of a few bytes cannot ask for hours or gigabytes. There are no loops, no random
numbers and no texts. `fold` is the way in; which constants it may use is its caller's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minidnn.onnx.constants import elements, moves, reductions
from minidnn.onnx.constants.call import Budget, Call, Function
from minidnn.onnx.node import UNFIT, Node, Refused

__all__ = ["FOLDED", "Budget", "check_places", "fold"]

FOLDED: dict[str, Function] = {**elements.FOLDED, **moves.FOLDED, **reductions.FOLDED}

# The inputs that say shapes, axes, or places along axes: as long as a shape, whose entries handlers read one by one.
PLACES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Squeeze", "Unsqueeze", "Pad", "ConstantOfShape"), (1, 3)),
    "ConstantOfShape": (0,), "Slice": (1, 2, 3, 4), "Resize": (1, 2, 3), "Upsample": (1,), "CumSum": (1,),
    **dict.fromkeys((name for name in reductions.FOLDED if name.startswith("Reduce")), (1,)),
}  # fmt: skip
WITHOUT = {
    **dict.fromkeys(
        ("If", "Loop", "Scan"),
        "it contains subgraphs, and minidnn reads graphs without branches and loops; export it with fixed shapes",
    ),
    **dict.fromkeys(
        ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"),
        "its numbers are random and new in each run, and minidnn's only random layer is Dropout",
    ),
}
LONGEST = 256  # entries; NumPy's arrays have 64 axes at most, and a Pad says two numbers for each


def fold(node: Node, inputs: Sequence[np.ndarray | None], budget: Budget) -> list[np.ndarray]:
    """The node's outputs from its inputs, all known; None for one that is left out.

    Raises Refused, with the reason, if the operator is none of FOLDED, if it cannot compute these, or if the budget
    does not have so much."""
    if node.type not in FOLDED:
        raise Refused(
            WITHOUT.get(node.type, "its inputs are constants, and minidnn does not evaluate this operator on constants")
        )
    check_places(node, {name: x for name, x in zip(node.inputs, inputs, strict=False) if name and x is not None})
    call = Call(node, inputs, budget)
    try:
        with np.errstate(all="ignore"):
            result = FOLDED[node.type](call)
    except UNFIT as error:  # NumPy's words for what does not fit
        raise Refused(f"its constants do not fit: {error}") from error
    return [np.asarray(x) for x in (result if isinstance(result, list) else [result])]


def check_places(node: Node, known: Mapping[str, np.ndarray]) -> None:
    """Raise Refused if a constant that says a shape, axes or places has more entries than any shape has axes."""
    for i in PLACES.get(node.type, ()):
        value = known.get(node.input(i))
        if value is not None and value.size > LONGEST:
            raise Refused(f"its input {node.input(i)!r} has {value.size} entries, and a shape has {LONGEST} at most")
