"""`minidnn search --max batch MODEL`: the largest batch that a policy places within a budget; `--max size MODEL`: the
largest images; `--max depth FAMILY`: the largest depth."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from minidnn import sizes
from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.values import positive
from minidnn.visible import say, status

if TYPE_CHECKING:
    from minidnn.jobs.plannable import Plannable
    from minidnn.jobs.search import Try

SECONDS = 600
SIDE, APART = 32, 128  # pixels, tokens: as in jobs/sized.py


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn search --max batch resnet50 --gpu titan_x --budget 4GiB --policies liveness,best",
        "minidnn search --max batch train.py:make --torch --gpu rtx3060 --policies liveness,best",
        "minidnn search --max size unet --batch 1 --gpu a100 --policy best",
        "minidnn search --max tokens llama_1b --gpu rtx4090 --policies liveness,best",
        "minidnn search --max depth resnet --batch 16 --gpu k40 --policy superneurons --step 12",
    )
    subject.arguments(
        parser, "policy_searched", "policies", "budget", "host_budget", "device", "format", "state", "gpu", "ranks",
        "facts", "torch", "json",
    )  # fmt: skip
    parser.add_argument(
        "--max", required=True, choices=("batch", "size", "tokens", "depth"),
        help="what to maximize: the batch size, the side of the images in pixels, the tokens per sample, or the "
            "depth of a family (then FILE is {families})",
    )  # fmt: skip
    parser.add_argument(
        "--step", type=positive, metavar="N",
        help=f"try multiples of N only (default: every batch and depth, multiples of {SIDE} pixels and of {APART} "
            "tokens)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=positive, default=SECONDS, metavar="S",
        help=f"seconds per policy, after which no further size is tried (default: {SECONDS})",
    )  # fmt: skip
    subject.report(parser, "a page (.html), the rows")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import search

    subject.check_report(args, search.Search)
    if args.max != "batch":
        subject.check_nets(args, f"--max {args.max}")

    deliver = partial(subject.deliver, args)

    def tell(policy: str, budget: int, attempt: Try) -> None:
        say(_attempt(args.max, policy, attempt, budget), file=sys.stderr, flush=True)

    def read(file: object) -> Plannable:
        return subject.planned(argparse.Namespace(**{**vars(args), "file": file}))

    policies = subject.policies_of(args)
    deliver(search.of(args.file, read, args.max, policies, args.step, args.seconds, tell, status, deliver))
    return 0  # also if nothing fits: that is a result, not a failure


def _attempt(what: str, policy: str, t: Try, budget: int) -> str:
    """A sentence on one plan that was made."""
    if not t.budget:
        text = f"takes {sizes.text(t.arena)} at its leanest"
    elif t.arena > budget:
        text = f"needs {sizes.text(t.arena)}, {sizes.text(t.arena - budget)} too much"
    elif not t.fits:
        text = f"needs {sizes.text(t.host)} on the host, which is too much"
    else:
        text = f"fits in {sizes.text(t.arena)}, with {sizes.text(budget - t.arena)} to spare"
    return f"{policy}: {what} {t.size} {text} ({t.seconds:.1f} s)"
