"""VGG (Simonyan 2014), and the vDNN paper's nets of hundreds of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from minidnn.nets.define import L
from minidnn.nets.net import Net
from minidnn.zoo.pieces import MSRA, TRAINED, NoSuchModel, full, imagenet, scored


class VGG(Net):
    """3×3 convolutions in five groups with 64 to 512 channels, and three fully connected layers (Simonyan 2014)."""

    convs: ClassVar[Sequence[int]] = ()  # the number of convolutions in each group

    def define(self, batch: int = 64) -> None:
        x, label = imagenet(batch)
        for i, (count, maps) in enumerate(zip(self.convs, (64, 128, 256, 512, 512), strict=True), 1):
            for j in range(1, count + 1):
                x = L.Convolution(
                    x, name=f"conv{i}_{j}", param=TRAINED, num_output=maps, pad=1, kernel_size=3, weight_filler=MSRA
                )
                x = L.ReLU(x, name=f"relu{i}_{j}", in_place=True)
            x = L.Pooling(x, name=f"pool{i}", pool="MAX", kernel_size=2, stride=2)
        for i in (6, 7):
            x = full(x, f"fc{i}", 4096)
            x = L.ReLU(x, name=f"relu{i}", in_place=True)
            x = L.Dropout(x, name=f"drop{i}", in_place=True, dropout_ratio=0.5)
        scored(full(x, "fc8", 1000), label)


class VGG16(VGG):
    """VGG, configuration D: 13 convolutions."""

    name = "vgg16"
    convs = (2, 2, 3, 3, 3)


class VGG19(VGG):
    """VGG, configuration E: 16 convolutions. (The vDNN paper calls it VGG-16.)"""

    name = "vgg19"
    convs = (2, 2, 4, 4, 4)


def deep_vgg(convs: int, batch: int = 32) -> Net:
    """The vDNN paper's VGG-116 ... 416: configuration E with equally many further convolutions in each group.

    convs: the number of convolutions; raises NoSuchModel unless it is 21, 26, 31 ..."""
    more, rest = divmod(convs - 16, 5)
    if rest or more < 1:
        near = 5 * max(more, 1) + 16
        raise NoSuchModel(
            f"there is no vgg{convs}: vgg19 has 16 convolutions and a deep one 5, 10, 15 ... more, such as"
            f" vgg{near}, vgg{near + 5} or vgg416 (and there are vgg16 and vgg19)"
        )
    name = f"vgg{convs}"
    made = type(name.upper(), (VGG,), {"name": name, "convs": tuple(more + n for n in VGG19.convs)})
    return made(batch=batch)
