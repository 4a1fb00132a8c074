"""What the families share: where images come from, how a classifier ends, and fillers."""

from __future__ import annotations

from typing import Any

from minidnn.errors import BadInput
from minidnn.nets.define import L, Top

TRAINED = [{"lr_mult": 1}, {"lr_mult": 2, "decay_mult": 0}]  # Caffe's habit: biases learn faster and do not decay
MSRA = {"type": "msra"}
XAVIER = {"type": "xavier"}
TEST = {"phase": "TEST"}


class NoSuchModel(BadInput, FileNotFoundError):
    """No file and no net of that name; the message says what there is."""


def imagenet(batch: int, size: int = 224) -> tuple[Top, Top]:
    """Made-up images of ImageNet's shape: nothing to download. Another source is one line of the file."""
    return L.Data(name="data", source=f"synthetic:3x{size}x{size}:classes=1000", batch_size=batch)


def cifar(batch: int) -> tuple[Top, Top]:
    """Made-up images of CIFAR-10's shape."""
    return L.Data(name="data", source="synthetic:3x32x32:classes=10", batch_size=batch)


def scored(scores: Top, label: Top, top5: bool = True) -> None:
    """The end of a classifier: accuracies in TEST, the loss in both phases."""
    L.Accuracy(scores, label, name="accuracy", include=TEST)
    if top5:
        L.Accuracy(scores, label, name="accuracy_top5", top_k=5, include=TEST)
    L.SoftmaxWithLoss(scores, label, name="loss")


def geometry(outputs: int, kernel: int, stride: int = 1, pad: int = 0) -> dict[str, Any]:
    """A convolution's fields, without those that are at their defaults."""
    fields = {"num_output": outputs, "kernel_size": kernel}
    fields |= {"pad": pad} if pad else {}
    fields |= {"stride": stride} if stride > 1 else {}
    return fields


def full(x: Top, name: str, outputs: int, std: float = 0.01) -> Top:
    """A fully connected layer of normally distributed weights."""
    filler = {"type": "gaussian", "std": std}
    return L.InnerProduct(x, name=name, param=TRAINED, num_output=outputs, weight_filler=filler)
