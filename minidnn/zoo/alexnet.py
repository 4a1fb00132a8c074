"""AlexNet (Krizhevsky 2012) with LRN, in two versions: the SuperNeurons paper's and Caffe's."""

from __future__ import annotations

from minidnn.nets.define import L
from minidnn.nets.net import Net
from minidnn.zoo.pieces import TRAINED, full, geometry, imagenet, scored

GAUSSIAN = {"type": "gaussian", "std": 0.01}


class SuperNeuronsAlexNet(Net):
    """AlexNet as in the SuperNeurons paper: one tower, images of 227×227, 23 layers, none of which works in place."""

    name = "superneurons_alexnet"

    def define(self, batch: int = 200) -> None:
        x, label = imagenet(batch, 227)
        for i, (maps, kernel, stride, pad) in enumerate(
            ((96, 11, 4, 0), (256, 5, 1, 2), (384, 3, 1, 1), (384, 3, 1, 1), (256, 3, 1, 1)), 1
        ):
            x = L.Convolution(
                x, name=f"conv{i}", param=TRAINED, **geometry(maps, kernel, stride, pad),
                weight_filler=GAUSSIAN,
            )  # fmt: skip
            x = L.ReLU(x, name=f"relu{i}")
            if i < 3:
                x = L.LRN(x, name=f"lrn{i}", local_size=5, alpha=1e-4, beta=0.75)
            if i in (1, 2, 5):
                x = L.Pooling(x, name=f"pool{i}", pool="MAX", kernel_size=3, stride=2)
        for i in (1, 2):
            x = full(x, f"fc{i}", 4096, 0.005)
            x = L.ReLU(x, name=f"relu{i + 5}")
            x = L.Dropout(x, name=f"dropout{i}", dropout_ratio=0.5)
        scored(full(x, "fc3", 1000), label)


class CaffeNet(Net):
    """Caffe's AlexNet (bvlc_reference_caffenet): channels in two groups as on Krizhevsky's two GPUs, pooling before
    LRN."""

    name = "caffenet"

    def define(self, batch: int = 256) -> None:
        _grouped(batch, lrn_first=False)


class CaffeAlexNet(Net):
    """Krizhevsky's AlexNet as Caffe has it (bvlc_alexnet): channels in two groups, LRN before pooling."""

    name = "alexnet_caffe"

    def define(self, batch: int = 256) -> None:
        _grouped(batch, lrn_first=True)


def _grouped(batch: int, lrn_first: bool) -> None:
    x, label = imagenet(batch, 227)
    for i, (maps, kernel, stride, pad, group) in enumerate(
        ((96, 11, 4, 0, 1), (256, 5, 1, 2, 2), (384, 3, 1, 1, 1), (384, 3, 1, 1, 2), (256, 3, 1, 1, 2)), 1
    ):
        x = L.Convolution(
            x, name=f"conv{i}", param=TRAINED, **geometry(maps, kernel, stride, pad), group=group,
            weight_filler=GAUSSIAN,
        )  # fmt: skip
        x = L.ReLU(x, name=f"relu{i}", in_place=True)
        for step in ("norm", "pool") if lrn_first else ("pool", "norm"):
            if step == "pool" and i in (1, 2, 5):
                x = L.Pooling(x, name=f"pool{i}", pool="MAX", kernel_size=3, stride=2)
            if step == "norm" and i < 3:
                x = L.LRN(x, name=f"norm{i}", local_size=5, alpha=1e-4, beta=0.75)
    for i in (6, 7):
        x = full(x, f"fc{i}", 4096, 0.005)
        x = L.ReLU(x, name=f"relu{i}", in_place=True)
        x = L.Dropout(x, name=f"drop{i}", in_place=True, dropout_ratio=0.5)
    scored(full(x, "fc8", 1000), label)
