"""Pieces that the families share: inputs, the end of a classifier, and fillers."""

from __future__ import annotations

from typing import Any

from minidnn.errors import BadInput
from minidnn.nets.define import L, Top

TRAINED = [{"lr_mult": 1}, {"lr_mult": 2, "decay_mult": 0}]  # as in Caffe's nets: biases learn faster, without decay
MSRA = {"type": "msra"}
XAVIER = {"type": "xavier"}
SMALL = {"type": "gaussian", "std": 0.02}  # of transformers
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


def windows(batch: int, seq: int, vocabulary: int, source: str = "", **change: Any) -> tuple[Top, Top]:
    """(tokens, labels): windows of token ids, and the ids that follow them.

    source: such as `tokens:FILE.bin:length=1024`; without one, made-up windows of `seq` ids
    change: fields of `transform_param`"""
    source = source or f"synthetic_tokens:{seq}:classes={vocabulary}"
    return L.Data(name="data", source=source, batch_size=batch, **change)


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


def linear(x: Top, name: str, outputs: int, bias: bool = True, filler: dict[str, Any] = SMALL) -> Top:
    """A fully connected layer of each token. x: (N, tokens, width) -> (N, tokens, outputs)."""
    fields = {} if bias else {"bias_term": False}
    return L.InnerProduct(x, name=name, axis=2, num_output=outputs, **fields, weight_filler=filler)


def embedded(tokens: Top, table: str, vocabulary: int, width: int) -> Top:
    """The row of `table` of each token: (N, tokens) -> (N, tokens, width)."""
    return L.Embed(
        tokens, name="embed", param=[{"name": table}], num_output=width, input_dim=vocabulary, bias_term=False,
        weight_filler=SMALL,
    )  # fmt: skip


def predicted(x: Top, label: Top, table: str, vocabulary: int, bias: bool = False, **loss: Any) -> None:
    """Add the end of a language model: the loss of the labels. The weights are `table`, maybe the embedding's."""
    fields = {} if bias else {"bias_term": False}
    L.InnerProductWithLoss(
        x, label, name="loss", param=[{"name": table}], num_output=vocabulary, axis=2, **fields, weight_filler=SMALL,
        **loss,
    )  # fmt: skip


def dropped(x: Top, name: str, ratio: float) -> Top:
    """Dropout in place; x itself at a ratio of 0."""
    return L.Dropout(x, name=name, in_place=True, dropout_ratio=ratio) if ratio else x


def mlp(x: Top, block: str, hidden: int, width: int, tanh: bool = False, filler: dict[str, Any] = SMALL) -> Top:
    """Two layers with a GELU between them, or with its approximation by tanh."""
    approximate = {"approximate": "TANH"} if tanh else {}
    x = linear(x, f"{block}/mlp1", hidden, filler=filler)
    x = L.GELU(x, name=f"{block}/gelu", **approximate, in_place=False)
    return linear(x, f"{block}/mlp2", width, filler=filler)


def block(
    x: Top, name: str, width: int, heads: int, norm: dict[str, Any], tanh: bool = False, dropout: float = 0.0,
    **attention: Any,
) -> Top:  # fmt: skip
    """A transformer's block: attention, then an MLP, each behind a LayerNorm (its fields: `norm`) and added to x."""
    y = L.LayerNorm(x, name=f"{name}/norm1", **norm)
    y = linear(y, f"{name}/qkv", 3 * width)
    y = L.Attention(y, name=f"{name}/attention", num_heads=heads, **attention)
    y = dropped(linear(y, f"{name}/out", width), f"{name}/drop1", dropout)
    x = L.Eltwise(x, y, name=f"{name}/sum1")
    y = L.LayerNorm(x, name=f"{name}/norm2", **norm)
    y = dropped(mlp(y, name, 4 * width, width, tanh), f"{name}/drop2", dropout)
    return L.Eltwise(x, y, name=f"{name}/sum2")
