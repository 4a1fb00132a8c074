"""AlexNet (Krizhevsky 2012) with its LRN, as SuperNeurons counts it."""

from __future__ import annotations

from minidnn.define import L
from minidnn.net import Net
from minidnn.zoo.pieces import TRAINED, full, imagenet, scored

GAUSSIAN = {"type": "gaussian", "std": 0.01}


class SuperNeuronsAlexNet(Net):
    """AlexNet as in the SuperNeurons paper: one tower, images of 227×227, 23 layers, each with a blob of its own."""

    name = "superneurons_alexnet"

    def define(self, batch: int = 200) -> None:
        x, label = imagenet(batch, 227)
        for i, (maps, kernel, stride, pad) in enumerate(
            ((96, 11, 4, 0), (256, 5, 1, 2), (384, 3, 1, 1), (384, 3, 1, 1), (256, 3, 1, 1)), 1
        ):
            x = L.Convolution(
                x, name=f"conv{i}", param=TRAINED, num_output=maps, kernel_size=kernel, stride=stride, pad=pad,
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
