"""`minidnn test MODEL|SOLVER --weights FILE`: the TEST net's outputs, averaged over its data."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

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
    common(
        parser,
        "policy",
        "budget",
        "host_budget",
        "ram",
        "device",
        "format",
        "batch",
        "workers",
        "ignore_unknown",
        "json",
    )


def run(args: argparse.Namespace) -> int:
    from minidnn.programs.build import named
    from minidnn.report import table
    from minidnn.training.evaluate import evaluate
    from minidnn.training.feeds import Feeds
    from minidnn.training.session import Session
    from minidnn.training.setting import Setting

    net, tests, solver = understood(args.model, args)
    own = solver.test_iter if solver and not args.batch else ()
    setting = opened(args, Setting.of(given(args), solver))
    tell_unobeyed(tests or (net,), solver, setting)
    with contextlib.ExitStack() as opened_feeds:
        feeds = {}
        for program, (one, phase) in named(net, ("TEST",), tests).items():
            feeds[program] = Feeds(one.graph(phase), workers=setting.workers)
            opened_feeds.callback(feeds[program].close)
        session = opened_feeds.enter_context(Session(net, tests=tests, fed=True, setting=setting))
        loaded = session.load(args.weights, complete=True)
        results = []
        for i, program in enumerate(session.graphs):
            batches = args.iterations or (own[i] if own else None)
            results.append(evaluate(session, feeds[program], batches, program=program))
        rows: list[dict[str, Any]] = [
            {"outputs": dict(r.outputs), "images": r.images, "seconds": r.seconds} for r in results if r
        ]
        document = {
            **rows[0],
            **({"nets": rows} if len(rows) > 1 else {}),
            "device": f"{session.device.name}: {session.device.description}",
            "format": session.setting.format,
            "peak_bytes": session.arrangement.arena,
            "unused": list(loaded.unused),
        }
    if args.json:
        table.dump(document)
    else:
        for i, row in enumerate(rows):
            if len(rows) > 1:
                say(f"Test net #{i}")
            for name, value in row["outputs"].items():
                say(f"{name} = {value:.6g}")
            say(f"{row['images']} images in {row['seconds']:.3g} s")
    return 0
