"""ResNets: He's (2015), and deeper ones by the same rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import MSRA, TRAINED, NoSuchModel, cifar, geometry, imagenet, scored


class ResNet(Net):
    """Residual blocks in four groups (He 2015), as in its authors' Caffe files.

    BatchNorm, Scale and ReLU follow each convolution. In a group, the first convolution of the first block has the
    stride. Where shapes change, the shortcut is a 1×1 convolution, the projection."""

    blocks: ClassVar[Sequence[int]] = ()  # the number of blocks in each group
    bottleneck: ClassVar[bool] = True  # a block is 1×1, 3×3, and 1×1 to four times the channels; else two 3×3

    def define(self, batch: int = 32) -> None:
        x, label = imagenet(batch)
        x = _normed(x, "conv1", "bn_conv1", "scale_conv1", 64, 7, 2, 3)
        x = L.ReLU(x, name="conv1_relu", in_place=True)
        x = L.Pooling(x, name="pool1", pool="MAX", kernel_size=3, stride=2)
        x = _groups(x, self.blocks, (64, 128, 256, 512), self.bottleneck, project=self.bottleneck)
        x = L.Pooling(x, name="pool5", pool="AVE", global_pooling=True)
        x = L.InnerProduct(x, name="fc1000", param=TRAINED, num_output=1000, weight_filler=MSRA)
        scored(x, label)


def _groups(x: Top, blocks: Sequence[int], widths: Sequence[int], bottleneck: bool, project: bool) -> Top:
    """Groups of blocks, numbered from 2 as in the paper's tables.

    project: whether the first group begins with a projection, too; the others always do, since they have a stride"""
    for group, (count, maps) in enumerate(zip(blocks, widths, strict=True), 2):
        for i in range(count):
            stride = 2 if i == 0 and group > 2 else 1
            x = residual(x, f"{group}{_letters(i, count)}", maps, stride, bottleneck, i == 0 and (project or group > 2))
    return x


def residual(x: Top, name: str, maps: int, stride: int, bottleneck: bool, project: bool) -> Top:
    """One residual block on the blob x. A block named 2a has layers such as res2a_branch2b and bn2a_branch2b."""
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
    """The name of block i in its group: a, b, c ... in a group of up to 6 blocks, a, b1, b2 ... in a longer one."""
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


class CifarResNet(Net):
    """A ResNet for images of 32×32 (He 2015, section 4.2): three groups of blocks with 16, 32 and 64 channels. A block
    is two 3×3 convolutions. Each group begins with a projection, as in the Layrub paper's Caffe files; He's shortcuts
    pad with zeros instead."""

    blocks: ClassVar[int] = 9  # the number of blocks in each group

    def define(self, batch: int = 128) -> None:
        x, label = cifar(batch)
        x = _normed(x, "conv1", "bn_conv1", "scale_conv1", 16, 3, 1, 1)
        x = L.ReLU(x, name="conv1_relu", in_place=True)
        x = _groups(x, (self.blocks,) * 3, (16, 32, 64), bottleneck=False, project=True)
        x = L.Pooling(x, name="pool5", pool="AVE", global_pooling=True)
        scored(L.InnerProduct(x, name="fc10", param=TRAINED, num_output=10, weight_filler=MSRA), label, top5=False)


# -- by depth

_HE = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_CIFAR = (20, 32, 44, 56, 110)
_LAYRUB = {  # as in the authors' files, which lack the paper's depths 302 and 695
    1001: (3, 57, 270, 3), 1172: (3, 64, 320, 3), 1304: (3, 71, 357, 3), 1484: (3, 81, 407, 3),
    1505: (3, 83, 412, 3), 1511: (3, 83, 414, 3), 1517: (3, 83, 416, 3),
}  # fmt: skip


def resnet(depth: int, batch: int | None = None) -> Net:
    """The ResNet with `depth` layers that have weights. He's depths for CIFAR give a net for CIFAR, all others one for
    ImageNet. Raises NoSuchModel for a depth that no ResNet has."""
    name, given = f"resnet{depth}", {} if batch is None else {"batch": batch}
    if depth in _CIFAR:
        return type(name, (CifarResNet,), {"name": name, "blocks": (depth - 2) // 6})(**given)
    blocks = residual_blocks(depth)
    return type(name, (ResNet,), {"name": name, "blocks": blocks, "bottleneck": depth not in (18, 34)})(**given)


def superneurons_resnet(depth: int, batch: int = 16) -> Net:
    """The SuperNeurons paper's deep ResNet (its Table 4): n1 = 6, n2 = 32 and n4 = 6 blocks; n3 follows from the depth.

    Raises NoSuchModel for a depth that is not 3 (44 + n3) + 2."""
    third, rest = divmod(depth - 2 - 3 * (6 + 32 + 6), 3)
    if rest or third < 1:
        near = 3 * max(third, 1) + 134
        raise NoSuchModel(
            f"there is no superneurons_resnet{depth}: its depth is 3 (44 + n3) + 2, such as"
            f" superneurons_resnet{near} or superneurons_resnet{near + 3}"
        )
    name = f"superneurons_resnet{depth}"
    return type(name, (ResNet,), {"name": name, "blocks": (6, 32, third, 6)})(batch=batch)


def residual_blocks(depth: int) -> tuple[int, ...]:
    """The number of blocks in each of the four groups.

    A depth of He's or of Layrub's (TACO 2018) nets has their numbers, any other depth similar ones. A ResNet of
    bottlenecks has three layers per block and two more. Raises NoSuchModel for any other depth."""
    known = {**_HE, **_LAYRUB}
    if depth in known:
        return known[depth]
    total, rest = divmod(depth - 2, 3)
    if rest or total < 11:
        near = 3 * max(total, 11) + 2
        raise NoSuchModel(
            f"there is no resnet{depth}: a ResNet of bottlenecks has 3 layers for each block and 2 more, such as"
            f" resnet{near} or resnet{near + 3} (there are resnet18 and resnet34, too, and for CIFAR"
            f" {', '.join(f'resnet{n}' for n in _CIFAR)})"
        )
    second = total // 6 if total > 50 else 4  # in nets deeper than He's about a sixth, as in Layrub's
    return (3, second, total - second - 6, 3)
