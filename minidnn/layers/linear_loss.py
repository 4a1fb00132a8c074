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
    gradients: tuple[str, ...] = ()  # of "dx", "dw", "db" in this order: what the op writes behind the loss


class InnerProductWithLoss(Loss):
    """Ours: an InnerProduct and a SoftmaxWithLoss of its `num_output` scores in one layer. Each row of inputs has a
    label: (N, T) for a bottom (N, T, E) with `axis: 2`.

    Only some rows' scores are in memory at a time. Gradients begin at a loss, so forward also computes the required
    gradients of the bottom, the weights and the bias while it has the scores (Hsu et al., "Liger Kernel: Efficient
    Triton Kernels for LLM Training", 2024). The weights (num_output, E) may be shared with an Embed.
    """

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
        if p.transpose:
            raise ShapeError(f"{self.type} has no transposed weights: leave out transpose")
        if len(shape) == 4 or len(labels) == 4:
            raise ShapeError(
                f"expected at most 3 axes, got {text(shape)} and labels {text(labels)}: flatten them before"
            )
        lead = shape[: positive_axis(p.axis, shape)]
        check_labels((*lead, p.num_output), labels, len(lead))
        return [(1,)]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        inner = math.prod(bottoms[0][positive_axis(self.param.axis, bottoms[0]) :])
        return self.weight_and_bias((self.param.num_output, inner))

    def forward(self, s: Site) -> Iterable[Op]:
        (x, label), (w, *bias) = s.x, s.p.values()
        kept, scores = self._gradients(s), label.size * self.param.num_output
        products = 2 * x.size * self.param.num_output
        flops = products + sum(scores if name == "db" else products for name in kept)
        reads, writes = [x, w, label, *bias], [s.y[0], *kept.values()]
        yield s.op("linear_loss.forward", reads, writes, self.attrs(kept), (), flops, during=Pass.LOSS)

    def gradients(self, s: Site) -> Iterable[Op]:
        kept = self._gradients(s)
        if s.dx[0] is not None:
            s.pass_through(0, kept["dx"])
        s.dp |= {name: kept[f"d{name}"] for name, dp in s.dp.items() if dp is not None}
        return ()

    def _gradients(self, s: Site) -> dict[str, Tensor]:
        """Those that are wanted of the bottom, "dx", and of the parameters, "dw" and "db": forward writes them."""
        parameters = [(f"d{name}", t, Role.PARAM_GRADIENT) for name, t in s.p.items()]
        each = [("dx", s.x[0], Role.GRADIENT), *parameters]
        return {name: s.extra(name, t.shape, t.dtype, role) for name, t, role in each if t in s.wanted}
