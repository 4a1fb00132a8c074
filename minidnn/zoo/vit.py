"""A vision transformer (Dosovitskiy 2021) written as layers: attention is two products of matrices and a softmax.

As in "Better plain ViT baselines" (Beyer 2022) the mean of all patches is classified, so there is no token of a class.
"""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import XAVIER, imagenet, scored


class ViTSmall(Net):
    """ViT-S/16 on images of 224×224: 12 blocks of width 384, 6 heads."""

    name = "vit_small"

    def define(self, batch: int = 32, size: int = 224, patch: int = 16, width: int = 384, blocks: int = 12) -> None:
        x, label = imagenet(batch, size)
        patches, heads = (size // patch) ** 2, width // 64
        x = L.Convolution(x, name="embed", num_output=width, kernel_size=patch, stride=patch, weight_filler=XAVIER)
        x = L.Reshape(x, name="patches", shape={"dim": [0, 0, -1]})
        x = L.Permute(x, name="tokens", order=[0, 2, 1])
        x = L.Bias(x, name="positions", axis=1, num_axes=2, filler={"type": "gaussian", "std": 0.02})
        for i in range(1, blocks + 1):
            y = L.LayerNorm(x, name=f"block{i}/norm1")
            x = L.Eltwise(x, attention(y, f"block{i}/attention", width, heads, patches), name=f"block{i}/sum1")
            y = L.LayerNorm(x, name=f"block{i}/norm2")
            y = _full(y, f"block{i}/mlp1", 4 * width)
            y = L.GELU(y, name=f"block{i}/gelu", in_place=False)
            x = L.Eltwise(x, _full(y, f"block{i}/mlp2", width), name=f"block{i}/sum2")
        x = L.LayerNorm(x, name="norm")
        x = L.Permute(x, name="channels", order=[0, 2, 1])
        x = L.Reduction(x, name="mean", operation="MEAN", axis=2)
        scored(L.InnerProduct(x, name="head", num_output=1000, weight_filler=XAVIER), label)


def attention(x: Top, name: str, width: int, heads: int, patches: int) -> Top:
    """softmax(q k' / sqrt(d)) v for each head, and a product that mixes the heads. x: (N, patches, width)."""
    depth = width // heads
    q, k, v = (_heads(_full(x, f"{name}/{part}", width), f"{name}/{part}", heads, patches, depth) for part in "qkv")
    scores = L.MatMul(q, k, name=f"{name}/scores", transpose_b=True, scale=depth**-0.5)
    weights = L.Softmax(scores, name=f"{name}/weights", axis=2)
    y = L.MatMul(weights, v, name=f"{name}/values")
    y = L.Reshape(y, name=f"{name}/apart", shape={"dim": [-1, heads, patches, depth]})
    y = L.Permute(y, name=f"{name}/back", order=[0, 2, 1, 3])
    y = L.Reshape(y, name=f"{name}/joined", shape={"dim": [0, 0, -1]})
    return _full(y, f"{name}/out", width)


def _heads(x: Top, name: str, heads: int, patches: int, depth: int) -> Top:
    """(N, patches, width) -> (N heads, patches, depth)."""
    x = L.Reshape(x, name=f"{name}_heads", shape={"dim": [0, 0, heads, depth]})
    x = L.Permute(x, name=f"{name}_apart", order=[0, 2, 1, 3])
    return L.Reshape(x, name=f"{name}_joined", shape={"dim": [-1, patches, depth]})


def _full(x: Top, name: str, outputs: int) -> Top:
    return L.InnerProduct(x, name=name, axis=2, num_output=outputs, weight_filler=XAVIER)
