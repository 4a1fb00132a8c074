"""Inception v3 (Szegedy 2015, "Rethinking") and v4 (Szegedy 2016): modules of parallel branches of convolutions.

A branch is a list of convolutions, each (channels, kernel) or (channels, kernel, stride). A kernel is a number or
(height, width). A convolution without a stride is padded so that the image keeps its size; one with a stride is not
padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import MSRA, TRAINED, imagenet, scored

TALL, WIDE = (7, 1), (1, 7)
Step = tuple[Any, ...]
SPLIT: tuple[tuple[int, int], tuple[int, int]] = ((1, 3), (3, 1))  # at the end of a branch: two parallel convolutions


class InceptionV3(Net):
    """Inception v3 on images of 299×299, without the auxiliary classifier."""

    name = "inception_v3"

    def define(self, batch: int = 32) -> None:
        x, label = imagenet(batch, 299)
        x = _conv(x, "conv1", 32, 3, 2)
        x = _conv(x, "conv2", 32, 3, valid=True)
        x = _conv(x, "conv3", 64, 3)
        x = L.Pooling(x, name="pool1", pool="MAX", kernel_size=3, stride=2)
        x = _conv(x, "conv4", 80, 1)
        x = _conv(x, "conv5", 192, 3, valid=True)
        x = L.Pooling(x, name="pool2", pool="MAX", kernel_size=3, stride=2)
        for i, pool in enumerate((32, 64, 64), 1):
            branches: list[list[Step]] = [[(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)]]
            x = module(x, f"a{i}", branches, pool)
        x = reduction(x, "reduction_a", [[(384, 3, 2)], [(64, 1), (96, 3), (96, 3, 2)]])
        for i, n in enumerate((128, 160, 160, 192), 1):
            once = [(n, 1), (n, WIDE), (192, TALL)]
            twice = [(n, 1), (n, TALL), (n, WIDE), (n, TALL), (192, WIDE)]
            x = module(x, f"b{i}", [[(192, 1)], once, twice], 192)
        x = reduction(x, "reduction_b", [[(192, 1), (320, 3, 2)], [(192, 1), (192, WIDE), (192, TALL), (192, 3, 2)]])
        for i in (1, 2):
            branches = [[(320, 1)], [(384, 1), (384, SPLIT)], [(448, 1), (384, 3), (384, SPLIT)]]
            x = module(x, f"c{i}", branches, 192)
        _end(x, label, 0.5)


class InceptionV4(Net):
    """Inception v4 on images of 299×299."""

    name = "inception_v4"

    def define(self, batch: int = 32) -> None:
        x, label = imagenet(batch, 299)
        x = _conv(x, "conv1", 32, 3, 2)
        x = _conv(x, "conv2", 32, 3, valid=True)
        x = _conv(x, "conv3", 64, 3)
        x = reduction(x, "stem1", [[(96, 3, 2)]])
        left = _conv(_conv(x, "stem2/1_1", 64, 1), "stem2/1_2", 96, 3, valid=True)
        right = _chain(x, "stem2/2", [(64, 1), (64, WIDE), (64, TALL)])
        x = L.Concat(left, _conv(right, "stem2/2_4", 96, 3, valid=True), name="stem2")
        x = reduction(x, "stem3", [[(192, 3, 2)]])
        for i in range(1, 5):
            x = module(x, f"a{i}", [[(96, 1)], [(64, 1), (96, 3)], [(64, 1), (96, 3), (96, 3)]], 96)
        x = reduction(x, "reduction_a", [[(384, 3, 2)], [(192, 1), (224, 3), (256, 3, 2)]])
        for i in range(1, 8):
            once = [(192, 1), (224, WIDE), (256, TALL)]
            twice = [(192, 1), (192, TALL), (224, WIDE), (224, TALL), (256, WIDE)]
            x = module(x, f"b{i}", [[(384, 1)], once, twice], 128)
        x = reduction(x, "reduction_b", [[(192, 1), (192, 3, 2)], [(256, 1), (256, WIDE), (320, TALL), (320, 3, 2)]])
        for i in range(1, 4):
            once = [(384, 1), (256, SPLIT)]
            twice = [(384, 1), (448, (3, 1)), (512, (1, 3)), (256, SPLIT)]
            x = module(x, f"c{i}", [[(256, 1)], once, twice], 256)
        _end(x, label, 0.2)


def module(x: Top, name: str, branches: Sequence[Sequence[Step]], pool: int) -> Top:
    """The Concat of parallel branches. One more branch is a mean over 3×3 and a 1×1 convolution to `pool` channels."""
    ends = _ends(x, name, branches)
    mean = L.Pooling(x, name=f"{name}/pool", pool="AVE", kernel_size=3, stride=1, pad=1)
    return L.Concat(*ends, _conv(mean, f"{name}/pool_proj", pool, 1), name=name)


def reduction(x: Top, name: str, branches: Sequence[Sequence[Step]]) -> Top:
    """The Concat of branches that end with a stride of 2. One more branch is MAX pooling over 3×3 with stride 2."""
    ends = _ends(x, name, branches)
    return L.Concat(*ends, L.Pooling(x, name=f"{name}/pool", pool="MAX", kernel_size=3, stride=2), name=name)


def _ends(x: Top, name: str, branches: Sequence[Sequence[Step]]) -> list[Top]:
    """The tops of the branches; a branch that ends in SPLIT has two."""
    ends = []
    for i, steps in enumerate(branches, 1):
        if steps[-1][1] == SPLIT:
            y, maps = _chain(x, f"{name}/{i}", steps[:-1]), steps[-1][0]
            last = len(steps)
            ends += [_conv(y, f"{name}/{i}_{last}{side}", maps, k) for side, k in zip("ab", SPLIT, strict=True)]
        else:
            ends.append(_chain(x, f"{name}/{i}", steps))
    return ends


def _chain(x: Top, name: str, steps: Sequence[Step]) -> Top:
    for j, step in enumerate(steps, 1):
        x = _conv(x, f"{name}_{j}", *step)
    return x


def _conv(x: Top, name: str, maps: int, kernel: int | tuple[int, int], stride: int = 1, valid: bool = False) -> Top:
    """Convolution, BatchNorm, Scale and ReLU. The convolution is not padded if it has a stride or is `valid`."""
    h, w = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    fields: dict[str, Any] = {"kernel_size": h} if h == w else {"kernel_h": h, "kernel_w": w}
    if stride > 1:
        fields["stride"] = stride
    elif not valid and (h, w) != (1, 1):
        fields |= {"pad": h // 2} if h == w else {"pad_h": h // 2, "pad_w": w // 2}
    x = L.Convolution(x, name=name, num_output=maps, **fields, bias_term=False, weight_filler=MSRA)
    x = L.BatchNorm(x, name=f"{name}/bn", in_place=True, eps=1e-3)
    x = L.Scale(x, name=f"{name}/scale", in_place=True, bias_term=True)
    return L.ReLU(x, name=f"{name}/relu", in_place=True)


def _end(x: Top, label: Top, ratio: float) -> None:
    x = L.Pooling(x, name="pool5", pool="AVE", global_pooling=True)
    x = L.Dropout(x, name="drop5", in_place=True, dropout_ratio=ratio)
    scored(L.InnerProduct(x, name="fc1000", param=TRAINED, num_output=1000, weight_filler=MSRA), label)
