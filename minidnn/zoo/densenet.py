"""DenseNet (Huang 2017): each layer reads the channels of all earlier layers in its block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import MSRA, TRAINED, geometry, imagenet, scored

GROWTH = 32  # channels that a layer adds


class DenseNet(Net):
    """DenseNet-BC: a 1×1 convolution to four times GROWTH channels comes before each 3×3 convolution. After each block
    but the last, another 1×1 convolution halves the channels."""

    layers_of: ClassVar[Sequence[int]] = ()  # the number of layers in each block

    def define(self, batch: int = 32) -> None:
        x, label = imagenet(batch)
        x = _conv(x, "conv1", 64, 7, 2)
        x = L.Pooling(_active(x, "conv1", in_place=True), name="pool1", pool="MAX", kernel_size=3, stride=2)
        maps = 64
        for block, count in enumerate(self.layers_of, 2):
            for i in range(1, count + 1):
                x = _dense(x, f"conv{block}_{i}")
            maps += count * GROWTH
            x = _active(x, f"conv{block}_blk", in_place=True)
            if block < len(self.layers_of) + 1:
                maps //= 2
                x = _conv(x, f"conv{block}_blk", maps, 1)
                x = L.Pooling(x, name=f"pool{block}", pool="AVE", kernel_size=2, stride=2)
        x = L.Pooling(x, name="pool5", pool="AVE", global_pooling=True)
        scored(L.InnerProduct(x, name="fc6", param=TRAINED, num_output=1000, weight_filler=MSRA), label)


class DenseNet121(DenseNet):
    """DenseNet, 121 layers: blocks of 6, 12, 24 and 16."""

    name = "densenet121"
    layers_of = (6, 12, 24, 16)


def _dense(x: Top, name: str) -> Top:
    """x with GROWTH more channels. The Concat reads x again, so no layer may work on x in place."""
    y = _conv(_active(x, f"{name}/x1", in_place=False), f"{name}/x1", 4 * GROWTH, 1)
    y = _conv(_active(y, f"{name}/x2", in_place=True), f"{name}/x2", GROWTH, 3)
    return L.Concat(x, y, name=f"concat_{name.removeprefix('conv')}")


def _conv(x: Top, name: str, outputs: int, kernel: int, stride: int = 1) -> Top:
    shape = geometry(outputs, kernel, stride, kernel // 2)
    return L.Convolution(x, name=name, **shape, bias_term=False, weight_filler=MSRA)


def _active(x: Top, name: str, in_place: bool) -> Top:
    x = L.BatchNorm(x, name=f"{name}/bn", **({"in_place": True} if in_place else {}))
    x = L.Scale(x, name=f"{name}/scale", in_place=True, bias_term=True)
    return L.ReLU(x, name=f"relu_{name}", in_place=True)
