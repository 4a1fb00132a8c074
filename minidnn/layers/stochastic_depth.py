"""StochasticDepth: in TRAIN samples are zeroed at random, and the others divided by the probability of being kept."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

from minidnn.layers.base import Layer, Shape, Site
from minidnn.layers.broadcast import BroadcastAttrs
from minidnn.layers.dropout import DropoutAttrs
from minidnn.program import Op, Pass, Tensor


class StochasticDepth(Layer):
    """Ours, after Huang et al., "Deep Networks with Stochastic Depth" (2016), as in torchvision and timm. Put it at the
    end of a residual branch: each sample skips the branch with probability `drop_ratio`. Then y is 0, otherwise x / (1
    - drop_ratio). With `mode: BATCH` all samples of a batch skip it together. In TEST y is x.

    The random numbers are those of a Dropout with one element per sample.
    """

    type = "StochasticDepth"
    field_name = "stochastic_depth_param"
    in_place = True
    keeps_sign = True

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        return [bottoms[0]]

    def factors(self, s: Site, x: Tensor) -> Tensor:
        """What each sample is multiplied with: 0 or 1 / (1 - drop_ratio). Backward needs nothing else."""
        return s.extra("factors", (1,) if self.param.mode == "BATCH" else x.shape[:1] or (1,))

    def forward(self, s: Site) -> Iterable[Op]:
        (x,), (y,) = s.x, s.y
        if not s.train:
            yield s.op("identity.forward", [x], [y], inplace=[(x, y)], flops=x.size)
            return
        factors = self.factors(s, x)
        attrs = DropoutAttrs(self.param.drop_ratio, s.seed, zlib.crc32(self.name.encode()))
        yield s.op("dropout.factors", [s.iteration], [factors], attrs, flops=factors.size)
        yield s.op("broadcast.multiply", [x, factors], [y], BroadcastAttrs(0), [(x, y)], x.size, "forward")

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), (dx,) = s.arriving, s.bottom_gradients
        yield s.op(
            "broadcast.multiply", [dy, self.factors(s, dy)], [dx], BroadcastAttrs(0), [(dy, dx)], dy.size, "backward",
            Pass.BACKWARD,
        )  # fmt: skip
