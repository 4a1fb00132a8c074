"""Pieces that the families share: inputs, the end of a classifier, and fillers."""

from __future__ import annotations

from typing import Any

from minidnn.errors import BadInput
from minidnn.nets.define import L, Top

TRAINED = [{"lr_mult": 1}, {"lr_mult": 2, "decay_mult": 0}]  # as in Caffe's nets: biases learn faster, without decay
MSRA = {"type": "msra"}
XAVIER = {"type": "xavier"}
TEST = {"phase": "TEST"}


class NoSuchModel(BadInput, FileNotFoundError):
    """There is no file and no net of that name; the message suggests or lists names."""


def imagenet(batch: int, size: int = 224) -> tuple[Top, Top]:
    """(images, labels): made-up images of shape (3, size, size) in 1000 classes, so that nothing must be downloaded. To
    use other data, change the `source` line of the net's file."""
    return L.Data(name="data", source=f"synthetic:3x{size}x{size}:classes=1000", batch_size=batch)


def cifar(batch: int) -> tuple[Top, Top]:
    """(images, labels): made-up images of CIFAR-10's shape, (3, 32, 32), in 10 classes."""
    return L.Data(name="data", source="synthetic:3x32x32:classes=10", batch_size=batch)


def scored(scores: Top, label: Top, top5: bool = True) -> None:
    """Add the end of a classifier: accuracies in TEST, the loss in both phases."""
    L.Accuracy(scores, label, name="accuracy", include=TEST)
    if top5:
        L.Accuracy(scores, label, name="accuracy_top5", top_k=5, include=TEST)
    L.SoftmaxWithLoss(scores, label, name="loss")


def geometry(outputs: int, kernel: int, stride: int = 1, pad: int = 0) -> dict[str, Any]:
    """The fields of a convolution, without those that have their defaults."""
    fields = {"num_output": outputs, "kernel_size": kernel}
    fields |= {"pad": pad} if pad else {}
    fields |= {"stride": stride} if stride > 1 else {}
    return fields


def full(x: Top, name: str, outputs: int, std: float = 0.01) -> Top:
    """A fully connected layer; its first weights are normally distributed."""
    filler = {"type": "gaussian", "std": std}
    return L.InnerProduct(x, name=name, param=TRAINED, num_output=outputs, weight_filler=filler)
