"""What a trained net goes on with: one token after the other, each drawn by the scores of the last one.

The net is that of training with its data and its loss cut off. If its layers permit it (nets/placed.py), the keys and
values of earlier tokens are kept, and each token is a forward pass of itself alone. Else it is one of a whole window.

Both ways see the same tokens, and so make the same text: as many as fit into a window. When it is full, it begins anew
with its last half, whose keys and values are computed again, since their places are others. The kernels of attention,
norms and functions leave the same bits, however many tokens are beside. So do our own products on cpu; those of oneDNN,
NumPy and cuBLAS may add in another order for one row than for many. There, scores may differ in the last bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.data.random import fractions
from minidnn.data.tokens import MOST
from minidnn.errors import InvalidInput
from minidnn.jobs.setting import Setting
from minidnn.layers.base import PLACES
from minidnn.nets.graph import Node
from minidnn.nets.net import Net
from minidnn.nets.placed import fed, keeps, placed
from minidnn.nets.scores import scored
from minidnn.schema import LayerParameter
from minidnn.schema.sources import TOKENS
from minidnn.spoken import option
from minidnn.training.session import Session

BYTES = 256  # classes of a text
FEW = 64  # tokens of a step before the last one of a window that begins


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
                f"layer {seeing[0]}: a token sees later tokens, which do not exist yet: set causal: true"
            )
        ((data, source),), (loss,) = found, losses
        bottoms = [b.tensor.shape for b in loss.bottoms]
        classes, window = loss.layer.classes(bottoms), data.tops[0].tensor.shape[1]
        assert classes is not None
        labels, merged = {b.name for b in loss.bottoms[1:]}, loss.layer.type == "InnerProductWithLoss"
        kept = [n for n in graph.layers if n is not loss and labels.isdisjoint(b.name for b in n.bottoms)]
        top = data.tops[0].name
        layers = [fed(data.name, top, window) if n is data else _everywhere(n.layer.spec) for n in kept]
        scores = f"{loss.name}_scores" if merged else loss.bottoms[0].name
        layers += [_everywhere(scored(loss.layer.spec, scores))] if merged else []
        axis = -1 if merged else loss.layer.param.axis
        return cls(net.with_layers(layers), top, scores, axis, window, classes, source.startswith("text:"))

    def opened(self, setting: Setting, cached: bool = True) -> Writer:
        """The net on a device, ready to go on; a Writer is closed like a Session.

        setting: how it is run; `keep` has the scores
        cached:  whether keys and values are kept from token to token

        Raises Mixing (nets/placed.py) if they are to be kept, and the net has to see its whole window."""
        if not cached:
            return Whole(self, Session(self.net, setting=setting))
        nets = [placed(self.net, self.tokens, 1)]
        few = min(FEW, self.window)
        nets += [placed(self.net, self.tokens, few, head=False)] if keeps(self.net) else []
        return Cached(self, Session(nets[0], tests=nets, setting=setting), few if len(nets) > 1 else 0)


class Writer:
    """A Generator whose net is loaded; its subclasses say how the scores of the next token are made."""

    def __init__(self, generator: Generator, session: Session) -> None:
        self.generator, self.session = generator, session
        self._first = 0  # of all tokens, the one where the window begins

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def go_on(self, begun: Sequence[int], count: int, sampling: Sampling) -> Iterator[int]:
        """So many tokens that follow those that it has begun with. Raises InvalidInput if these are none, or are no
        tokens of the net."""
        made, seen = self.generator, list(begun)
        if not begun or not all(0 <= t < made.classes for t in begun):
            raise InvalidInput(f"expected at least one token to continue from, each from 0 to {made.classes - 1}")
        self._begin(max(0, len(seen) - made.window))
        for number in range(count):
            if len(seen) - self._first > made.window:
                self._begin(len(seen) - max(1, made.window // 2))
            scores = self._scores(seen[self._first :])
            if not np.isfinite(scores).all():
                raise InvalidInput(f"the net's scores after token {len(seen)} are not finite: its values are too large")
            seen.append(sampling.draw(scores[: BYTES if made.text else None], number))
            yield seen[-1]

    def _begin(self, first: int) -> None:
        """The window begins at this one of all tokens."""
        self._first = first

    def _scores(self, window: Sequence[int]) -> np.ndarray:
        """The scores (classes,) of the token behind these."""
        raise NotImplementedError

    def _run(self, program: str, tokens: Sequence[int], place: int = 0) -> None:
        """Run a program on tokens from a place of the window on; zeros fill up what is left."""
        for tensor in self.session.programs[program].inputs:
            values = np.zeros(tensor.shape, np.int32)
            if tensor.name == PLACES:
                values += np.arange(place, place + tensor.size, dtype=np.int32)
            else:
                values.flat[: len(tokens)] = tokens
            self.session.machine.write(tensor, values, program)
        self.session.step(program)

    def _row(self, token: int) -> np.ndarray:
        """The scores that TEST made behind one of its tokens."""
        made = np.moveaxis(self.session.read(self.generator.scores, "TEST"), self.generator.axis, -1)
        return made.reshape(-1, made.shape[-1])[token]


class Whole(Writer):
    """Each token is a forward pass of a whole window, which is filled up behind its end; no token before sees that."""

    def _scores(self, window: Sequence[int]) -> np.ndarray:
        self._run("TEST", window)
        return self._row(len(window) - 1)


class Cached(Writer):
    """Keys and values are kept, and so each token is a forward pass of itself alone, by TEST. TEST1 has the tokens
    before the last one of a window that begins, `few` at a time and without the head; 0: nothing is kept of them."""

    def __init__(self, generator: Generator, session: Session, few: int) -> None:
        super().__init__(generator, session)
        self._few = few
        self._there = 0  # tokens of the window whose keys and values are kept

    def _begin(self, first: int) -> None:
        super()._begin(first)
        self._there = 0

    def _scores(self, window: Sequence[int]) -> np.ndarray:
        last = len(window) - 1
        while self._few and self._there < last:
            place = min(self._there, self.generator.window - self._few)
            self._run("TEST1", window[place : min(place + self._few, last)], place)
            self._there = min(place + self._few, last)
        self._run("TEST", window[last:], last)
        self._there = last + 1
        return self._row(0)


def _tokens(node: Node) -> str:
    """The source of a layer that gives tokens; "" if it gives none."""
    source = getattr(node.layer.param, "source", "")
    return source if TOKENS.match(source) else ""


def _everywhere(layer: LayerParameter) -> LayerParameter:
    """The layer in all phases."""
    return layer.model_copy(update={"include": (), "exclude": ()})


def tokens_of(text: str, classes: int, of_text: bool) -> list[int]:
    """The tokens of a prompt: the bytes of a text, or numbers with commas between. Raises InvalidInput."""
    if of_text:
        return list(os.fsencode(text))
    try:
        found = [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        found = []
    if not found or not all(0 <= t < min(classes, MOST) for t in found):
        what = f"expected tokens such as 12,7,300, each from 0 to {classes - 1}"
        raise InvalidInput(f"{option('prompt')} {text!r}: {what}")
    return found
