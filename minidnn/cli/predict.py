"""`minidnn predict MODEL --weights FILE INPUT`: the likeliest classes of each sample in an npz or npy file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from minidnn.cli.help import examples
from minidnn.cli.options import common, given, opened
from minidnn.cli.subject import tell_unobeyed, understood
from minidnn.cli.values import positive
from minidnn.visible import say

if TYPE_CHECKING:
    import numpy as np


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn predict models/digits_lenet.yaml images.npz --weights out/digits_iter_250.safetensors --top 1"
    )
    parser.add_argument("model", metavar="MODEL", help="a model file; YAML or Caffe's .prototxt")
    parser.add_argument(
        "input",
        metavar="INPUT",
        help="raw samples: an npy file, an npz with an array x or images, Caffe's .binaryproto or .datum",
    )
    parser.add_argument(
        "--weights", metavar="FILE", required=True, help="a snapshot, any safetensors file, or Caffe's .caffemodel"
    )
    parser.add_argument("--top", type=positive, default=3, metavar="N", help="classes to print (default: 3)")
    common(
        parser, "policy", "budget", "host_budget", "ram", "batch", "format", "device", "modules", "ignore_unknown",
        "json",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    import numpy as np

    from minidnn.data import DataError
    from minidnn.report import table
    from minidnn.results.runs import Prediction, Predictions
    from minidnn.training.session import Session
    from minidnn.training.setting import Setting

    net, tests, solver = understood(args.model, args)
    net = tests[0] if tests else net
    graph = net.graph("TEST")
    scores, normal = scores_of(graph)
    setting = opened(args, Setting.of({**given(args), "keep": [scores]}, solver))
    tell_unobeyed((net,), solver, setting)
    with Session(net, setting=setting) as session:
        session.load(args.weights, complete=True)
        with np.errstate(all="ignore"):  # the check below gives a better message than NumPy's warnings
            found = session.forward(prepared(graph, args.input))[scores]
    for i in np.flatnonzero(~np.isfinite(found.reshape(len(found), -1)).all(1)):
        raise DataError(f"{args.input}: the net's scores of sample {i} are not finite: its values are too large")
    chances = probabilities(found.reshape(len(found), -1), normal)
    order = (-chances).argsort(1, kind="stable")[:, : args.top]
    rows = [
        Prediction(index=i, classes=best.tolist(), probabilities=[float(chances[i, c]) for c in best])
        for i, best in enumerate(order)
    ]
    if args.json:
        table.dump(Predictions(predictions=rows))
    else:
        for row in rows:
            likely = "  ".join(f"{c} ({p:.1%})" for c, p in zip(row.classes, row.probabilities, strict=True))
            say(f"{row.index}: {likely}")
    return 0


def scores_of(graph) -> tuple[str, bool]:
    """The name of the blob with a score per class, and whether its values are probabilities already.

    It is the top of the last Softmax. A net without Softmax: the first bottom of the last layer that compares scores of
    classes with labels (SoftmaxWithLoss or Accuracy). A net without these either: its last top."""
    from minidnn.errors import InvalidInput

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


def prepared(graph, path: str) -> np.ndarray:
    """The file's samples, transformed as by the net's Data layer in phase TEST, but never mirrored."""
    import numpy as np

    from minidnn.data import raw_samples, transform
    from minidnn.errors import InvalidInput

    images = raw_samples(path)
    for node in graph.layers:
        if node.layer.source:
            _, param = node.layer.source
            change = transform(param.model_copy(update={"mirror": False}), "TEST")
            change.shape(images.shape[1:], path)  # raises if the samples do not have the shape that the net needs
            return change(images, np.arange(len(images)))
        if node.layer.inputs and not node.layer.fillers:
            return images
    raise InvalidInput("the net has no input in phase TEST")


def probabilities(scores: np.ndarray, normal: bool) -> np.ndarray:
    """Probabilities of the classes, a row per sample: `scores` if they are `normal` already, else their softmax."""
    import numpy as np

    if normal:
        return scores
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
