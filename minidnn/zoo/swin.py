"""Swin transformers (Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", 2021) on
images of 224×224, in three sizes, with windows of 7×7 tokens.

Tokens lie as (N, H * W, C). Each second block moves the map by half a window, in a circle, before it is cut. Samples
skip either half of a block at random, at the rates of the authors' configurations: they rise from 0 at the first block
to `skipped` at the last.
"""

from __future__ import annotations

from dataclasses import dataclass

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import SMALL, imagenet, linear, mlp, scored


class SwinTiny(Net):
    """Swin-T: 2, 2, 6 and 2 blocks of widths 96, 192, 384 and 768."""

    name = "swin_t"

    def define(
        self, batch: int = 32, size: int = 224, depths: tuple[int, ...] = (2, 2, 6, 2), width: int = 96,
        heads: tuple[int, ...] = (3, 6, 12, 24), window: int = 7, skipped: float = 0.2,
    ) -> None:  # fmt: skip
        x, label = imagenet(batch, size)
        x = L.Convolution(x, name="embed", num_output=width, kernel_size=4, stride=4, weight_filler=SMALL)
        x = L.Permute(L.Reshape(x, name="patches", shape={"dim": [0, 0, -1]}), name="tokens", order=[0, 2, 1])
        x = L.LayerNorm(x, name="embed/norm")
        side, done, last = size // 4, 0, sum(depths) - 1
        for stage, (depth, many) in enumerate(zip(depths, heads, strict=True), 1):
            if stage > 1:
                x = merged(x, f"merge{stage}", side, width)
                side, width = side // 2, 2 * width
            for i in range(depth):
                shift = window // 2 if i % 2 and side > window else 0
                part = Part(f"stage{stage}/block{i + 1}", side, width, many, window, shift, skipped * done / last)
                x = part.block(x)
                done += 1
        x = L.Permute(L.LayerNorm(x, name="norm"), name="channels", order=[0, 2, 1])
        x = L.Reduction(x, name="mean", operation="MEAN", axis=2)
        scored(L.InnerProduct(x, name="head", num_output=1000, weight_filler=SMALL), label)


class SwinSmall(SwinTiny):
    """Swin-S: 2, 2, 18 and 2 blocks of widths 96, 192, 384 and 768."""

    name = "swin_s"

    def define(self, batch: int = 32, size: int = 224, skipped: float = 0.3) -> None:  # type: ignore[override]
        super().define(batch, size, (2, 2, 18, 2), skipped=skipped)


class SwinBase(SwinTiny):
    """Swin-B: 2, 2, 18 and 2 blocks of widths 128, 256, 512 and 1024."""

    name = "swin_b"

    def define(self, batch: int = 32, size: int = 224, skipped: float = 0.5) -> None:  # type: ignore[override]
        super().define(batch, size, (2, 2, 18, 2), 128, (4, 8, 16, 32), skipped=skipped)


@dataclass(frozen=True)
class Part:
    """A block on maps of side × side tokens."""

    name: str
    side: int
    width: int
    heads: int
    window: int
    shift: int
    skipped: float

    def block(self, x: Top) -> Top:
        """Attention within windows, then an MLP, each behind a LayerNorm and added to x."""
        name = self.name
        y = self.cut(L.LayerNorm(x, name=f"{name}/norm1"))
        y = linear(y, f"{name}/qkv", 3 * self.width)
        y = L.Attention(y, self.bias(), name=f"{name}/attention", num_heads=self.heads)
        y = self.joined(linear(y, f"{name}/out", self.width))
        x = L.Eltwise(x, self.skipping(y, "skip1"), name=f"{name}/sum1")
        y = mlp(L.LayerNorm(x, name=f"{name}/norm2"), name, 4 * self.width, self.width)
        return L.Eltwise(x, self.skipping(y, "skip2"), name=f"{name}/sum2")

    def bias(self) -> Top:
        map_ = {"shift": self.shift, "height": self.side, "width": self.side} if self.shift else {}
        return L.RelativePositionBias(
            name=f"{self.name}/bias", num_heads=self.heads, window=self.window, **map_, weight_filler=SMALL
        )

    def cut(self, x: Top) -> Top:
        """Windows as samples: (N, H * W, C) -> (N * windows, window * window, C)."""
        m, n = self.window, self.side // self.window
        x = self.rolled(x, "left", "up", -self.shift)
        x = L.Reshape(x, name=f"{self.name}/grid", shape={"dim": [-1, n, m, n, m * self.width]})
        x = L.Permute(x, name=f"{self.name}/windows", order=[0, 1, 3, 2, 4])
        return L.Reshape(x, name=f"{self.name}/cut", shape={"dim": [-1, m * m, self.width]})

    def joined(self, x: Top) -> Top:
        """The windows as maps again."""
        m, n = self.window, self.side // self.window
        x = L.Reshape(x, name=f"{self.name}/pieces", shape={"dim": [-1, n, n, m, m * self.width]})
        x = L.Permute(x, name=f"{self.name}/lines", order=[0, 1, 3, 2, 4])
        x = L.Reshape(x, name=f"{self.name}/joined", shape={"dim": [-1, self.side**2, self.width]})
        return self.rolled(x, "right", "down", self.shift)

    def rolled(self, x: Top, across: str, down: str, shift: int) -> Top:
        """Tokens (N, H * W, C) moved along lines and columns; x itself without a shift."""
        if not shift:
            return x
        x = L.Roll(x, name=f"{self.name}/{down}", axis=1, shift=shift * self.side)
        x = L.Reshape(x, name=f"{self.name}/{across}_lines", shape={"dim": [-1, self.side, self.width]})
        x = L.Roll(x, name=f"{self.name}/{across}", axis=1, shift=shift)
        return L.Reshape(x, name=f"{self.name}/{across}_tokens", shape={"dim": [-1, self.side**2, self.width]})

    def skipping(self, x: Top, name: str) -> Top:
        if not self.skipped:
            return x
        return L.StochasticDepth(x, name=f"{self.name}/{name}", in_place=True, drop_ratio=self.skipped)


def merged(x: Top, name: str, side: int, width: int) -> Top:
    """Each square of four tokens as one of twice the width: (N, H * W, C) -> (N, H * W / 4, 2 * C)."""
    half = side // 2
    x = L.Reshape(x, name=f"{name}/grid", shape={"dim": [-1, half, 2, half, 2, width]})
    x = L.Permute(x, name=f"{name}/squares", order=[0, 1, 3, 4, 2, 5])
    x = L.Reshape(x, name=f"{name}/four", shape={"dim": [-1, half**2, 4 * width]})
    return linear(L.LayerNorm(x, name=f"{name}/norm"), name, 2 * width, bias=False)
