"""ResNet (He 2015) and deeper ones of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from minidnn.define import L, Top
from minidnn.net import Net
from minidnn.zoo.pieces import MSRA, TRAINED, NoSuchModel, geometry, imagenet, scored


class ResNet(Net):
    """Residual blocks in four groups (He 2015), as in its authors' Caffe files: BatchNorm, Scale and ReLU after each
    convolution, the stride of a group in its first block's first convolution, 1×1 projections where shapes change."""

    blocks: ClassVar[Sequence[int]] = ()  # of each group
    bottleneck: ClassVar[bool] = True  # 1×1, 3×3, 1×1 to four times the maps; else two 3×3

    def define(self, batch: int = 32) -> None:
        x, label = imagenet(batch)
        x = _normed(x, "conv1", "bn_conv1", "scale_conv1", 64, 7, 2, 3)
        x = L.ReLU(x, name="conv1_relu", in_place=True)
        x = L.Pooling(x, name="pool1", pool="MAX", kernel_size=3, stride=2)
        for group, (count, maps) in enumerate(zip(self.blocks, (64, 128, 256, 512), strict=True), 2):
            for i in range(count):
                name = f"{group}{_letters(i, count)}"
                stride = 2 if i == 0 and group > 2 else 1
                x = residual(x, name, maps, stride, self.bottleneck, project=i == 0 and (self.bottleneck or stride > 1))
        x = L.Pooling(x, name="pool5", pool="AVE", global_pooling=True)
        x = L.InnerProduct(x, name="fc1000", param=TRAINED, num_output=1000, weight_filler=MSRA)
        scored(x, label)


def residual(x: Top, name: str, maps: int, stride: int, bottleneck: bool, project: bool) -> Top:
    """One block: a plain function of blobs. `name` is such as 2a, and its layers res2a_branch2b, bn2a_branch2b."""
    out = 4 * maps if bottleneck else maps
    shortcut = _branch(x, f"{name}_branch1", out, 1, stride) if project else x
    shapes = ((maps, 1, stride), (maps, 3, 1), (out, 1, 1)) if bottleneck else ((maps, 3, stride), (maps, 3, 1))
    for i, (outputs, kernel, step) in enumerate(shapes):
        branch = f"{name}_branch2{'abc'[i]}"
        x = _branch(x, branch, outputs, kernel, step)
        if i < len(shapes) - 1:
            x = L.ReLU(x, name=f"res{branch}_relu", in_place=True)
    x = L.Eltwise(shortcut, x, name=f"res{name}")
    return L.ReLU(x, name=f"res{name}_relu", in_place=True)


def _branch(x: Top, name: str, outputs: int, kernel: int, stride: int) -> Top:
    return _normed(x, f"res{name}", f"bn{name}", f"scale{name}", outputs, kernel, stride, kernel // 2)


def _normed(x: Top, conv: str, bn: str, scale: str, outputs: int, kernel: int, stride: int, pad: int) -> Top:
    x = L.Convolution(x, name=conv, **geometry(outputs, kernel, stride, pad), bias_term=False, weight_filler=MSRA)
    x = L.BatchNorm(x, name=bn, in_place=True)
    return L.Scale(x, name=scale, in_place=True, bias_term=True)


def _letters(i: int, count: int) -> str:
    """a, b, c ... in a short group; a, b1, b2 ... in a long one."""
    if i == 0:
        return "a"
    return f"b{i}" if count > 6 else "abcdef"[i]


class ResNet18(ResNet):
    """ResNet, 18 layers: eight blocks of two 3×3 convolutions."""

    name = "resnet18"
    blocks = (2, 2, 2, 2)
    bottleneck = False


class ResNet50(ResNet):
    """ResNet, 50 layers: 16 bottlenecks."""

    name = "resnet50"
    blocks = (3, 4, 6, 3)


class ResNet152(ResNet):
    """ResNet, 152 layers: 50 bottlenecks."""

    name = "resnet152"
    blocks = (3, 8, 36, 3)


def resnet(depth: int, batch: int = 32) -> Net:
    """A ResNet of this many layers that have weights: the paper's below 153, SuperNeurons' family above."""
    name = f"resnet{depth}"
    blocks = residual_blocks(depth)
    made = type(name, (ResNet,), {"name": name, "blocks": blocks, "bottleneck": depth not in _BASIC})
    return made(batch=batch)


_BASIC = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


def residual_blocks(depth: int) -> tuple[int, ...]:
    """Blocks of each group. Three layers a block and two besides; beyond 152 layers groups 2, 3 and 5 have 6, 32 and
    6 blocks, as in SuperNeurons' deepest nets, and all the rest are in the fourth. Raises NoSuchModel."""
    if depth in _BASIC:
        return _BASIC[depth]
    total, rest = divmod(depth - 2, 3)
    if rest or total < 11:
        near = 3 * max(total, 11) + 2
        raise NoSuchModel(
            f"there is no resnet{depth}: a ResNet of bottlenecks has 3 layers for each block and 2 more, such as"
            f" resnet{near} or resnet{near + 3} (and there are resnet18 and resnet34)"
        )
    if total > 50:
        return (6, 32, total - 44, 6)
    second = 8 if total == 50 else 4
    return (3, second, total - second - 6, 3)
