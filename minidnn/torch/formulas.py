"""The formulas of gradients that autograd would compute, before it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minidnn.errors import InvalidInput
from minidnn.torch.places import Place

if TYPE_CHECKING:
    import torch

_AMAX, _SUMS = "use amax or amin", "multiply factors one by one, or add up logarithms"
# The nodes of autograd whose formulas ask for values where tensors have some, and what to use in their place.
BY_VALUE = {
    **dict.fromkeys(("MaxBackward1", "MinBackward1"), _AMAX),
    **dict.fromkeys(("MedianBackward0", "NanmedianBackward0"), "use median(dim=...) of a flattened tensor"),
    **dict.fromkeys(("ProdBackward0", "ProdBackward1", "CumprodBackward0"), _SUMS),
}


def check_gradients(
    loss: torch.Tensor,
    wanted: Sequence[torch.Tensor],
    name: str,
    place_of: Callable[[Any], Place],
    lasting: Callable[[torch.Tensor], bool],
) -> None:
    """Raise InvalidInput if the loss depends on a parameter that the module does not have, or if values decide how its
    gradient is computed.

    wanted:   the parameters; name: of the module
    place_of: where the op of a node of autograd comes from
    lasting:  whether a tensor is there without the step
    """
    known = {id(t) for t in wanted}
    found: list[Any] = [loss.grad_fn]
    seen = set(found)
    while found:
        node = found.pop()
        if instead := BY_VALUE.get(node.name()):
            raise InvalidInput(
                f"{place_of(node)}: PyTorch chooses the formula of this gradient ({node.name()}) by the values of "
                f"tensors, and a plan is made before values are known: {instead}"
            )
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known and lasting(leaf):
            raise InvalidInput(
                f"the loss depends on a parameter of shape {tuple(leaf.shape)} that is none of {name}'s, so that its "
                "gradient would be lost: make it a parameter of the module, or of a module around both"
            )
        more = {n for n, _ in getattr(node, "next_functions", ()) if n is not None} - seen
        seen |= more
        found += more
