"""SqueezeNet (Iandola 2016): modules that squeeze the channels by 1×1, then expand them by 1×1 and 3×3."""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import XAVIER, geometry, imagenet, scored

FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))  # squeezed, expanded


class SqueezeNet(Net):
    """SqueezeNet v1.1 on images of 227×227: 2.4 times less arithmetic than v1.0."""

    name = "squeezenet"

    def define(self, batch: int = 32) -> None:
        x, label = imagenet(batch, 227)
        x = _conv(x, "conv1", 64, 3, stride=2)
        x = L.Pooling(x, name="pool1", pool="MAX", kernel_size=3, stride=2)
        for i, (squeezed, expanded) in enumerate(FIRES, 2):
            x = fire(x, f"fire{i}", squeezed, expanded)
            if i in (3, 5):
                x = L.Pooling(x, name=f"pool{i}", pool="MAX", kernel_size=3, stride=2)
        x = L.Dropout(x, name="drop9", in_place=True, dropout_ratio=0.5)
        filler = {"type": "gaussian", "mean": 0.0, "std": 0.01}
        x = L.Convolution(x, name="conv10", **geometry(1000, 1), weight_filler=filler)
        x = L.ReLU(x, name="relu_conv10", in_place=True)
        scored(L.Pooling(x, name="pool10", pool="AVE", global_pooling=True), label)


def fire(x: Top, name: str, squeezed: int, expanded: int) -> Top:
    """A 1×1 convolution, and behind it two convolutions side by side, whose channels are joined."""
    x = _conv(x, f"{name}/squeeze1x1", squeezed, 1)
    one, three = _conv(x, f"{name}/expand1x1", expanded, 1), _conv(x, f"{name}/expand3x3", expanded, 3, pad=1)
    return L.Concat(one, three, name=f"{name}/concat")


def _conv(x: Top, name: str, maps: int, kernel: int, stride: int = 1, pad: int = 0) -> Top:
    x = L.Convolution(x, name=name, **geometry(maps, kernel, stride, pad), weight_filler=XAVIER)
    return L.ReLU(x, name=f"{name}/relu", in_place=True)
