"""The papers' memory facts: what backward reads, what it computes, what may lie in place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from minidnn.program import Tensor


@dataclass(frozen=True)
class Facts:
    """What backward reads, what it computes and what may lie in place: an argument of differentiation, never of a
    policy.

    pool:  what MAX pooling's backward reads beside dy: "index" (a byte per output), "x", or "xy"
    relu:  "y", "xy", or "mask" (a byte per element)
    lrn:   "x" or "xy"
    norm:  what BatchNorm and Scale keep for backward: "x", or "copy": one of their own, so that they work in place
    first_dx: whether layers on the data compute a gradient for it (Caffe's force_backward)
    fork:  a map with several consumers: "view" (they all read it), or "copy" (they read one that a layer made of it)
    sum:   the gradients of an Eltwise sum: "view" (dy itself), or "copy" (each a tensor of its own)
    in_place: kinds of ops that may write over what they read; None: all whose kernels permit it
    What has no kernels is for planning (`planning_only`): the papers' sets, so that their figures come out exactly.
    """

    name: str = "default"
    pool: str = "index"
    relu: str = "y"
    lrn: str = "x"
    norm: str = "x"
    first_dx: bool = False
    fork: str = "view"
    sum: str = "view"
    in_place: frozenset[str] | None = None

    def pairs(self, kind: str, kernel: Iterable[tuple[Tensor, Tensor]]) -> tuple[tuple[Tensor, Tensor], ...]:
        """Of the (read, write) pairs that may share bytes in an op of that kind, those that do."""
        return tuple(kernel) if self.in_place is None or kind in self.in_place else ()

    def planning_only(self) -> str:
        """What of it no backend has kernels for, as text ("pool='x', lrn='xy'"); empty where a net runs with it."""
        kept = replace(Facts(), name=self.name, relu=self.relu, first_dx=self.first_dx)
        differs = (f for f in fields(self) if getattr(self, f.name) != getattr(kept, f.name))
        return ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in differs)


FACTS = {
    "default": Facts(),
    # vDNN, section II: ACTV in place and reading Y, dY; POOL reads X, dY (its Figure 10 read literally)
    "vdnn2016": Facts("vdnn2016", pool="x", relu="y", lrn="xy"),
    # SuperNeurons, section 3.1 and its authors' code: every layer has tensors of its own, but for the gradients of
    # ReLU, LRN and the softmax, which lie over what they are made of; FORK and JOIN are layers like others
    "superneurons": Facts(
        "superneurons",
        pool="xy",
        relu="xy",
        lrn="xy",
        first_dx=True,
        fork="copy",
        sum="copy",
        in_place=frozenset({"relu.backward", "lrn.backward", "softmax_loss.backward", "gradient.add"}),
    ),
    # Caffe: neuron layers in place, as its files write them; a diff for every data, also at each end of a Split
    "caffe": Facts(
        "caffe",
        norm="copy",
        sum="copy",
        in_place=frozenset(
            f"{layer}.{verb}"
            for layer in ("relu", "dropout", "batch_norm", "scale")
            for verb in ("forward", "backward", "backward_data")
        )
        | {"gradient.add"},
    ),
    # Layrub, section 3.2: ReLU's backward reads a byte per element, so that nothing else needs y (it runs, too)
    "layrub": Facts("layrub", relu="mask"),
}
# Layrub as its authors wrote it, on Caffe: that ReLU beside Caffe's other layers
FACTS["layrub2018"] = replace(FACTS["caffe"], name="layrub2018", relu="mask")
