"""What a trained net goes on with: one token after the other, each drawn by the scores of the last one.

The net is that of training with its data and its loss cut off. Each token is a forward pass of a whole window, since
nothing is kept from pass to pass. A window shorter than the net's is filled up behind its end, which no token before
sees.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.data.random import fractions
from minidnn.data.tokens import MOST
from minidnn.errors import InvalidInput
from minidnn.nets.graph import Node
from minidnn.nets.net import Net
from minidnn.nets.scores import scored
from minidnn.schema import LayerParameter
from minidnn.schema.sources import TOKENS
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
    axis:    of the scores, along which the classes are
    window:  tokens of a window
    classes: kinds of tokens
    text:    whether they are bytes of a text
    """

    net: Net
    tokens: str
    scores: str
    axis: int
    window: int
    classes: int
    text: bool

    @classmethod
    def of(cls, net: Net) -> Generator:
        """Raises InvalidInput if the net has no layer that gives tokens or no loss of each one's successor, and if its
        tokens see those behind them."""
        graph = net.graph("TEST")
        losses = [n for n in graph.layers if n.layer.loss and n.layer.classes([b.tensor.shape for b in n.bottoms])]
        found = [(n, source) for n in graph.layers if n.layer.source and (source := _tokens(n))]
        if len(found) != 1 or len(losses) != 1 or len(found[0][0].tops[0].tensor.shape) != 2:
            raise InvalidInput(
                f"net {net.name}: expected one Data layer of tokens (source: tokens:, text:), with windows of several, "
                "and one loss that compares scores with the next ones (InnerProductWithLoss, SoftmaxWithLoss)"
            )
        seeing = [n.name for n in graph.layers if n.layer.type == "Attention" and not n.layer.param.causal]
        if seeing:
            raise InvalidInput(
                f"layer {seeing[0]}: a token sees those behind it, which are not there yet: causal: true"
            )
        ((data, source),), (loss,) = found, losses
        bottoms = [b.tensor.shape for b in loss.bottoms]
        classes, window = loss.layer.classes(bottoms), data.tops[0].tensor.shape[1]
        assert classes is not None
        labels, merged = {b.name for b in loss.bottoms[1:]}, loss.layer.type == "InnerProductWithLoss"
        kept = [n for n in graph.layers if n is not loss and labels.isdisjoint(b.name for b in n.bottoms)]
        layers = [_fed(data, window) if n is data else _everywhere(n.layer.spec) for n in kept]
        scores = f"{loss.name}_scores" if merged else loss.bottoms[0].name
        layers += [_everywhere(scored(loss.layer.spec, scores))] if merged else []
        axis = -1 if merged else loss.layer.param.axis
        made = net.with_layers(layers)
        return cls(made, data.tops[0].name, scores, axis, window, classes, source.startswith("text:"))

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
            made = session.forward({self.tokens: window})[self.scores]
            scores = np.moveaxis(made, self.axis, -1).reshape(self.window, -1)[len(last) - 1]
            if not np.isfinite(scores).all():
                raise InvalidInput(
                    f"the net's scores behind token {len(seen)} are not finite: its values are too large"
                )
            seen.append(sampling.draw(scores[: BYTES if self.text else None], number))
            yield seen[-1]


def _tokens(node: Node) -> str:
    """The source of a layer that gives tokens; "" if it gives none."""
    source = getattr(node.layer.param, "source", "")
    return source if TOKENS.match(source) else ""


def _everywhere(layer: LayerParameter) -> LayerParameter:
    """The layer in all phases."""
    return layer.model_copy(update={"include": (), "exclude": ()})


def _fed(data: Node, length: int) -> LayerParameter:
    """An Input of one window in place of the Data layer."""
    shape = {"shape": [{"dim": [1, length]}]}
    top = data.tops[0].name
    return LayerParameter.model_validate({"name": data.name, "type": "Input", "top": [top], "input_param": shape})


def tokens_of(text: str, classes: int, of_text: bool) -> list[int]:
    """The tokens of a prompt: the bytes of a text, or numbers with commas between. Raises InvalidInput."""
    if of_text:
        return list(os.fsencode(text))
    try:
        found = [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        found = []
    if not found or not all(0 <= t < min(classes, MOST) for t in found):
        raise InvalidInput(f"--prompt {text!r}: expected tokens such as 12,7,300, each from 0 to {classes - 1}")
    return found
