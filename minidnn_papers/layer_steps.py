"""Memory as SuperNeurons counts it (Wang et al., PPoPP 2018, section 3.1): one step a layer, forward then backward.

With N layers, layer k runs forward at step k and backward at step 2N + 1 - k. A step may consist of several kernels;
its bytes are those of all tensors that live during any part of it. Only feature maps and their gradients are counted:
no parameters, labels or workspaces, and no outputs of the program (scalars such as the loss).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minidnn.memory.schedule import Buffer, Listing
from minidnn.program import FORWARD, Op, Role

MAPS = (Role.ACTIVATION, Role.GRADIENT)


@dataclass(frozen=True)
class LayerSteps:
    """The bytes that each layer-wise step of a schedule holds."""

    layers: tuple[str, ...]
    bytes: tuple[int, ...]  # bytes[k - 1] are the most that step k holds
    tensors: int  # how many buffers are counted
    again: int  # how many forward ops ran again

    @property
    def peak(self) -> int:
        return max(self.bytes)

    @property
    def peak_step(self) -> int:
        return self.bytes.index(self.peak) + 1


def counted(listing: Listing) -> list[Buffer]:
    """The buffers that hold a feature map or a gradient of one. A softmax's output is counted through the gradient that
    shares its buffer."""
    outputs = set(listing.program.outputs)
    return [b for b in listing.buffers if any(s.tensor.role in MAPS and s.tensor not in outputs for s in b.residencies)]


def layer_steps(listing: Listing) -> LayerSteps:
    """The bytes of each step. A forward op that runs again is a step of its own; its bytes count for the step that
    follows, which needs its result."""
    ops = listing.program.ops
    layers = tuple(dict.fromkeys(op.layer for op in ops if op.during in FORWARD and op.layer != "objective"))
    number = {layer: k for k, layer in enumerate(layers, 1)}
    buffers = counted(listing)
    order = listing.plan.order
    begins, change = np.zeros(len(order) + 1, np.int64), np.zeros(len(order) + 1, np.int64)
    for b in buffers:
        begins[b.lo] += b.nbytes
        change[b.lo] += b.nbytes
        change[b.hi] -= b.nbytes
    live, begun = np.cumsum(change), np.cumsum(begins)
    held = [0] * (2 * len(layers))
    again = 0
    seen: set[Op] = set()
    waiting = 0  # the most bytes that a re-run held since the last step
    first = 0  # the position of the step's first op in `order`
    for p, op in enumerate(order):
        if op in seen:
            again += 1
            waiting = max(waiting, int(live[p]))
            first = p + 1
            continue
        seen.add(op)
        if p + 1 < len(order) and order[p + 1] not in seen and _same(op, order[p + 1]):
            continue
        if op.layer in number:
            k = number[op.layer] if op.during in FORWARD else 2 * len(layers) + 1 - number[op.layer]
            held[k - 1] = max(held[k - 1], waiting, int(live[first] + begun[p] - begun[first]))
            waiting = 0
        first = p + 1
    return LayerSteps(layers, tuple(held), len(buffers), again)


def _same(a: Op, b: Op) -> bool:
    return a.layer == b.layer and (a.during in FORWARD) == (b.during in FORWARD)
