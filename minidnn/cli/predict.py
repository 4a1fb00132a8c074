"""`minidnn predict MODEL --weights FILE INPUT...`: the likeliest classes of images, and of samples in arrays."""

from __future__ import annotations

import argparse

from minidnn.cli.help import examples
from minidnn.cli.options import common, given, opened
from minidnn.cli.subject import NETS, check_weights, tell_unobeyed, understood, weights
from minidnn.cli.values import positive


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn predict photos.yaml cat.jpg more/ --weights out/photos_iter_800.safetensors",
        "minidnn predict models/digits_lenet.yaml images.npz --weights out/digits_iter_250.safetensors --top 1",
    )
    parser.add_argument("model", metavar="MODEL", help=f"a model file: {NETS}")
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="+",
        help="an image; a folder of images; or raw samples: an .npy file, an .npz with an array x or images, or "
        "Caffe's .binaryproto or .datum. All are prepared as by the net's Data layer in phase TEST",
    )
    weights(parser)
    parser.add_argument("--top", type=positive, default=3, metavar="N", help="likeliest classes to print (default: 3)")
    parser.add_argument(
        "--classes", metavar="FILE", help="a file with the names of the classes, one per line (default: the data's)"
    )
    common(
        parser, "policy", "budget", "host_budget", "ram", "batch", "format", "device", "set", "modules",
        "ignore_unknown", "json",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from minidnn.jobs.setting import Setting
    from minidnn.report import predict as report
    from minidnn.report import table
    from minidnn.results.runs import Prediction, Predictions
    from minidnn.training import snapshot
    from minidnn.training.predict import Classifier, names_of, predict, read_names, scores_of
    from minidnn.training.session import Session
    from minidnn.visible import status

    net, tests, solver = understood(args.model, args)
    check_weights(args, (net,))
    result = Classifier.of(tests[0] if tests else net)
    graph = result.graph
    names = read_names(args.classes, graph) if args.classes else ()
    scores, _ = scores_of(graph)
    setting = opened(args, Setting.of({**given(args), "keep": [scores]}, solver))
    tell_unobeyed((net,), solver, setting)
    inputs = result.inputs(args.inputs)
    count = sum(len(files) for files, _ in inputs)
    with Session(result.net, setting=setting) as session:
        if args.weights:
            session.load(args.weights, complete=True)
        saved = snapshot.class_names(args.weights) if args.weights else ()
        names = names or names_of(result.class_names() or saved, graph)
        rows: list[Prediction] = []
        for files, loader in inputs:
            with loader:
                for row in predict(session, loader, files, args.top, names):
                    rows.append(row.model_copy(update={"index": len(rows)}))
                    status(f"{len(rows)} of {count} samples")
    status()
    if args.json:
        table.dump(Predictions(predictions=rows))
    else:
        report.show(rows)
    return 0
