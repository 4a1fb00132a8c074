"""The start that both sides of a comparison share: a net, its first weights and one batch, the same in every process.

It also says how far apart the two sides' losses may be.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from minidnn import zoo
from minidnn.costs import profile
from minidnn.errors import BadInput
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import Program, Role, Tensor
from minidnn.programs.spec import TrainSpec

TRAIN = TrainSpec(SGD(momentum=0.9, weight_decay=5e-4), seed=1)
RATE = 1e-3
COMPARED, GENTLE = 3, 1e-5  # how many updates are compared, and their learning rate
# The largest allowed difference of losses before any update, and after one or more, as `apart` computes it. (BatchNorm
# in many layers on few images, and steps that halve the loss, amplify the last bits: at ten times this rate resnet50's
# third loss moves by 2e-3.)
AGREE, AGREE_LATER = {"float32": 2e-4, "bfloat16": 2e-2}, {"float32": 5e-3, "bfloat16": 5e-2}


def found(name: str, batch: int | None) -> Net:
    """The net of that name in the zoo, or in a file. Raises zoo.NoSuchModel, which lists the known names."""
    net = zoo.find(name, batch)
    return net if isinstance(net, Net) else Net.from_file(net, batch)


@dataclass(frozen=True)
class Asked:
    """A net by its name, with a batch and with windows of so many tokens; None: its own."""

    name: str
    batch: int | None = None
    seq: int | None = None

    @classmethod
    def parse(cls, text: str) -> Asked:
        """The net of "NET", "NET:BATCH" or "NET:BATCH:TOKENS". Raises BadInput."""
        name, *counts = text.split(":")
        if len(counts) > 2 or not all(n.isdecimal() and int(n) for n in counts):
            raise BadInput(f"{text!r}: expected NET, NET:BATCH or NET:BATCH:TOKENS, as vgg16:4 or gpt2:4:512")
        return cls(name, *map(int, counts))

    def net(self) -> Net:
        """Raises zoo.NoSuchModel, which lists the known names, and BadInput for tokens of a net that reads none."""
        net = found(self.name, self.batch)
        return net.with_tokens(self.seq) if self.seq else net

    def __str__(self) -> str:
        return ", ".join(str(part) for part in (self.name, self.batch, self.seq and f"{self.seq} tokens") if part)


def on_gpu(text: str) -> tuple[str, int, str]:
    """(name, batch, profile) of NET:BATCH:GPU, as an option of a command; a profile's name may have colons, too.

    Raises argparse.ArgumentTypeError, which says what is wrong."""
    name, batch, gpu = (*text.split(":", 2), "", "")[:3]
    if not (name and gpu and batch.isdecimal() and int(batch)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NET:BATCH:GPU, e.g. resnet50:64:titan_x")
    try:
        found(name, int(batch)), profile(gpu)
    except BadInput as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None
    return name, int(batch), gpu


def remembering(net: Net) -> Net:
    """`net`, changed to compute its first weights only once: vgg16's 138 million random numbers take five seconds."""
    net.initial = cache(net.initial)  # type: ignore[method-assign]
    return net


def without_dropout(net: Net) -> Net:
    dropping = {
        "Dropout": ("dropout_param", "dropout_ratio"), "Attention": ("attention_param", "dropout_ratio"),
        "StochasticDepth": ("stochastic_depth_param", "drop_ratio"),
    }  # fmt: skip
    layers = []
    for layer in net.parameter.layer:
        if layer.type in dropping:
            name, ratio = dropping[layer.type]
            layer = layer.model_copy(update={name: getattr(layer, name).model_copy(update={ratio: 0.0})})
        layers.append(layer)
    changed = Net.from_parameter(net.parameter.model_copy(update={"layer": tuple(layers)}))
    changed.initial = net.initial  # type: ignore[method-assign]  # a function of seed and layer: `remembering`
    return changed


def of_side(net: Net, side: int) -> Net:
    """The net with square synthetic images of that side."""
    layers = []
    for layer in net.parameter.layer:
        if layer.type == "Data" and layer.data_param and layer.data_param.source.startswith("synthetic:"):
            word, shape, *rest = layer.data_param.source.split(":")
            source = ":".join((word, f"{shape.partition('x')[0]}x{side}x{side}", *rest))
            layer = layer.model_copy(update={"data_param": layer.data_param.model_copy(update={"source": source})})
        layers.append(layer)
    return Net.from_parameter(net.parameter.model_copy(update={"layer": tuple(layers)}))


def batch_of(program: Program, rate: float = RATE, seed: int = 0) -> dict[Tensor, np.ndarray]:
    """A value for each input of the program: noise as data, labels among the net's classes, tokens among its
    words, `rate` as learning rate."""
    random = np.random.default_rng(seed)
    classes = {}
    for op in program.ops:
        if op.kind == "softmax_loss.forward":
            classes[op.reads[1]] = op.reads[0].shape[1]
        elif op.kind == "linear_loss.forward":
            classes[op.reads[2]] = op.reads[1].shape[0]
        elif op.kind == "batch_reindex.forward":  # tokens
            classes[op.reads[1]] = op.reads[0].shape[0]
    values = {}
    for t in program.inputs:
        if t.role is Role.INPUT:
            values[t] = random.standard_normal(t.shape, np.float32).astype(t.dtype, copy=False)
        elif t.role is Role.LABEL:
            values[t] = random.integers(0, classes.get(t, 2), t.shape).astype(t.dtype)
        else:
            values[t] = np.full(t.shape, rate if t.name == "rate" else 0, t.dtype)
    return values


def apart(mine: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The difference of the first losses, and the largest difference of the later ones, as the comparison judges them.

    A difference is divided by the loss in `theirs` if that is above 1."""
    first, *later = (abs(a - b) / max(1.0, abs(b)) for a, b in zip(mine, theirs, strict=True))
    return first, max(later, default=0.0)
