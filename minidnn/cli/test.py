"""`minidnn test MODEL|SOLVER --weights FILE`: the TEST net's outputs, averaged over its data."""

from __future__ import annotations

import argparse

from minidnn.cli.options import common, given, opened, positive
from minidnn.cli.subject import tell_unobeyed, understood
from minidnn.visible import say


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="a model file with test data, or its solver file; YAML or Caffe's .prototxt"
    )
    parser.add_argument(
        "--weights", metavar="FILE", required=True, help="a snapshot, any safetensors file, or Caffe's .caffemodel"
    )
    parser.add_argument("--iterations", type=positive, metavar="N", help="batches (default: all data once)")
    common(parser, "policy", "budget", "host_budget", "ram", "device", "format", "batch", "ignore_unknown", "json")


def run(args: argparse.Namespace) -> int:
    from minidnn.report import table
    from minidnn.training.evaluate import evaluate
    from minidnn.training.feeds import Feeds
    from minidnn.training.session import Session
    from minidnn.training.setting import Setting

    net, test_net, solver = understood(args.model, args)
    net = test_net or net
    setting = opened(args, Setting.of(given(args), solver))
    tell_unobeyed(net, None, solver, setting)
    with Session(net, setting=setting) as session:
        loaded = session.load(args.weights, complete=True)
        feeds = Feeds(session.graphs["TEST"])
        try:
            own = solver.test_iter if solver and not args.batch else ()
            result = evaluate(session, feeds, args.iterations or next(iter(own), None))
        finally:
            feeds.close()
        assert result is not None
        document = {
            "outputs": dict(result.outputs),
            "images": result.images,
            "seconds": result.seconds,
            "device": f"{session.device.name}: {session.device.description}",
            "format": session.setting.format,
            "peak_bytes": session.arrangement.arena,
            "unused": list(loaded.unused),
        }
    if args.json:
        table.dump(document)
    else:
        for name, value in result.outputs.items():
            say(f"{name} = {value:.6g}")
        say(f"{result.images} images in {result.seconds:.3g} s")
    return 0
