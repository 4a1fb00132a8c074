"""`minidnn predict MODEL --weights FILE INPUT ...`: the likeliest classes of images, or of the samples in a file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from minidnn.cli.help import examples
from minidnn.cli.options import common, given, opened, positive
from minidnn.cli.subject import tell_unobeyed, understood
from minidnn.visible import say, status

if TYPE_CHECKING:
    import numpy as np


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn predict net.yaml cat.jpg dogs/ --weights run_best.safetensors",
        "minidnn predict models/digits_lenet.yaml images.npz --weights out/digits_iter_250.safetensors --top 1",
    )
    parser.add_argument("model", metavar="MODEL", help="a model file; YAML or Caffe's .prototxt")
    parser.add_argument(
        "input",
        metavar="INPUT",
        nargs="+",
        help="images and folders of images; or one file of raw samples: npy, npz with an array x or images, Caffe's "
        ".binaryproto or .datum",
    )
    parser.add_argument(
        "--weights", metavar="FILE", required=True, help="a snapshot, any safetensors file, or Caffe's .caffemodel"
    )
    parser.add_argument("--top", type=positive, default=3, metavar="N", help="classes to print (default: 3)")
    parser.add_argument(
        "--classes", metavar="FILE", help="the names of the classes, one a line (default: those of the test data)"
    )
    common(parser.add_argument_group("memory"), "policy", "budget", "host_budget", "ram")
    common(parser.add_argument_group("device and numbers"), "batch", "format", "device")
    common(parser.add_argument_group("files and output"), "ignore_unknown", "json")


def run(args: argparse.Namespace) -> int:
    import numpy as np

    from minidnn.data import DataError
    from minidnn.report import table
    from minidnn.results.runs import Prediction, Predictions
    from minidnn.training.samples import Samples, class_names
    from minidnn.training.session import Session
    from minidnn.training.setting import Setting

    net, tests, solver = understood(args.model, args)
    net = tests[0] if tests else net
    graph = net.graph("TEST")
    scores, normal = scores_of(graph)
    setting = opened(args, Setting.of({**given(args), "keep": [scores]}, solver))
    tell_unobeyed((net,), solver, setting)
    samples = Samples.of(graph, args.input)
    names = class_names(args.classes) if args.classes else samples.names
    if samples.told:
        say(samples.told, file=sys.stderr)
    rows = []
    with Session(net, setting=setting) as session:
        session.load(args.weights, complete=True)
        for first, batch in samples.batches():
            with np.errstate(all="ignore"):  # the check below gives a better message than NumPy's warnings
                found = session.forward(batch)[scores]
            found = found.reshape(len(found), -1)
            for i in np.flatnonzero(~np.isfinite(found).all(1)).tolist():
                what = f"the net's scores of sample {first + i} are not finite: its values are too large"
                raise DataError(f"{samples.place(first + i) or samples.dataset.name}: {what}")
            if names and len(names) != found.shape[1]:
                raise DataError(f"there are names of {len(names)} classes, but scores of {found.shape[1]}")
            for i, chances in enumerate(probabilities(found, normal), first):
                best = (-chances).argsort(kind="stable")[: args.top].tolist()
                called = [names[c] for c in best] if names else None
                chance = [float(chances[c]) for c in best]
                row = Prediction(index=i, image=samples.place(i), classes=best, names=called, probabilities=chance)
                rows.append(row)
            status(f"{len(rows)} of {len(samples.dataset)} samples")
        status()
    if args.json:
        table.dump(Predictions(predictions=rows))
    else:
        for row in rows:
            shown = row.names or [str(c) for c in row.classes]
            likely = "  ".join(f"{c} ({p:.1%})" for c, p in zip(shown, row.probabilities, strict=True))
            say(f"{row.image or row.index}: {likely}")
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


def probabilities(scores: np.ndarray, normal: bool) -> np.ndarray:
    """Probabilities of the classes, a row per sample: `scores` if they are `normal` already, else their softmax."""
    import numpy as np

    if normal:
        return scores
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
