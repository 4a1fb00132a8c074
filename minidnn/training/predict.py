"""Classifying: the samples of files, made ready as the net's Data layer has them in phase TEST, and their classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from minidnn.data import Arrays, DataError, Dataset, Loader, raw_samples, source_of, transform
from minidnn.data.files import Files, expanded
from minidnn.errors import InvalidInput
from minidnn.files import regular
from minidnn.layers import LAYERS
from minidnn.nets.graph import Graph, Node
from minidnn.nets.net import Net
from minidnn.results.runs import Prediction
from minidnn.training.session import Session

ARRAYS = (".npz", ".npy", ".binaryproto", ".datum")  # what else is given is an image


@dataclass(frozen=True)
class Classifier:
    """A net that classifies what files hold."""

    net: Net  # with made-up images where its own data are not there
    original: Net

    @classmethod
    def of(cls, net: Net) -> Classifier:
        """The net's data need not be there: its Data layer says how samples are made ready."""
        return cls(net.without_data()[0], net)

    @property
    def graph(self) -> Graph:
        return self.net.graph("TEST")

    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, if the data are there and tell them."""
        given = self._given()
        try:
            return source_of(*given, "TEST").class_names() if given else ()
        except DataError:  # the data are elsewhere, and need not be here
            return ()

    def inputs(self, paths: Sequence[str]) -> list[tuple[list[str], Loader]]:
        """(the file of each sample, what gives the samples as the net reads them) of these files and folders. Arrays
        are taken as they are where no Data layer says more.

        Raises DataError for a file that cannot be read, and InvalidInput where the net does not say how an image
        becomes a sample."""
        result: list[tuple[list[str], Loader]] = []
        for arrays, those in groupby(expanded(paths), lambda path: path.endswith(ARRAYS)):
            files = list(those)
            if not arrays:
                result.append((files, self._of_images(files)))
                continue
            for file in files:
                values = raw_samples(file)
                loader = self._of_arrays(Arrays(file, values, np.zeros(len(values), np.int32)))
                result.append(([file] * len(values), loader))
        return result

    def _of_images(self, files: list[str]) -> Loader:
        node, given = input_of(self.graph), self._given()
        if node is None or given is None:
            what = "no Data layer of the net has a transform_param that turns an image into a sample"
            raise InvalidInput(f"{files[0]}: {what}; give samples as arrays (.npz)")
        param, change = given
        shape = node.tops[0].tensor.shape[1:]
        try:
            source = source_of(param, change, "TEST")
            raw, kind, encoded = source.sample_shape(), source.sample_type(), source.encoded()
        except DataError:  # the data are elsewhere: the net tells the channels
            raw, kind, encoded = (shape[0], 0, 0), "uint8", True
        if len(raw) != 3 or kind != "uint8" or raw[0] not in (1, 3):
            what = f"an image cannot be a sample here: {param.source} has arrays {raw}, which are not 8-bit images"
            raise InvalidInput(f"{files[0]}: {what}; give arrays (.npz)")
        if 0 not in raw:
            if raw[0] == 3 and not encoded and not change.has("channel_order"):
                what = f"{param.source} holds arrays of an unknown channel order"
                raise InvalidInput(f"{files[0]}: {what}: give transform_param {{channel_order: RGB}} or BGR")
            change = change if change.resize else change.model_copy(update={"resize": raw[1:]})
        return self._loader(Files(files, raw[0]), change)

    def _of_arrays(self, dataset: Arrays) -> Loader:
        given = self._given()
        return self._loader(dataset, given[1]) if given else Loader(dataset, 1)

    def _loader(self, dataset: Dataset, change: Any) -> Loader:
        """Samples that are transformed as in phase TEST, but never mirrored."""
        return Loader(dataset, 1, transform(change.model_copy(update={"mirror": False}), "TEST"))

    def _given(self) -> tuple[Any, Any] | None:
        """(its data's message, transform_param) of the layer that gives the net its samples, as the file has them; None
        if it reads no data, or there is none."""
        if (node := input_of(self.graph)) is None:
            return None
        spec = next(
            s
            for s in self.original.parameter.layer
            if s.name == node.name and list(s.top) == [b.name for b in node.tops]
        )
        kind = LAYERS[spec.type]
        return kind(spec, getattr(spec, str(kind.field_name)), "TEST").source


def input_of(graph: Graph) -> Node | None:
    """The layer that gives a net of phase TEST its samples; None if there is none."""
    return next((node for node in graph.layers if node.layer.inputs and not node.layer.fillers), None)


def predict(
    session: Session, loader: Loader, files: Sequence[str], top: int, names: Sequence[str]
) -> Iterator[Prediction]:
    """The likeliest classes of each sample, batch by batch.

    files: the file of each sample
    top:   how many classes
    names: of all classes; empty if they have none

    Raises DataError for samples that cannot be read, or whose scores are not finite."""
    graph = session.graphs["TEST"]
    scores, normal = scores_of(graph)
    node = input_of(graph)
    assert node is not None  # else there were no samples
    batch = node.tops[0].tensor.shape[0]
    for start in range(0, len(files), batch):
        count = min(batch, len(files) - start)
        with np.errstate(all="ignore"):  # the check below gives a better message than NumPy's warnings
            result = session.forward(loader.batch(start, count)[0])[scores].reshape(count, -1)
        for k in np.flatnonzero(~np.isfinite(result).all(1)).tolist():
            what = f"the net's scores of sample {start + k} are not finite: its values are too large"
            raise DataError(f"{files[start + k]}: {what}")
        chances = probabilities(result, normal)
        for k, best in enumerate((-chances).argsort(1, kind="stable")[:, :top].tolist()):
            yield Prediction(
                index=start + k,
                path=files[start + k],
                classes=best,
                class_names=[names[c] for c in best] if names else None,
                probabilities=[float(chances[k, c]) for c in best],
            )


def scores_of(graph: Graph) -> tuple[str, bool]:
    """The name of the blob with a score per class, and whether its values are probabilities already.

    It is the top of the last Softmax. A net without Softmax: the first bottom of the last layer that compares scores of
    classes with labels (SoftmaxWithLoss or Accuracy). A net without these either: its last top."""
    for node in reversed(graph.layers):
        if node.layer.probabilities:
            return node.tops[0].name, True
    for node in reversed(graph.layers):
        if node.layer.classes([b.tensor.shape for b in node.bottoms]) is not None:
            return node.bottoms[0].name, False
    last = graph.layers[-1].tops[0]
    if len(last.tensor.shape) < 2:
        raise InvalidInput("the net has neither Softmax nor SoftmaxWithLoss nor Accuracy: nothing to classify with")
    return last.name, False


def names_of(known: Sequence[str], graph: Graph) -> tuple[str, ...]:
    """The names of all classes of the net: their numbers where names are wanting; () if none is known."""
    if not known:
        return ()
    scores, _ = scores_of(graph)
    (shape,) = (blob.tensor.shape for blob in graph.blobs if blob.name == scores)
    classes = math.prod(shape[1:])
    return (*known, *map(str, range(len(known), classes)))[:classes]


def probabilities(scores: np.ndarray, normal: bool) -> np.ndarray:
    """Probabilities of the classes, a row per sample: `scores` if they are `normal` already, else their softmax."""
    if normal:
        return scores
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def read_names(path: str, graph: Graph) -> tuple[str, ...]:
    """The names of the net's classes in a text, one on each line, as of Caffe's synset_words.txt. Raises InvalidInput
    if there are not as many."""
    try:
        result = tuple(line.strip() for line in regular.content(path).decode().splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: not a UTF-8 text with the name of a class on each line") from error
    if not result or len(result) != len(names_of(result, graph)):
        classes = len(names_of(("one",), graph))
        raise InvalidInput(f"{path}: {len(result)} lines; expected the name of each of the net's {classes} classes")
    return result
