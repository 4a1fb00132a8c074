"""InnerProductWithLoss: the softmax loss of an inner product, without the matrix of all scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from minidnn.layers.base import Parameter, Shape, ShapeError, Site, positive_axis, text
from minidnn.layers.loss import Loss, check_labels
from minidnn.program import Op, Pass, Role, Tensor


@dataclass(frozen=True)
class LinearLossAttrs:
    """As of a SoftmaxWithLoss (layers/softmax.py), whose batch is the number of labels."""

    ignore_label: int | None = None
    normalization: str = "VALID"
    loss_weight: float = 1.0
    label_smoothing: float = 0.0
    rows: int = 512  # whose scores live at a time on a GPU; on a CPU the plan's algorithm says how many
    gradients: tuple[str, ...] = ()  # "dx", "dw": what the op writes behind the loss


class InnerProductWithLoss(Loss):
    """Ours: an InnerProduct without a bias, and a SoftmaxWithLoss of its `num_output` scores, in one. There is a label
    for each row of inputs: (N, T) for a bottom (N, T, E) with `axis: 2`.

    Some rows' scores live at a time, and never all of them. Since a loss is where gradients begin, forward computes
    those of the bottom and of the weights, too, while it has the scores (Hsu et al., "Liger Kernel: Efficient Triton
    Kernels for LLM Training", 2024): those that are wanted. The weights (num_output, E) may be those of an Embed."""

    type = "InnerProductWithLoss"
    field_name = "inner_product_param"
    also = ("loss_param",)
    bottoms: ClassVar[tuple[int, int | None]] = (2, 2)
    targets: ClassVar[tuple[int, ...]] = (1,)
    labels = 1

    def attrs(self, gradients: Iterable[str] = ()) -> LinearLossAttrs:
        loss, weight = self.spec.loss_param, self.loss_weight()
        return LinearLossAttrs(loss.ignore_label, loss.mode(), weight, loss.label_smoothing, gradients=tuple(gradients))

    def classes(self, bottoms: Sequence[Shape]) -> int | None:
        return self.param.num_output

    @property
    def ignored(self) -> int | None:
        return self.spec.loss_param.ignore_label

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        p, (shape, labels) = self.param, bottoms
        if p.bias_term or p.transpose:
            raise ShapeError(f"{self.type} has no bias and no transposed weights: set bias_term: false")
        if len(shape) == 4 or len(labels) == 4:
            raise ShapeError(
                f"expected at most 3 axes, got {text(shape)} and labels {text(labels)}: flatten them before"
            )
        lead = shape[: positive_axis(p.axis, shape)]
        check_labels((*lead, p.num_output), labels, len(lead))
        return [(1,)]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        inner = math.prod(bottoms[0][positive_axis(self.param.axis, bottoms[0]) :])
        return [Parameter("w", (self.param.num_output, inner), self.param.weight_filler, *self.mults(0))]

    def forward(self, s: Site) -> Iterable[Op]:
        (x, label), w = s.x, s.p["w"]
        products = 2 * x.size * self.param.num_output
        kept = self._gradients(s)
        attrs, writes, flops = self.attrs(kept), [s.y[0], *kept.values()], products * (1 + len(kept))
        yield s.op("linear_loss.forward", [x, w, label], writes, attrs, (), flops, during=Pass.LOSS)

    def gradients(self, s: Site) -> Iterable[Op]:
        kept = self._gradients(s)
        if s.dx[0] is not None:
            s.pass_through(0, kept["dx"])
        if s.dp["w"] is not None:
            s.dp["w"] = kept["dw"]
        return ()

    def _gradients(self, s: Site) -> dict[str, Tensor]:
        """Those that are wanted of the bottom, "dx", and of the weights, "dw": forward writes them."""
        all_ = (("dx", s.x[0], Role.GRADIENT), ("dw", s.p["w"], Role.PARAM_GRADIENT))
        return {name: s.extra(name, t.shape, t.dtype, role) for name, t, role in all_ if t in s.wanted}
