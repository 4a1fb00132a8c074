"""ResNet (He 2015) and deeper ones of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import MSRA, TRAINED, NoSuchModel, cifar, geometry, imagenet, scored


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
        x = _groups(x, self.blocks, (64, 128, 256, 512), self.bottleneck, project=self.bottleneck)
        x = L.Pooling(x, name="pool5", pool="AVE", global_pooling=True)
        x = L.InnerProduct(x, name="fc1000", param=TRAINED, num_output=1000, weight_filler=MSRA)
        scored(x, label)


def _groups(x: Top, blocks: Sequence[int], widths: Sequence[int], bottleneck: bool, project: bool) -> Top:
    """Groups of blocks, from 2 on as in the paper's tables. `project`: also the first group begins with a projection,
    as all do whose first block has a stride."""
    for group, (count, maps) in enumerate(zip(blocks, widths, strict=True), 2):
        for i in range(count):
            stride = 2 if i == 0 and group > 2 else 1
            x = residual(x, f"{group}{_letters(i, count)}", maps, stride, bottleneck, i == 0 and (project or group > 2))
    return x


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


class CifarResNet(Net):
    """A ResNet for images of 32×32 (He 2015, section 4.2): three groups of two 3×3 convolutions a block, of 16, 32 and
    64 maps. Each group begins with a projection, as in the Layrub paper's Caffe files, where He's shortcuts pad."""

    blocks: ClassVar[int] = 9  # of each group

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
_LAYRUB = {  # as in its authors' files; of its 302 and 695 they have none
    1001: (3, 57, 270, 3), 1172: (3, 64, 320, 3), 1304: (3, 71, 357, 3), 1484: (3, 81, 407, 3),
    1505: (3, 83, 412, 3), 1511: (3, 83, 414, 3), 1517: (3, 83, 416, 3),
}  # fmt: skip


def resnet(depth: int, batch: int | None = None) -> Net:
    """A ResNet of this many layers that have weights: for CIFAR those that He has for it, else for ImageNet."""
    name, given = f"resnet{depth}", {} if batch is None else {"batch": batch}
    if depth in _CIFAR:
        return type(name, (CifarResNet,), {"name": name, "blocks": (depth - 2) // 6})(**given)
    blocks = residual_blocks(depth)
    return type(name, (ResNet,), {"name": name, "blocks": blocks, "bottleneck": depth not in (18, 34)})(**given)


def superneurons_resnet(depth: int, batch: int = 16) -> Net:
    """The SuperNeurons paper's deep ResNet (its Table 4): n1 = 6, n2 = 32, n4 = 6 blocks, and n3 as the depth asks."""
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
    """Blocks of each group: He's, Layrub's (TACO 2018) where the depth is one of its nets', and otherwise shared out as
    in these. Three layers a block and two besides. Raises NoSuchModel."""
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
    second = total // 6 if total > 50 else 4  # beyond He's about a sixth, as in Layrub's
    return (3, second, total - second - 6, 3)
