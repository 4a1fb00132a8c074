"""`minidnn train SOLVER`: train as a solver file says, under a policy and a budget."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from minidnn.cli.options import common, given, of_cuda, opened, positive
from minidnn.visible import say

if TYPE_CHECKING:
    from minidnn.training.events import Event


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("solver", metavar="SOLVER", help="a solver file, YAML or Caffe's .prototxt")
    common(
        parser,
        "policy",
        "budget",
        "host_budget",
        "ram",
        "ring",
        "device",
        "format",
        "state",
        "facts",
        "batch",
        "seed",
        "workers",
        "ignore_unknown",
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--resume", metavar="FILE|latest", help="go on from a snapshot, bit for bit")
    begin.add_argument("--weights", metavar="FILE", help="begin with these weights, by layer name; a .caffemodel, too")
    parser.add_argument("--max-iter", type=positive, metavar="N", help="stop here instead of at the file's max_iter")
    parser.add_argument("--snapshot-prefix", metavar="PATH", help="where snapshots go, instead of the file's")
    common(parser, "json")


def run(args: argparse.Namespace) -> int:
    from minidnn.cli.progress import watching
    from minidnn.report import table
    from minidnn.training.events import Ended, Step
    from minidnn.training.setting import Setting
    from minidnn.training.solver import Solver

    fields = {"max_iter": args.max_iter, "snapshot_prefix": args.snapshot_prefix}
    document: dict[str, Any] = {"history": [], "tests": [], "snapshots": []}
    chosen = given(args)
    if of_cuda(args):
        chosen["device"] = opened(args, Setting.of(chosen)).device
    with Solver(
        args.solver, batch=args.batch, resume=args.resume, weights=args.weights, ignore_unknown=args.ignore_unknown,
        **chosen,
        **{name: value for name, value in fields.items() if value is not None},
    ) as solver:  # fmt: skip
        for sentence in solver.session.refusals:
            say(f"minidnn: {sentence}", file=sys.stderr)
        images = seconds = 0.0
        ended: int | None = None  # the signal that ended the run
        with watching(solver, quiet=args.json) as watch:
            for event in solver.run():
                try:
                    watch(event)
                except OSError:  # a full disk or a closed pipe: progress cannot be shown, so save the training and end
                    if solver.unsaved:
                        solver.save()
                    raise
                if isinstance(event, Step):
                    images, seconds = images + event.images, seconds + event.seconds
                elif isinstance(event, Ended):
                    ended = event.signal
                    document |= {"iterations": event.iteration, "interrupted": event.interrupted}
                if args.json:  # else a long run would keep for nothing what it cannot forget
                    _note(event, document)
        arrangement = solver.session.arrangement
        document |= {
            "policy": arrangement.policy,
            "device": solver.session.device.name,
            "description": solver.session.device.description,
            "format": solver.session.setting.format,
            "seed": solver.seed,
            "refused": solver.session.refusals,
            "peak_bytes": arrangement.arena,
            "host_bytes": arrangement.off_device,
            "pinned_bytes": arrangement.host,
            "pageable_bytes": arrangement.store,
            "beside_arena_bytes": solver.session.device.beside(),
            "seconds": seconds,
            "images_per_second": images / seconds if seconds else None,
        }
    if args.json:
        table.dump(document)
    return 128 + ended if ended is not None else 0


def _note(event: Event, document: dict[str, Any]) -> None:
    """Add a step, a test or a snapshot to the document's list of such events."""
    from minidnn.training.events import Saved, Step, Tested

    more: dict[str, Any]
    if isinstance(event, Step):
        more = {"debug": dict(event.debug)} if event.debug else {}
        document["history"].append({"iteration": event.iteration, "loss": event.loss, "lr": event.rate, **more})
    elif isinstance(event, Tested):
        more = {"net": event.number} if event.number else {}
        more |= {} if event.loss is None else {"test_loss": event.loss}
        document["tests"].append({"iteration": event.iteration, **more, **event.outputs})
    elif isinstance(event, Saved):
        document["snapshots"].append({"iteration": event.iteration, "path": str(event.path)})
