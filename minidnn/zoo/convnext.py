"""ConvNeXt (Liu et al., "A ConvNet for the 2020s", 2022) on images of 224×224, in its four sizes.

Maps lie with their channels innermost. So the authors' products of channels are 1×1 convolutions here, and their
LayerNorm of channels normalizes axis 1. Samples skip blocks at random, at the rates of the paper's Table 5: they rise
from 0 at the first block to `skipped` at the last.
"""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import SMALL, geometry, imagenet, scored

EPS = 1e-6
LAYER_SCALE = {"type": "constant", "value": 1e-6}


class ConvNeXtTiny(Net):
    """ConvNeXt-T: 3, 3, 9 and 3 blocks of 96, 192, 384 and 768 channels."""

    name = "convnext_tiny"

    def define(
        self, batch: int = 32, size: int = 224, depths: tuple[int, ...] = (3, 3, 9, 3), width: int = 96,
        skipped: float = 0.1,
    ) -> None:  # fmt: skip
        x, label = imagenet(batch, size)
        x = normed(conv(x, "stem", width, 4, 4), "stem/norm")
        done, last = 0, sum(depths) - 1
        for stage, depth in enumerate(depths, 1):
            if stage > 1:
                width *= 2
                x = conv(normed(x, f"down{stage}/norm"), f"down{stage}", width, 2, 2)
            for i in range(1, depth + 1):
                x = block(x, f"stage{stage}/block{i}", width, skipped * done / last)
                done += 1
        x = L.Pooling(x, name="pool", pool="AVE", global_pooling=True)
        x = normed(x, "norm")
        scored(L.InnerProduct(x, name="head", num_output=1000, weight_filler=SMALL), label)


class ConvNeXtSmall(ConvNeXtTiny):
    """ConvNeXt-S: 3, 3, 27 and 3 blocks of 96, 192, 384 and 768 channels."""

    name = "convnext_small"

    def define(self, batch: int = 32, size: int = 224, skipped: float = 0.4) -> None:  # type: ignore[override]
        super().define(batch, size, (3, 3, 27, 3), 96, skipped)


class ConvNeXtBase(ConvNeXtTiny):
    """ConvNeXt-B: 3, 3, 27 and 3 blocks of 128, 256, 512 and 1024 channels."""

    name = "convnext_base"

    def define(self, batch: int = 32, size: int = 224, skipped: float = 0.5) -> None:  # type: ignore[override]
        super().define(batch, size, (3, 3, 27, 3), 128, skipped)


class ConvNeXtLarge(ConvNeXtTiny):
    """ConvNeXt-L: 3, 3, 27 and 3 blocks of 192, 384, 768 and 1536 channels."""

    name = "convnext_large"

    def define(self, batch: int = 32, size: int = 224, skipped: float = 0.5) -> None:  # type: ignore[override]
        super().define(batch, size, (3, 3, 27, 3), 192, skipped)


def block(x: Top, name: str, width: int, skipped: float) -> Top:
    """A depthwise convolution, a norm, and two products of channels with a GELU between them; added to x."""
    y = conv(x, f"{name}/dw", width, 7, pad=3, group=width)
    y = conv(normed(y, f"{name}/norm"), f"{name}/wide", 4 * width)
    y = L.GELU(y, name=f"{name}/gelu", in_place=False)
    y = conv(y, f"{name}/narrow", width)
    y = L.Scale(y, name=f"{name}/scale", in_place=True, filler=LAYER_SCALE)
    if skipped:
        y = L.StochasticDepth(y, name=f"{name}/skip", in_place=True, drop_ratio=skipped)
    return L.Eltwise(x, y, name=f"{name}/sum")


def normed(x: Top, name: str) -> Top:
    """LayerNorm of the channels of each pixel."""
    return L.LayerNorm(x, name=name, axis=1, num_axes=1, eps=EPS)


def conv(x: Top, name: str, maps: int, kernel: int = 1, stride: int = 1, pad: int = 0, group: int = 1) -> Top:
    more = {"group": group} if group > 1 else {}
    return L.Convolution(x, name=name, **geometry(maps, kernel, stride, pad), **more, weight_filler=SMALL)
