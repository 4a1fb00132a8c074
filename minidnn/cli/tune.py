"""`minidnn tune MODEL --budget 12GB`: the minibatch of the highest throughput, and a learning rate to match.

It is AccUDNN-style: of the paper's own tuner little is known (study/tune.py).
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from minidnn.cli import subject
from minidnn.cli.help import examples
from minidnn.cli.values import positive, size
from minidnn.visible import say

if TYPE_CHECKING:
    from minidnn.study.tune import Point


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn tune resnet50 --gpu titan_x --budget 8GiB",
        "minidnn tune models/digits_solver.yaml --budget 32MiB --measure",
        "minidnn tune vgg16 --gpu k40 --gpus 4 --link 10GB --samples 50000 --report vgg16.html",
    )
    subject.arguments(
        parser, "policy_tuned", "budget", "host_budget", "device", "format", "state", "gpu", "facts", "json"
    )
    parser.add_argument(
        "--grid", type=positive, metavar="N", help="find batches to within N (default: an eighth of them)"
    )
    parser.add_argument(
        "--gpus", type=positive, default=1, metavar="N", help="devices that train together; their speed is modelled"
    )
    parser.add_argument(
        "--link", type=size, metavar="BYTES",
        help="bytes per second between two devices, each way, such as 10GB (default: as to the host)",
    )  # fmt: skip
    parser.add_argument(
        "--samples", type=positive, metavar="N",
        help="samples of an epoch (default: as many as the data has; ImageNet's 1281167 if it is synthetic)",
    )  # fmt: skip
    parser.add_argument(
        "--measure", action="store_true",
        help="measure the ops at the batches that were found, run these, and compare with the prediction",
    )  # fmt: skip
    subject.report(parser, "a page (.html), the curve alone as a picture (.svg, .png), the rows")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import tune
    from minidnn.report import tune as report

    subject.check_report(args, tune.Tuning)
    about = subject.read(args)
    found = tune.of(about, args.policy, args.grid, args.gpus, args.link, args.samples, args.measure, _tell)
    subject.deliver(args, found, lambda: report.show(found.document, found.title, found.sentences))
    return 0  # also if nothing fits: that is a result, not a failure


def _tell(policy: str, p: Point) -> None:
    from minidnn.report.table import rate

    if sys.stderr.isatty():
        said = f"{rate(p.rate)} samples/s" if p.fits else "refused"
        say(f"{policy}: batch {p.batch} {said}", file=sys.stderr, flush=True)
