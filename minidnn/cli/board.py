"""`minidnn board NET...`: all memory policies on nets, GPUs and budgets, with the gap to the bound."""

from __future__ import annotations

import argparse

from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.options import common, given
from minidnn.cli.values import names, positive
from minidnn.visible import status


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn board resnet20:128 --gpus titan_x --budgets 70%,30%",
        "minidnn board vgg19:64 resnet50:64 densenet121:32 --report board.html",
        "minidnn board alexnet:128 --gpus k40,h100 --policies best,vdnn_dyn,poet --budgets 90%,600MiB",
    )
    parser.add_argument(
        "nets", metavar="NET", nargs="+",
        help="a model file, a solver file or the name of a model; vgg19:64 is vgg19 at batch size 64",
    )  # fmt: skip
    common(
        parser, "policies", "host_budget", "format", "state", "facts", "seq", "modules", "ignore_unknown", "torch",
        "json",
    )  # fmt: skip
    parser.add_argument("--gpus", type=names, metavar="A,B", help="GPUs to simulate (default: titan_x,rtx4090,h100)")
    parser.add_argument(
        "--budgets", type=names, metavar="A,B",
        help="budgets in bytes, or in percent of the bytes that liveness:p takes: 50%%,4GiB (default: "
            "100%%,70%%,50%%,30%%,15%%)",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=positive, metavar="N", help="processes that plan in parallel (default: one per processor)"
    )
    subject.report(parser, "a page (.html), the curves alone as a picture (.svg, .png), the rows")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import board, cards

    subject.check_report(args, board.Board)
    reading = argparse.Namespace(**{**vars(args), "gpu": cards.ANY})
    budgets = [board.budget_of(text) for text in args.budgets or board.BUDGETS]
    result = board.of(
        args.nets, budgets, args.gpus or board.GPUS, args.policies or (), args.jobs, given(args),
        subject.modules(reading) if args.torch else board.reading(given(args), args.ignore_unknown), status,
    )  # fmt: skip
    subject.deliver(args, result)
    return 0 if result.document.finished else 130
