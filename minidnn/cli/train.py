"""`minidnn train SOLVER`: train as a solver file says, under a policy and a budget."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minidnn.cli import streams
from minidnn.cli.help import examples
from minidnn.cli.options import Arguments, common, given, of_cuda, opened, solver_fields
from minidnn.cli.subject import NETS
from minidnn.cli.values import positive, started
from minidnn.jobs.options import RANKS
from minidnn.visible import say

if TYPE_CHECKING:
    from minidnn.cli.guard import Guard
    from minidnn.jobs.keywords import Asked
    from minidnn.ranks.launched import Launch
    from minidnn.training.events import Event


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn train models/digits_solver.yaml",
        "minidnn train solver.yaml --epochs 20 --test-epochs 1 --keep-best accuracy --patience 5",
        "minidnn train solver.yaml --budget 4GiB --resume latest --log run.jsonl --tensorboard tb",
    )
    what = f"a solver file (YAML or Caffe's .prototxt), or a net ({NETS}), whose solver --set defines"
    parser.add_argument("solver", metavar="SOLVER", help=what)
    _course(parser.add_argument_group("start and end of training"))
    _followed(parser.add_argument_group("tests, snapshots and logs"))
    _together(parser.add_argument_group(RANKS))
    common(
        parser, "policy", "budget", "host_budget", "ram", "ring", "effort", "state", "facts", "batch", "format", "seed",
        "workers", "worker_limit", "device", "costs", "seq", "global_batch", "rank_limit", "set", "loss", "modules",
        "ignore_unknown", "json",
    )  # fmt: skip
    parser.add_argument("--ranks", type=started, help=argparse.SUPPRESS)


def _course(group: Arguments) -> None:
    begin, end = group.add_mutually_exclusive_group(), group.add_mutually_exclusive_group()
    begin.add_argument("--resume", metavar="FILE|latest", help="continue from a snapshot, bit for bit")
    text = (
        "start from these weights, matched by layer name: a snapshot, any safetensors file, or a .caffemodel "
        "(default: an "
    )
    text += ".onnx starts from its own)"
    begin.add_argument("--weights", metavar="FILE", help=text)
    end.add_argument(
        "--max-iter", type=positive, metavar="N", help="stop at iteration N instead of the file's max_iter"
    )
    end.add_argument("--epochs", type=positive, metavar="N", help="train for N epochs instead of to max_iter")
    text = "the samples of a net with Input layers, such as an .onnx: a data source, named as in a Data layer "
    text += "(folder:photos, an LMDB, digits)"
    group.add_argument("--data", metavar="SOURCE", help=text)
    group.add_argument("--test-data", metavar="SOURCE", help="the same for the net's tests")
    text = "with --keep-best: stop after N tests in a row without improvement"
    group.add_argument("--patience", type=positive, metavar="N", help=text)


def _together(group: Arguments) -> None:
    sizes = group.add_mutually_exclusive_group()
    text = "sum the gradients of N batches on each rank for an update, instead of the file's iter_size"
    sizes.add_argument("--iter-size", type=positive, metavar="N", help=text)
    text = (
        "the same for all ranks together: each takes its part of N batches, so N stays the same if the number of "
        "ranks changes"
    )
    sizes.add_argument("--micro-batches", type=positive, metavar="N", help=text)
    text = "if the run fails, restart it from its newest snapshot, up to N times"
    group.add_argument("--max-restarts", type=positive, metavar="N", help=text)
    text = (
        'the command that starts the ranks, such as "mpiexec -n 4"; given more than once, the second is for the '
        "first restart"
    )
    group.add_argument("--launcher", action="append", metavar="COMMAND", help=text)


def _followed(group: Arguments) -> None:
    for what, does in (("test", "test"), ("display", "log a line"), ("snapshot", "take a snapshot")):
        text = f"{does} every N epochs, instead of at the file's interval in iterations"
        group.add_argument(f"--{what}-epochs", type=positive, metavar="N", help=text)
    group.add_argument(
        "--snapshot-prefix", metavar="PATH", help="the prefix of snapshots' paths, instead of the file's"
    )
    text = "also keep the snapshot with the best test, judged by this output: accuracy, loss, highest:NAME, lowest:NAME"
    group.add_argument("--keep-best", metavar="OUTPUT", help=text)
    text = "write each step and test as it happens: JSON lines to FILE.jsonl, or rows to FILE.csv; may be given twice"
    group.add_argument("--log", action="append", metavar="FILE", help=text)
    group.add_argument("--tensorboard", metavar="DIR", help="write TensorBoard event files to this folder")


def run(args: argparse.Namespace) -> int:
    from minidnn.ranks import launched

    launch = launched.launch()
    if args.max_restarts or args.launcher:
        from minidnn.cli.restarts import supervised

        return supervised(args, launch, args.words)
    if args.resume is None and args.weights is None and launched.restarts():
        args.resume = "latest"
    if launch is None:
        return _train(args)
    from minidnn.cli.guard import guarded, leave
    from minidnn.ranks.engine import LIMIT

    limit = args.rank_limit or LIMIT
    code = guarded(launch, lambda guard: _train(args, launch, guard), lambda error: _outcome(error, args), limit)
    return leave(launch, code)


def _part(batches: int, ranks: int) -> int:
    """The micro-batches of each rank. Raises InvalidInput if they cannot have equally many."""
    from minidnn.errors import InvalidInput

    if batches % ranks:
        raise InvalidInput(f"--micro-batches {batches} is not a multiple of the {ranks} ranks")
    return batches // ranks


def _with_set(fields: dict[str, Any], assigned: Mapping[str, Asked]) -> dict[str, Any]:
    """The solver fields of options, and those of --set. Raises InvalidInput for one that both give."""
    from minidnn.errors import InvalidInput

    for name, asked in assigned.items():
        if (own := name.removeprefix("minidnn.")) in fields:
            raise InvalidInput(f"{asked.shown} and --{own.replace('_', '-')}: give one")
    return {**fields, **assigned}


def _outcome(error: Exception, args: argparse.Namespace) -> tuple[str, int]:
    """The message and the exit code of an error that ends a rank."""
    from minidnn.cli.exit_codes import exit_code, message
    from minidnn.cli.main import point
    from minidnn.errors import BadInput

    if isinstance(error, BadInput):
        point(error, args)
    return message(error), exit_code(error)


def _train(args: argparse.Namespace, launch: Launch | None = None, guard: Guard | None = None) -> int:
    """Train; `launch` and `guard`: of one of several ranks."""
    from minidnn.cli.progress import watching
    from minidnn.jobs.keywords import Course
    from minidnn.jobs.setting import Setting
    from minidnn.report import table
    from minidnn.results.runs import Training
    from minidnn.training.events import Ended, Saved, Step
    from minidnn.training.solver import Solver

    names = ("max_iter", "iter_size", "snapshot_prefix", *Course.__annotations__)
    fields: dict[str, Any] = {name: value for name in names if (value := getattr(args, name)) is not None}
    fields = _with_set(fields, solver_fields(args))
    if args.micro_batches:
        fields["iter_size"] = _part(args.micro_batches, launch.ranks if launch else 1)
    document: dict[str, Any] = {"history": [], "tests": [], "snapshots": []}
    chosen = given(args)
    if launch is not None:
        launch.enter()
        if guard is not None:
            guard.say(entered=True)
        chosen["launch"] = launch
        if launch.rank:
            streams.silence()  # the first one speaks
    if of_cuda(args):
        chosen["device"] = opened(args, Setting.of(chosen)).device
    with Solver(
        args.solver, batch=args.batch, data=args.data, test_data=args.test_data, resume=args.resume,
        weights=args.weights, ignore_unknown=args.ignore_unknown, loss=args.loss, **chosen, **fields,
    ) as solver:  # fmt: skip
        for sentence in solver.session.refusals:
            say(f"minidnn: {sentence}", file=sys.stderr)
        images = seconds = 0.0
        ended: int | None = None  # the signal that ended the run
        if guard and solver.resumed:
            guard.say(snapshot=solver.resumed)
        with watching(solver, quiet=args.json) as watch:
            for event in solver.run():
                try:
                    watch(event)
                except OSError:  # a full disk or a closed pipe: progress cannot be shown, so save the training and end
                    if solver.saves_alone:
                        solver.save()
                    raise
                if guard and isinstance(event, Saved):
                    guard.say(snapshot=event.path)
                if isinstance(event, Step):
                    images, seconds = images + event.images, seconds + event.seconds
                elif isinstance(event, Ended):
                    ended = event.signal
                    document |= {"iterations": event.iteration, "interrupted": event.interrupted}
                    document |= {"best_test": event.best.data(), "out_of_patience": event.spent} if event.best else {}
                if args.json:  # else a long run would collect events that nobody reads
                    _note(event, document)
        arrangement = solver.session.arrangement
        document |= {
            "policy": arrangement.policy,
            "device": solver.session.device.name,
            "description": solver.session.device.description,
            "format": solver.session.setting.format,
            "seed": solver.seed,
            "refusals": solver.session.refusals,
            "resumed": solver.resumed and str(solver.resumed),
            "weights": solver.loaded and solver.loaded.data(),
            "peak_bytes": arrangement.arena,
            "host_bytes": arrangement.off_device,
            "pinned_bytes": arrangement.host,
            "pageable_bytes": arrangement.store,
            "undo_bytes": arrangement.undo,
            "on_disk_bytes": arrangement.on_disk,
            "beside_arena_bytes": solver.session.device.beside(),
            "train_seconds": seconds,
            "samples_per_second": images / seconds if seconds else None,
        }
    if args.json:
        table.dump(Training(**document))
    return 128 + ended if ended is not None else 0


def _note(event: Event, document: dict[str, Any]) -> None:
    """Add a step, a test or a snapshot to the document's list of such events."""
    from minidnn.training.events import Saved, Step, Tested

    more: dict[str, Any]
    if isinstance(event, Step):
        more = {"debug": dict(event.debug)} if event.debug else {}
        document["history"].append({"iteration": event.iteration, "loss": event.loss, "lr": event.rate, **more})
    elif isinstance(event, Tested):
        more = {"test_net": event.number, "test_loss": event.loss, "outputs": event.outputs}
        document["tests"].append({"iteration": event.iteration, **more})
    elif isinstance(event, Saved):
        more = {"kept_best": True} if event.best else {}
        document["snapshots"].append({"iteration": event.iteration, "path": str(event.path), **more})
