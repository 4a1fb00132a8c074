"""`minidnn test MODEL|SOLVER --weights FILE`: the TEST net's outputs, averaged over its data."""

from __future__ import annotations

import argparse
import contextlib

from minidnn.cli.help import examples
from minidnn.cli.options import common, given, opened
from minidnn.cli.subject import NETS, check_weights, tell_unobeyed, understood, weights
from minidnn.cli.values import positive
from minidnn.visible import say


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn test models/digits_solver.yaml --weights out/digits_iter_250.safetensors",
        "minidnn test solver.yaml --weights run_best.safetensors --confusion",
    )
    parser.add_argument("model", metavar="MODEL", help=f"a model file with test data, or its solver file: {NETS}")
    weights(parser)
    text = "the samples of a net with Input layers: a data source, named as in a Data layer (folder:photos, digits)"
    parser.add_argument("--data", "--test-data", metavar="SOURCE", help=text)
    parser.add_argument(
        "--iterations", type=positive, metavar="N", help="batches to test (default: one pass over the data)"
    )
    parser.add_argument(
        "--confusion", action="store_true", help="show which classes are mistaken for which, and the accuracy of each"
    )
    common(
        parser, "policy", "budget", "host_budget", "ram", "batch", "seq", "format", "workers", "worker_limit", "device",
        "set", "modules", "ignore_unknown", "json",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from minidnn.jobs.setting import Setting
    from minidnn.programs.build import named
    from minidnn.report import confusion, table
    from minidnn.results.runs import Tested, Testing
    from minidnn.training.evaluate import evaluate
    from minidnn.training.feeds import Feeds
    from minidnn.training.session import Session

    net, tests, solver = understood(args.model, args)
    check_weights(args, tests or (net,))
    own = solver.test_iter if solver and not args.batch else ()
    setting = opened(args, Setting.of(given(args), solver))
    tell_unobeyed(tests or (net,), solver, setting)
    with contextlib.ExitStack() as opened_feeds:
        feeds = {}
        for program, (one, phase) in named(net, ("TEST",), tests).items():
            feeds[program] = Feeds(
                one.graph(phase), data=args.data, workers=setting.workers, limit=setting.worker_limit
            )
            opened_feeds.callback(feeds[program].close)
        session = opened_feeds.enter_context(Session(net, tests=tests, fed=True, setting=setting))
        loaded = session.load(args.weights, complete=True) if args.weights else None
        results = []
        for i, program in enumerate(session.graphs):
            batches = args.iterations or (own[i] if own else None)
            results.append(evaluate(session, feeds[program], batches, program=program, confusion=args.confusion))
        found = [r for r in results if r]
        rows = [
            Tested(
                outputs=dict(r.outputs),
                samples=r.images,
                test_seconds=r.seconds,
                confusion=confusion.record(r.confusion) if r.confusion else None,
            )
            for r in found
        ]
        document = Testing(
            **rows[0],
            nets=rows,
            device=session.device.name,
            description=session.device.description,
            format=session.setting.format,
            peak_bytes=session.arrangement.arena,
            unused=list(loaded.unused) if loaded else [],
        )
    if args.json:
        table.dump(document)
    else:
        for i, result in enumerate(found):
            samples = session.counted(result.program)
            if len(found) > 1:
                say(f"Test net #{i}")
            for name, value in result.outputs.items():
                say(f"{name} = {value:.6g}")
            say(f"{result.images * samples.each} {samples.name} in {result.seconds:.3g} s")
            if result.confusion:
                confusion.show(result.confusion)
    return 0
