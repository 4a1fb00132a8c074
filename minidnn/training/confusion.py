"""Which classes a net takes for which: its answers about test samples beside their labels.

A sample's answer is the class with the highest score; among equal scores it is the first, as in `predict`. (Accuracy
counts such a tie as wrong.) Each sample counts once, also where a last batch begins again with the first samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minidnn.errors import InvalidInput
from minidnn.formats import widened
from minidnn.layers.base import positive_axis
from minidnn.nets.graph import Graph, Node
from minidnn.program import Role, Tensor
from minidnn.training.feed import Feed
from minidnn.training.feeds import Feeds
from minidnn.training.session import Session

MOST = 4096  # classes: their table takes 128 MiB


@dataclass(frozen=True)
class Judge:
    """The layer whose scores are compared with its labels: an Accuracy, or a loss of classes where a net has none."""

    layer: str
    scores: Tensor
    labels: Tensor
    axis: int | None  # of the scores, along which the classes lie; None: along all but the first
    classes: int
    ignored: int | None

    @classmethod
    def of(cls, graph: Graph) -> Judge:
        """The judge of this net: its last Accuracy, else its last loss of classes. Raises InvalidInput if it has
        neither, or too many classes."""
        result = [node for node in graph.layers if _judges(node)]
        if not result:
            what = "no layer of the test net compares scores of classes with labels, as Accuracy does"
            raise InvalidInput(f"{graph.place}: {what}")
        node = max(enumerate(result), key=lambda pair: (not pair[1].layer.loss, pair[0]))[1]
        scores, axis = node.bottoms[0].tensor, getattr(node.layer.param, "axis", None)
        classes = node.layer.classes([b.tensor.shape for b in node.bottoms])
        assert classes is not None
        if classes > MOST:
            what = f"{classes} classes; a table of confusions has room for {MOST}"
            raise InvalidInput(f"{node.place}: layer {node.name} compares {what}")
        along = None if axis is None else positive_axis(axis, scores.shape)
        return cls(node.name, scores, node.bottoms[1].tensor, along, classes, node.layer.ignored)


def _judges(node: Node) -> bool:
    """Whether a layer compares a score for each class (its first bottom) with labels (its second)."""
    known = node.layer.classes([b.tensor.shape for b in node.bottoms])
    return node.layer.labels == 1 and known is not None and node.bottoms[0].tensor.role is Role.ACTIVATION


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often which class was taken for which.

    layer:  the layer that compares scores with labels
    names:  of the classes, by label
    counts: int64 (classes, classes): a row for each label, a column for each answer
    """

    layer: str
    names: tuple[str, ...]
    counts: np.ndarray

    @property
    def samples(self) -> int:
        """The number of labels that were compared with answers."""
        return int(self.counts.sum())

    @property
    def accuracy(self) -> float | None:
        """The share of right answers; None if there was no label."""
        return float(np.trace(self.counts) / self.samples) if self.samples else None

    @property
    def class_accuracy(self) -> list[float | None]:
        """The share of right answers for each class; None for a class without samples."""
        totals = self.counts.sum(1)
        return [float(self.counts[k, k] / n) if n else None for k, n in enumerate(totals)]


def together(parts: Sequence[Confusion]) -> Confusion | None:
    """All counts of one layer; None if there are none."""
    return replace(parts[0], counts=np.sum([one.counts for one in parts], 0)) if parts else None


class Counting:
    """Counts a TEST program's answers, batch by batch."""

    def __init__(self, session: Session, feeds: Feeds, program: str) -> None:
        """Raises InvalidInput if the net compares no scores of classes with labels, or not with those of its data."""
        self._session, self._feeds, self._program = session, feeds, program
        graph = session.graphs[program]
        self._judge = judge = Judge.of(graph)
        if not any(blob.tensor == judge.labels for node in graph.layers if not node.bottoms for blob in node.tops):
            what = f"the labels of layer {judge.layer} are not the data's own, but made of them by other layers"
            raise InvalidInput(f"{graph.place}: {what}; they cannot be counted")
        self._counts = np.zeros((judge.classes, judge.classes), np.int64)
        self._names = class_names(feeds, judge)

    def __call__(self, position: int) -> None:
        """Count the batch that begins at this position, once its step has run."""
        judge, whole = self._judge, self._feeds.samples
        left = self._feeds.batch if whole is None else min(self._feeds.batch, whole - position)
        if left <= 0:
            return
        scores = widened(self._session.machine.read(judge.scores, self._program))
        labels = self._feeds.labels[judge.labels].reshape(len(scores), -1)
        rows = scores.reshape(len(scores), -1) if judge.axis is None else np.moveaxis(scores, judge.axis, -1)
        answers = rows.reshape(*labels.shape, judge.classes).argmax(-1)
        given, result = labels[:left].ravel(), answers[:left].ravel()
        if judge.ignored is not None:
            given, result = given[given != judge.ignored], result[given != judge.ignored]
        pairs = np.bincount(given.astype(np.int64) * judge.classes + result, minlength=judge.classes**2)
        self._counts += pairs.reshape(judge.classes, judge.classes)

    def result(self) -> Confusion:
        return Confusion(self._judge.layer, self._names, self._counts)


def class_names(feeds: Feeds, judge: Judge) -> tuple[str, ...]:
    """The names of the judge's classes, if its labels' source knows them; else their numbers."""
    known = next((f.names for f in feeds if isinstance(f, Feed) and f.label == judge.labels), ())
    return (*known, *map(str, range(len(known), judge.classes)))[: judge.classes]
