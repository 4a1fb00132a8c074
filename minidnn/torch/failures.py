"""What PyTorch raises while a module is traced, as a text that a user can act on."""

from __future__ import annotations

import re
from collections.abc import Iterable

from minidnn.errors import few
from minidnn.torch.guards import CHECKPOINT
from minidnn.torch.places import Place


def placed(text: str) -> bool:
    """Whether a message begins with a place."""
    return re.match(r"\S+:\d+", text) is not None


def decided(op: str, name: str) -> str:
    """Why values that a tensor does not have yet are not to be asked for. op: what asks; name: of the module"""
    return (
        f"the values of a tensor decide what {name} computes next, or how large a result is ({op}): a plan is made "
        "before values are known. Use torch.where or masks of a fixed shape, or leave this out of the module"
    )


def reason(error: Exception, name: str, changing: Iterable[Place]) -> str:
    """What is wrong. name: of the module; changing: where ops run in place"""
    kind, text = type(error).__name__, str(error).strip().partition("\n")[0]
    if CHECKPOINT in str(error) or "torch.utils.checkpoint" in str(error):
        return CHECKPOINT
    if kind in ("DataDependentOutputException", "DynamicOutputShapeException") or "data-dependent" in text:
        return decided(text, name)
    if ".numpy() is not supported" in text or "data is not allocated yet" in text:
        return decided(text, name)
    if "modified by an inplace operation" in text:
        places = few([str(place) for place in changing], 3)
        return (
            f"{name} changes a tensor in place that its backward pass needs "
            f"({text.partition(':')[2].strip() or text}); "
            f"ops in place: {places or 'none is known'}: use those that are not, or change a copy (x.clone())"
        )
    if kind in (
        "UnsupportedOperatorException",
        "UnsupportedFakeTensorException",
        "UnsupportedMutationAliasingException",
    ):
        return f"{name} uses a kernel whose result's shape PyTorch cannot tell ({text}): register a fake kernel for it"
    return f"{name} cannot be traced: {kind}: {text}"
