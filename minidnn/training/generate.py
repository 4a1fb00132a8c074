"""What a trained net goes on with: one token after the other, each drawn by the scores of the last one.

The net is that of training with its data and its loss cut off. Each token is a forward pass of a whole window, since
nothing is kept from pass to pass. A window shorter than the net's is filled up behind its end; no causal net sees that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.data.random import fractions
from minidnn.data.tokens import MOST
from minidnn.errors import InvalidInput
from minidnn.nets.graph import Node
from minidnn.nets.net import Net
from minidnn.schema import LayerParameter
from minidnn.training.predict import input_of
from minidnn.training.session import Session

BYTES = 256  # classes of a text


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn.

    temperature: the scores are divided by it; 0: the likeliest is taken
    top_k:       only so many of the likeliest are drawn from; None: all
    seed:        of the random numbers, each a function of this and of the token's number"""

    temperature: float = 1.0
    top_k: int | None = None
    seed: int = 0

    def draw(self, scores: np.ndarray, number: int) -> int:
        """The class that is drawn by these scores (classes,)."""
        order = np.argsort(-scores, kind="stable")[: self.top_k]
        if not self.temperature:
            return int(order[0])
        with np.errstate(over="ignore"):
            powers = np.exp((scores[order].astype(np.float64) - scores[order[0]]) / self.temperature)
        bounds = np.cumsum(powers)
        at = np.searchsorted(bounds, fractions(self.seed, np.array([number]), 0)[0] * bounds[-1], side="right")
        return int(order[min(int(at), len(order) - 1)])


@dataclass(frozen=True)
class Generator:
    """A net that goes on with tokens.

    net:     with an Input of one window in place of its data, and its scores at the end
    tokens, scores: the blobs of these
    window:  tokens of a window
    classes: kinds of tokens
    """

    net: Net
    tokens: str
    scores: str
    window: int
    classes: int

    @classmethod
    def of(cls, net: Net) -> Generator:
        """Raises InvalidInput if the net has no layer that gives tokens, or no loss of each one's successor."""
        graph = net.graph("TEST")
        node = input_of(graph)
        losses = [n for n in graph.layers if n.layer.loss and n.layer.classes([b.tensor.shape for b in n.bottoms])]
        if net.tokens is None or node is None or len(losses) != 1:
            raise InvalidInput(
                f"net {net.name}: expected one Data layer of tokens (source: tokens:, text:), and one loss that "
                "compares scores with the next ones (InnerProductWithLoss, SoftmaxWithLoss)"
            )
        (loss,) = losses
        classes = loss.layer.classes([b.tensor.shape for b in loss.bottoms])
        assert classes is not None
        data, labels = node.tops[0].name, {b.name for b in loss.bottoms[1:]}
        layers = [
            _fed(layer, data, net.tokens) if layer.name == node.name else layer for layer in _kept(net, loss, labels)
        ]
        scores = f"{loss.name}_scores"
        if loss.layer.type == "InnerProductWithLoss":
            layers.append(_head(loss, scores))
        else:
            scores = loss.bottoms[0].name
        return cls(net.with_layers(layers), data, scores, net.tokens, classes)

    def go_on(self, session: Session, begun: Sequence[int], count: int, sampling: Sampling) -> Iterator[int]:
        """So many tokens that follow those that it has begun with. Raises InvalidInput if these are none, or are no
        tokens of the net."""
        if not begun or not all(0 <= t < self.classes for t in begun):
            raise InvalidInput(f"expected at least one token to go on from, each from 0 to {self.classes - 1}")
        seen = list(begun)
        for number in range(count):
            last = seen[-self.window :]
            window = np.zeros((1, self.window), np.int32)
            window[0, : len(last)] = last
            scores = session.forward({self.tokens: window})[self.scores].reshape(self.window, -1)[len(last) - 1]
            if not np.isfinite(scores).all():
                raise InvalidInput(
                    f"the net's scores behind token {len(seen)} are not finite: its values are too large"
                )
            seen.append(sampling.draw(scores, number))
            yield seen[-1]


def _kept(net: Net, loss: Node, labels: set[str]) -> list[LayerParameter]:
    """The layers before the loss, without those that read labels."""
    layers = [layer for layer in net.parameter.layer if layer.name != loss.name]
    return [layer for layer in layers if not labels.intersection(layer.bottom)]


def _fed(layer: LayerParameter, top: str, length: int) -> LayerParameter:
    """An Input of one window in place of the Data layer."""
    fields = {"name": layer.name, "type": "Input", "top": [top], "input_param": {"shape": [{"dim": [1, length]}]}}
    return LayerParameter.model_validate(fields)


def _head(loss: Node, top: str) -> LayerParameter:
    """The inner product of an InnerProductWithLoss, by its name, so that it has its weights."""
    spec = loss.layer.spec
    return spec.model_copy(update={"type": "InnerProduct", "bottom": spec.bottom[:1], "top": (top,), "loss_weight": ()})


def tokens_of(text: str, classes: int, of_text: bool) -> list[int]:
    """The tokens of a prompt: the bytes of a text, or numbers with commas between. Raises InvalidInput."""
    if of_text:
        return list(text.encode())
    try:
        found = [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        found = []
    if not found or not all(0 <= t < min(classes, MOST) for t in found):
        raise InvalidInput(f"--prompt {text!r}: expected tokens such as 12,7,300, each from 0 to {classes - 1}")
    return found
