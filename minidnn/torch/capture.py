"""The graph of a step as a Program, with the calls of PyTorch that each op stands for.

A Tensor of the Program is a storage of PyTorch: views of it cost nothing, and are made where an op reads them. An op is
a call that makes new storages. Calls that change a storage in place, directly behind the op that made it, belong to
that op. Any other change in place makes a new version of the storage, which takes the old one's bytes if the plan says
so, and is a copy if the old value is needed longer.

What the caller owns lives on the device from step to step, and its bytes stay where they are (Program.held):
parameters, buffers, the batch, constants, the optimizer's state, and in ACCUMULATE the gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minidnn.program import Program, Tensor
from minidnn.torch.calls import Call, Layout, View
from minidnn.torch.places import Place
from minidnn.torch.traced import Traced

STATE = "optimizer.state"
RESULT, GRADIENTS = "result", "gradients"  # the ops that stand for the caller's reading of results and gradients
FORWARD_ALONE = "TEST"  # the program of a step without gradients


@dataclass(frozen=True, eq=False)
class Source:
    """Where the value of a tensor that the caller owns comes from."""

    what: str  # "parameter", "buffer", "input", "constant", "tangent", "gradient" or "state"
    name: str = ""
    index: int = 0
    value: Any = None


@dataclass(frozen=True, eq=False)
class Capture:
    """A step as a Program.

    calls:     by the name of the op, in order
    layouts:   how each tensor lies, as the call that makes it returns it
    sources:   of the tensors that the caller owns
    loss:      what the step returns: the loss, or without training the tensors that the module returns
    gradients: of each parameter that has one
    places:    where each op comes from
    scratch:   bytes that each op takes beside its results, by its name
    """

    traced: Traced
    program: Program
    calls: Mapping[str, tuple[Call, ...]]
    layouts: Mapping[Tensor, Layout]
    sources: Mapping[Tensor, Source]
    results: tuple[View, ...]
    gradients: Mapping[str, View]
    places: Mapping[str, Place]
    scratch: Mapping[str, int]
