"""Caffe's two nets for CIFAR-10."""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import cifar, geometry, scored

TRAINED = [{"lr_mult": 1}, {"lr_mult": 2}]  # in this net biases decay, too


class Cifar10Quick(Net):
    """Caffe's cifar10_quick: three convolutions, the first pooled before its ReLU, and two fully connected layers."""

    name = "cifar10_quick"

    def define(self, batch: int = 100) -> None:
        x, label = cifar(batch)
        x = _conv(x, 1, 32, 0.0001)
        x = L.Pooling(x, name="pool1", pool="MAX", kernel_size=3, stride=2)
        x = L.ReLU(x, name="relu1", in_place=True)
        for i, maps in ((2, 32), (3, 64)):
            x = L.ReLU(_conv(x, i, maps, 0.01), name=f"relu{i}", in_place=True)
            x = L.Pooling(x, name=f"pool{i}", pool="AVE", kernel_size=3, stride=2)
        for i, outputs in ((1, 64), (2, 10)):
            filler = {"type": "gaussian", "std": 0.1}
            x = L.InnerProduct(x, name=f"ip{i}", param=TRAINED, num_output=outputs, weight_filler=filler)
        scored(x, label, top5=False)


class Cifar10Full(Net):
    """Caffe's cifar10_full: three convolutions with LRN within the channels, and one fully connected layer."""

    name = "cifar10_full"

    def define(self, batch: int = 100) -> None:
        x, label = cifar(batch)
        x = _conv(x, 1, 32, 0.0001)
        x = L.Pooling(x, name="pool1", pool="MAX", kernel_size=3, stride=2)
        x = L.ReLU(x, name="relu1", in_place=True)
        for i, maps in ((2, 32), (3, 64)):
            x = L.LRN(x, name=f"norm{i - 1}", local_size=3, alpha=5e-5, beta=0.75, norm_region="WITHIN_CHANNEL")
            x = L.ReLU(_conv(x, i, maps, 0.01), name=f"relu{i}", in_place=True)
            x = L.Pooling(x, name=f"pool{i}", pool="AVE", kernel_size=3, stride=2)
        strong = [{"lr_mult": 1, "decay_mult": 250}, {"lr_mult": 2, "decay_mult": 0}]
        filler = {"type": "gaussian", "std": 0.01}
        scored(L.InnerProduct(x, name="ip1", param=strong, num_output=10, weight_filler=filler), label, top5=False)


def _conv(x: Top, i: int, maps: int, std: float) -> Top:
    filler = {"type": "gaussian", "std": std}
    return L.Convolution(x, name=f"conv{i}", param=TRAINED, **geometry(maps, 5, pad=2), weight_filler=filler)
