"""Wide ResNets for CIFAR (Zagoruyko 2016), of any depth and width."""

from __future__ import annotations

from typing import ClassVar

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import MSRA, TRAINED, NoSuchModel, cifar, geometry, scored


class WideResNet(Net):
    """Three groups of blocks with 16, 32 and 64 channels times the width. A block is two 3×3 convolutions.

    As in the Layrub paper's Caffe file, BatchNorm, Scale and ReLU work in place on a block's sum. So the next block's
    shortcut carries their result; Zagoruyko's shortcuts carry the sum. The last block of a group lacks these three.
    """

    blocks: ClassVar[int] = 4  # the number of blocks in each group
    width: ClassVar[int] = 10  # a factor of the channels

    def define(self, batch: int = 128) -> None:
        x, label = cifar(batch)
        x = _active(_conv(x, "conv1", 16, 3), "conv1")
        for group, maps in enumerate((16, 32, 64), 2):
            for i in range(1, self.blocks + 1):
                name = f"{group}_{i}"
                stride = 2 if i == 1 and group > 2 else 1
                y = _active(_conv(x, f"res{name}_a", maps * self.width, 3, stride), f"res{name}_a")
                y = _conv(y, f"res{name}_b", maps * self.width, 3)
                shortcut = _conv(x, f"res{name}_branch1", maps * self.width, 1, stride) if i == 1 else x
                x = L.Eltwise(y, shortcut, name=f"res{name}")
                x = _active(x, f"res{name}") if i < self.blocks else x
        x = L.Pooling(x, name="pool5", pool="AVE", global_pooling=True)
        scored(L.InnerProduct(x, name="fc10", param=TRAINED, num_output=10, weight_filler=MSRA), label, top5=False)


def _conv(x: Top, name: str, outputs: int, kernel: int, stride: int = 1) -> Top:
    shape = geometry(outputs, kernel, stride, kernel // 2)
    return L.Convolution(x, name=name, **shape, bias_term=False, weight_filler=MSRA)


def _active(x: Top, name: str) -> Top:
    x = L.BatchNorm(x, name=f"{name}_bn", in_place=True)
    x = L.Scale(x, name=f"{name}_scale", in_place=True, bias_term=True)
    return L.ReLU(x, name=f"{name}_relu", in_place=True)


def wide_resnet(depth: int, width: int, batch: int = 128) -> Net:
    """The net WRN-depth-width. Raises NoSuchModel for a depth that no Wide ResNet has, or a width below 1.

    With n blocks in each group the depth is 6 n + 2, as in WRN-8 (n = 1). It is 6 n + 4 if the name counts the
    projections, as in WRN-28-10 (n = 4)."""
    blocks, rest = divmod(depth - 2, 6)
    if rest not in (0, 2) or blocks < 1 or width < 1:
        near = 6 * max(blocks, 1)
        raise NoSuchModel(
            f"there is no wrn_{depth}_{width}: its depth is 6 n + 2, or 6 n + 4 with the projections, such as"
            f" wrn_{near + 2}_{max(width, 1)}, wrn_{near + 4}_{max(width, 1)} or wrn_28_10"
        )
    name = f"wrn_{depth}_{width}"
    return type(name, (WideResNet,), {"name": name, "blocks": blocks, "width": width})(batch=batch)
