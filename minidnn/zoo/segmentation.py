"""Nets that give a class to each pixel: FCN-32s (Long 2015) and U-Net (Ronneberger 2015)."""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import MSRA, TRAINED, geometry

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # of VGG-16: channels, convolutions


class FCN32s(Net):
    """FCN-32s for the 21 classes of PASCAL VOC: VGG-16 with convolutions in place of its fully connected layers, its
    scores enlarged 32 times by one transposed convolution."""

    name = "fcn32s"

    def define(self, batch: int = 1, size: int = 500) -> None:
        image, label = _labelled(batch, 3, size, size, 21)
        x = image
        for i, (maps, count) in enumerate(STAGES, 1):
            for j in range(1, count + 1):
                pad = 100 if (i, j) == (1, 1) else 1
                x = _conv(x, f"conv{i}_{j}", maps, 3, pad)
            x = L.Pooling(x, name=f"pool{i}", pool="MAX", kernel_size=2, stride=2)
        for name, kernel in (("fc6", 7), ("fc7", 1)):
            x = _conv(x, name, 4096, kernel, 0)
            x = L.Dropout(x, name=f"drop{name[2:]}", in_place=True, dropout_ratio=0.5)
        x = L.Convolution(x, name="score_fr", param=TRAINED, **geometry(21, 1), weight_filler=MSRA)
        enlarged = {"num_output": 21, "kernel_size": 64, "stride": 32, "bias_term": False}
        x = L.Deconvolution(x, name="upscore", param=[{"lr_mult": 0}], **enlarged, weight_filler={"type": "bilinear"})
        score = L.Crop(x, image, name="score", axis=2, offset=19)
        L.SoftmaxWithLoss(score, label, name="loss", ignore_label=255, normalize=False)


class UNet(Net):
    """U-Net on one channel of 572×572, for two classes of 388×388 pixels: convolutions are not padded."""

    name = "unet"

    def define(self, batch: int = 1, size: int = 572) -> None:
        x, label = _labelled(batch, 1, size, size - 184, 2)
        kept = []
        for i in range(1, 6):
            x = _twice(x, f"down{i}", 32 * 2**i)
            if i < 5:
                kept.append(x)
                x = L.Pooling(x, name=f"pool{i}", pool="MAX", kernel_size=2, stride=2)
        side = _sizes(size)
        for i in range(4, 0, -1):
            up = {"num_output": 32 * 2**i, "kernel_size": 2, "stride": 2}
            x = L.Deconvolution(x, name=f"up{i}", param=TRAINED, **up, weight_filler=MSRA)
            part = L.Crop(kept[i - 1], x, name=f"crop{i}", axis=2, offset=side[i])
            x = _twice(L.Concat(part, x, name=f"concat{i}"), f"merge{i}", 32 * 2**i)
        score = L.Convolution(x, name="score", param=TRAINED, **geometry(2, 1), weight_filler=MSRA)
        L.SoftmaxWithLoss(score, label, name="loss")


def _sizes(size: int) -> dict[int, int]:
    """Per stage, how many pixels are cut off the kept images on each side."""
    down = {}
    for i in range(1, 6):
        size -= 4
        down[i] = size
        size //= 2
    offsets, size = {}, down[5]
    for i in range(4, 0, -1):
        offsets[i] = (down[i] - 2 * size) // 2
        size = 2 * size - 4
    return offsets


def _labelled(batch: int, channels: int, size: int, inner: int, classes: int) -> tuple[Top, Top]:
    """(images, labels): made-up images, and a class for each of inner x inner pixels. To train on data, replace the
    layer `label` by one of a source."""
    image = L.Data(
        name="data", top="data", source=f"synthetic:{channels}x{size}x{size}:classes={classes}", batch_size=batch
    )
    shape = {"dim": [batch, 1, inner, inner]}
    return image, L.Input(name="label", top="label", shape=shape)


def _twice(x: Top, name: str, maps: int) -> Top:
    return _conv(_conv(x, f"{name}a", maps, 3, 0), f"{name}b", maps, 3, 0)


def _conv(x: Top, name: str, maps: int, kernel: int, pad: int) -> Top:
    x = L.Convolution(x, name=name, param=TRAINED, **geometry(maps, kernel, 1, pad), weight_filler=MSRA)
    return L.ReLU(x, name=f"relu_{name}", in_place=True)
