"""A vision transformer (Dosovitskiy 2021).

As in "Better plain ViT baselines" (Beyer 2022) the mean of all patches is classified, so there is no token of a class.
"""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import SMALL, XAVIER, imagenet, linear, mlp, scored


class ViTSmall(Net):
    """ViT-S/16 on images of 224×224: 12 blocks of width 384, 6 heads."""

    name = "vit_small"

    def define(self, batch: int = 32, size: int = 224, patch: int = 16, width: int = 384, blocks: int = 12) -> None:
        x, label = imagenet(batch, size)
        heads = width // 64
        x = L.Convolution(x, name="embed", num_output=width, kernel_size=patch, stride=patch, weight_filler=XAVIER)
        x = L.Reshape(x, name="patches", shape={"dim": [0, 0, -1]})
        x = L.Permute(x, name="tokens", order=[0, 2, 1])
        x = L.Bias(x, name="positions", axis=1, num_axes=2, filler=SMALL)
        for i in range(1, blocks + 1):
            y = L.LayerNorm(x, name=f"block{i}/norm1")
            x = L.Eltwise(x, attention(y, f"block{i}/attention", width, heads), name=f"block{i}/sum1")
            y = L.LayerNorm(x, name=f"block{i}/norm2")
            x = L.Eltwise(x, mlp(y, f"block{i}", 4 * width, width, filler=XAVIER), name=f"block{i}/sum2")
        x = L.LayerNorm(x, name="norm")
        x = L.Permute(x, name="channels", order=[0, 2, 1])
        x = L.Reduction(x, name="mean", operation="MEAN", axis=2)
        scored(L.InnerProduct(x, name="head", num_output=1000, weight_filler=XAVIER), label)


def attention(x: Top, name: str, width: int, heads: int) -> Top:
    """Attention of all heads, and a product that mixes them. x: (N, patches, width)."""
    q, k, v = (_linear(x, f"{name}/{part}", width) for part in "qkv")
    return _linear(L.Attention(q, k, v, name=f"{name}/heads", num_heads=heads), f"{name}/out", width)


def _linear(x: Top, name: str, outputs: int) -> Top:
    return linear(x, name, outputs, filler=XAVIER)
