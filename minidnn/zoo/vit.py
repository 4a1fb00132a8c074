"""Vision transformers (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021), on patches of 16×16.

vit_s, vit_b and vit_l classify a token of their own, as published. vit_small is that of "Better plain ViT baselines"
(Beyer 2022), which classifies the mean of all patches.
"""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import SMALL, XAVIER, block, imagenet, linear, mlp, scored

EPS = 1e-6


class ViTSmall(Net):
    """ViT-S/16 on images of 224×224: 12 blocks of width 384, 6 heads."""

    name = "vit_small"

    def define(self, batch: int = 32, size: int = 224, patch: int = 16, width: int = 384, blocks: int = 12) -> None:
        x, label = imagenet(batch, size)
        heads = width // 64
        x = L.Bias(patches(x, patch, width), name="positions", axis=1, num_axes=2, filler=SMALL)
        for i in range(1, blocks + 1):
            y = L.LayerNorm(x, name=f"block{i}/norm1")
            x = L.Eltwise(x, attention(y, f"block{i}/attention", width, heads), name=f"block{i}/sum1")
            y = L.LayerNorm(x, name=f"block{i}/norm2")
            x = L.Eltwise(x, mlp(y, f"block{i}", 4 * width, width, filler=XAVIER), name=f"block{i}/sum2")
        x = L.LayerNorm(x, name="norm")
        x = L.Permute(x, name="channels", order=[0, 2, 1])
        x = L.Reduction(x, name="mean", operation="MEAN", axis=2)
        scored(L.InnerProduct(x, name="head", num_output=1000, weight_filler=XAVIER), label)


class ViTBase(Net):
    """ViT-B/16 on images of 224×224: 12 blocks of width 768, 12 heads."""

    name = "vit_b"

    def define(
        self, batch: int = 32, size: int = 224, patch: int = 16, width: int = 768, blocks: int = 12, heads: int = 12
    ) -> None:
        x, label = imagenet(batch, size)
        x = L.ClassToken(patches(x, patch, width), name="class")
        x = L.Bias(x, name="positions", axis=1, num_axes=2, filler=SMALL)
        for i in range(1, blocks + 1):
            x = block(x, f"block{i}", width, heads, {"eps": EPS})
        # Each token is normalized by itself, so the others need not be.
        x, others = L.Slice(x, name="first", top=["first", "others"], slice_point=1)
        L.Silence(others, name="unread")
        x = L.Flatten(L.LayerNorm(x, name="norm", eps=EPS), name="features")
        scored(L.InnerProduct(x, name="head", num_output=1000, weight_filler=SMALL), label)


class ViTLarge(ViTBase):
    """ViT-L/16 on images of 224×224: 24 blocks of width 1024, 16 heads."""

    name = "vit_l"

    def define(self, batch: int = 32, size: int = 224, patch: int = 16) -> None:  # type: ignore[override]
        super().define(batch, size, patch, 1024, 24, 16)


class ViTS(ViTBase):
    """ViT-S/16 on images of 224×224 (Touvron et al., "Training data-efficient image transformers", 2021): 12 blocks of
    width 384, 6 heads."""

    name = "vit_s"

    def define(self, batch: int = 32, size: int = 224, patch: int = 16) -> None:  # type: ignore[override]
        super().define(batch, size, patch, 384, 12, 6)


def patches(x: Top, side: int, width: int) -> Top:
    """The patches of images as tokens: (N, 3, H, W) -> (N, H / side * W / side, width)."""
    x = L.Convolution(x, name="embed", num_output=width, kernel_size=side, stride=side, weight_filler=XAVIER)
    x = L.Reshape(x, name="patches", shape={"dim": [0, 0, -1]})
    return L.Permute(x, name="tokens", order=[0, 2, 1])


def attention(x: Top, name: str, width: int, heads: int) -> Top:
    """Attention of all heads, and a product that mixes them. x: (N, patches, width)."""
    q, k, v = (_linear(x, f"{name}/{part}", width) for part in "qkv")
    return _linear(L.Attention(q, k, v, name=f"{name}/heads", num_heads=heads), f"{name}/out", width)


def _linear(x: Top, name: str, outputs: int) -> Top:
    return linear(x, name, outputs, filler=XAVIER)
