"""MobileNet v1 (Howard 2017) and v2 (Sandler 2018): depthwise convolutions, each with 1×1 convolutions around it."""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import MSRA, TRAINED, geometry, imagenet, scored

SEPARABLE = (  # v1: (channels, stride) of each pair of a depthwise and a 1×1 convolution
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1),
)  # fmt: skip
BOTTLENECKS = (  # v2, Table 2: (expansion, channels, repeats, stride of the first)
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class MobileNetV1(Net):
    """MobileNet v1 on images of 224×224, of full width."""

    name = "mobilenet_v1"

    def define(self, batch: int = 32) -> None:
        x, label = imagenet(batch)
        x, channels = conv(x, "conv1", 32, 3, 2), 32
        for i, (maps, stride) in enumerate(SEPARABLE, 2):
            x = conv(x, f"conv{i}/dw", channels, 3, stride, group=channels)
            x, channels = conv(x, f"conv{i}/sep", maps, 1), maps
        _end(x, label)


class MobileNetV2(Net):
    """MobileNet v2 on images of 224×224, of full width. Its activation is ReLU, as in its Caffe versions: the paper's
    ReLU6 would be a Clip."""

    name = "mobilenet_v2"

    def define(self, batch: int = 32) -> None:
        x, label = imagenet(batch)
        x, channels = conv(x, "conv1", 32, 3, 2), 32
        block = 0
        for expansion, maps, repeats, first in BOTTLENECKS:
            for k in range(repeats):
                block += 1
                x = bottleneck(x, f"block{block}", channels, expansion, maps, first if k == 0 else 1)
                channels = maps
        _end(conv(x, "conv_last", 1280, 1), label)


def bottleneck(x: Top, name: str, channels: int, expansion: int, maps: int, stride: int) -> Top:
    """Expand by 1×1, convolve each channel alone, project by 1×1 without an activation; then add x if shapes agree."""
    wide = channels * expansion
    y = x if expansion == 1 else conv(x, f"{name}/expand", wide, 1)
    y = conv(y, f"{name}/dw", wide, 3, stride, group=wide)
    y = conv(y, f"{name}/linear", maps, 1, relu=False)
    return L.Eltwise(x, y, name=name) if stride == 1 and channels == maps else y


def conv(x: Top, name: str, maps: int, kernel: int, stride: int = 1, group: int = 1, relu: bool = True) -> Top:
    """Convolution, BatchNorm, Scale and, if asked, ReLU. The convolution is padded to keep the size but for strides."""
    more = {"group": group} if group > 1 else {}
    fields = geometry(maps, kernel, stride, kernel // 2)
    x = L.Convolution(x, name=name, **fields, **more, bias_term=False, weight_filler=MSRA)
    x = L.BatchNorm(x, name=f"{name}/bn", in_place=True)
    x = L.Scale(x, name=f"{name}/scale", in_place=True, bias_term=True)
    return L.ReLU(x, name=f"{name}/relu", in_place=True) if relu else x


def _end(x: Top, label: Top) -> None:
    x = L.Pooling(x, name="pool", pool="AVE", global_pooling=True)
    scored(L.InnerProduct(x, name="fc", param=TRAINED, num_output=1000, weight_filler=MSRA), label)
