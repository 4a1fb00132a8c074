"""Caffe's two examples on MNIST that classify nothing: a siamese network and an autoencoder."""

from __future__ import annotations

from minidnn.nets.define import L, Top
from minidnn.nets.net import Net
from minidnn.zoo.pieces import XAVIER, geometry

DECAYED = [{"lr_mult": 1, "decay_mult": 1}, {"lr_mult": 1, "decay_mult": 0}]


class Siamese(Net):
    """Caffe's mnist_siamese (Hadsell, Chopra and LeCun 2006): two LeNets with the same weights map two digits to points
    of a plane. The points of equal digits are near each other."""

    name = "siamese"

    def define(self, batch: int = 64) -> None:
        pair, similar = L.Data(
            name="pair_data", top=["pair_data", "sim"], source="synthetic:2x28x28:classes=2", batch_size=batch
        )
        one, other = L.Slice(pair, name="slice_pair", top=["data", "data_p"], slice_point=1)
        L.ContrastiveLoss(_branch(one, ""), _branch(other, "_p"), similar, name="loss", margin=1.0)


def _branch(x: Top, side: str) -> Top:
    """A LeNet; `side` is appended to the names of its layers, and not to those of its parameters."""
    for i, maps in ((1, 20), (2, 50)):
        x = L.Convolution(
            x, name=f"conv{i}{side}", param=_shared(f"conv{i}"), **geometry(maps, 5), weight_filler=XAVIER
        )
        x = L.Pooling(x, name=f"pool{i}{side}", pool="MAX", kernel_size=2, stride=2)
    x = _full(x, "ip1", side, 500)
    x = L.ReLU(x, name=f"relu1{side}", in_place=True)
    return _full(_full(x, "ip2", side, 10), "feat", side, 2)


def _full(x: Top, name: str, side: str, outputs: int) -> Top:
    return L.InnerProduct(x, name=name + side, param=_shared(name), num_output=outputs, weight_filler=XAVIER)


def _shared(name: str) -> list[dict[str, object]]:
    return [{"name": f"{name}_w", "lr_mult": 1}, {"name": f"{name}_b", "lr_mult": 2}]


class Autoencoder(Net):
    """Caffe's mnist_autoencoder (Hinton and Salakhutdinov 2006): 784 pixels become 30 numbers, and pixels again."""

    name = "autoencoder"

    def define(self, batch: int = 100) -> None:
        x = L.Data(name="data", top="data", source="synthetic:1x28x28:classes=10", batch_size=batch)
        flat = L.Flatten(x, name="flatdata")
        x = flat
        for i, outputs in enumerate((1000, 500, 250, 30), 1):
            x = _coded(x, f"encode{i}", outputs)
            if i < 4:
                x = L.Sigmoid(x, name=f"encode{i}neuron")
        for i, outputs in ((4, 250), (3, 500), (2, 1000), (1, 784)):
            x = _coded(x, f"decode{i}", outputs)
            if i > 1:
                x = L.Sigmoid(x, name=f"decode{i}neuron")
        L.SigmoidCrossEntropyLoss(x, flat, name="cross_entropy_loss", loss_weight=1)
        pixels = L.Sigmoid(x, name="decode1neuron")
        L.EuclideanLoss(pixels, flat, name="l2_error", loss_weight=0)


def _coded(x: Top, name: str, outputs: int) -> Top:
    filler = {"type": "gaussian", "std": 1.0, "sparse": 15}
    return L.InnerProduct(x, name=name, param=DECAYED, num_output=outputs, weight_filler=filler)
