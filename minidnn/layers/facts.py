"""Memory facts, minidnn's own and the papers': what backward reads and computes, and which ops work in place.

A net runs under facts for which there are kernels: the default, which is the leanest, and `layrub`. The others are for
planning: with a paper's facts the plans have the paper's figures, and no policy knows a paper's number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from minidnn.program import Tensor


@dataclass(frozen=True)
class Facts:
    """A choice of what backward reads and computes, and of the ops that may work in place. Facts are an argument of
    differentiation, never of a policy.

    pool:  what MAX pooling's backward reads, apart from dy: "index" (a byte per output), "x", or "xy"
    relu:  the same for ReLU's backward: "y", "xy", or "mask" (a byte per element)
    lrn:   the same for LRN's backward: "x" or "xy"
    norm:  what BatchNorm and Scale keep for backward: "x", or "copy", a copy of their own so that they work in place
           (BatchNorm then has two more maps to compute in, as in Caffe)
    first_dx: whether layers that read the data compute a gradient for it (Caffe's force_backward)
    fork:  what the consumers of an activation read if there are several: "view" (itself), or "copy" (a copy of it)
    sum:   the gradients of an Eltwise sum: "view" (dy itself), or "copy" (a tensor for each)
    in_place: the kinds of ops that may overwrite a tensor that they read; None: all kinds whose kernels permit it

    No backend has kernels for some of the papers' facts (`planning_only`). Those are for plans that reproduce the
    papers' figures exactly.
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
        """The (read, write) pairs that may share bytes in an op of that kind, of those that its kernel permits."""
        return tuple(kernel) if self.in_place is None or kind in self.in_place else ()

    def planning_only(self) -> str:
        """The facts that no backend has kernels for, as text ("pool='x', lrn='xy'"); empty if a net can run so."""
        kept = replace(Facts(), name=self.name, relu=self.relu, first_dx=self.first_dx)
        differs = (f for f in fields(self) if getattr(self, f.name) != getattr(kept, f.name))
        return ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in differs)


FACTS = {
    "default": Facts(),
    # vDNN, section II: ACTV works in place and reads Y, dY; POOL reads X, dY (Figure 10 taken literally)
    "vdnn2016": Facts("vdnn2016", pool="x", relu="y", lrn="xy"),
    # SuperNeurons, section 3.1 and its authors' code: no op works in place, except the backward of ReLU, LRN and the
    # softmax loss, and sums of gradients. FORK and JOIN are layers with tensors of their own.
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
    # Caffe: ReLU, Dropout, BatchNorm, Scale, Bias work in place, as its files write them. Each blob has a gradient of
    # its own, and so has each copy that a Split makes.
    "caffe": Facts(
        "caffe",
        norm="copy",
        sum="copy",
        in_place=frozenset(
            f"{layer}.{verb}"
            for layer in ("relu", "dropout", "batch_norm", "scale")
            for verb in ("forward", "backward", "backward_data")
        )
        | {"broadcast.add", "gradient.add"},
    ),
    # Layrub, section 3.2: ReLU's backward reads a byte per element, so that no backward needs y. There are kernels.
    "layrub": Facts("layrub", relu="mask"),
}
# Layrub as its authors implemented it, in Caffe: the ReLU of "layrub" with the other layers of "caffe"
FACTS["layrub2018"] = replace(FACTS["caffe"], name="layrub2018", relu="mask")
