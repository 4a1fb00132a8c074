"""`minidnn tune MODEL --budget 12GB`: the minibatch of the highest throughput, and a learning rate to match.

It is AccUDNN-style: of the paper's own tuner little is known (study/tune.py).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import minidnn
from minidnn import sizes
from minidnn.cli import subject
from minidnn.cli.options import TUNED, positive, size
from minidnn.costs import Costs
from minidnn.visible import say


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(
        parser, "policy_tuned", "budget", "host_budget", "device", "format", "state", "gpu", "facts", "json"
    )
    parser.add_argument(
        "--grid", type=positive, metavar="N", help="find batches to within N (default: a quarter of the first)"
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
    parser.add_argument("--report", metavar="FILE", help="write a page (.html), or the curve alone as a picture (.svg)")


def run(args: argparse.Namespace) -> int:
    from minidnn.errors import InvalidInput
    from minidnn.files.replace import replacing, unwritable
    from minidnn.report import table
    from minidnn.report import tune as report

    if args.report and (problem := unwritable(Path(args.report), ".html", ".svg")):
        raise InvalidInput(f"--report {args.report}: {problem}")
    if args.measure and args.gpu:
        raise InvalidInput(f"--measure runs on --device: leave out --gpu {args.gpu}")
    about = subject.read(args)
    policy = args.policy or (about.solver is not None and about.solver.minidnn.policy) or TUNED
    subject.check_policies([policy], sizes=True)
    costs = subject.costs_of(about, args.gpu, sizes=True)
    document, derived, epoch = _tuned(args, about, policy, costs)
    says = [*report.sentences(document), epoch]
    if document["solver"] is not None:
        says.append(f"Solver fields for it{derived}: {_fields(document['solver'])}.")
    says += [*report.checks(document), subject.notes(costs, about.setting.format)]
    budget = about.setting.budget
    title = f"{about.name}, {policy}, {sizes.text(costs.memory if budget is None else budget)} of {costs.device}"
    if args.report:
        with replacing(Path(args.report)) as file:
            if Path(args.report).suffix == ".svg":
                file.write(report.picture(document, title))
            else:
                file.write(report.page(document, title, says, minidnn.__version__))
    if args.json:
        table.dump(document)
    else:
        report.show(document, title, says)
        if args.report:
            say(f"report: {args.report}")
    return 0  # also if nothing fits: that is a result, not a failure


def _tuned(
    args: argparse.Namespace, about: subject.Subject, policy: str, costs: Costs
) -> tuple[dict[str, Any], str, str]:
    """The document of `--json`, and two texts: where its solver fields come from, and how long an epoch is."""
    from minidnn.errors import InvalidInput
    from minidnn.study.scaling import Cluster, gradient_bytes
    from minidnn.study.tune import sweep

    samples, epoch = _epoch(about, args.samples)
    if about.batch is None:
        raise InvalidInput(f"{about.path} has no input with a first dimension of samples: nothing to tune")
    budgets = about.setting.budget, about.setting.host_budget
    found = sweep(
        about.at_batch, about.batch, policy, costs, *budgets, args.grid, about.train.name, _progress(policy)
    )  # fmt: skip
    cluster = Cluster(args.gpus, float(args.link or min(costs.bandwidth_out, costs.bandwidth_in)), costs.latency)
    shared = gradient_bytes(about.train)
    checked = _measured(about, found, policy) if args.measure else []
    best, why = found.best, ""
    match = None
    if best is not None:
        match, why = _matched(about, best.batch * args.gpus, samples, args.gpus)
    document = {
        "rows": [p.row(cluster, shared, samples) for p in found.points],
        "policy": policy,
        "budget": budgets[0],
        "device": costs.device,
        "origin": costs.origin,
        "format": about.setting.format,
        "best": best and best.batch,
        "largest_unswapped": found.unmoved and found.unmoved.batch,
        "ratio": found.ratio,
        "grid": found.grid,
        "samples": samples,
        "gpus": args.gpus,
        "link": cluster.bandwidth,
        "gradient_bytes": shared,
        "sync_seconds": cluster.sync(shared),
        "solver": match,
        "measured": [
            {"batch": p.batch, "predicted_seconds": p.seconds, "measured_seconds": p.measured, "why": p.why}
            for p in checked
        ],
    }
    return document, why, epoch


def _epoch(about: Any, asked: int | None) -> tuple[int, str]:
    """The samples of an epoch, and a sentence that says so: `asked` (--samples), else as many as the data has.

    If the data is synthetic, or the net names no data, an epoch is ImageNet's."""
    from minidnn.data import source_of
    from minidnn.study.scaling import SAMPLES

    if asked is not None:
        return asked, f"An epoch is {asked} samples."
    layers = [node.layer for node in about.net.graph("TRAIN").layers]
    source = next((source_of(data, transform, "TRAIN") for x in layers for data, transform in x.sources), None)
    if source is None or source.made_up:
        return SAMPLES, f"An epoch is ImageNet's {SAMPLES} samples (--samples says otherwise)."
    data = source.open()
    return len(data), f"An epoch is the {len(data)} samples of {data.name}."


COUNTS = ("max_iter", "stepsize", "stepvalue", "test_interval", "snapshot")  # solver fields that count iterations


def _matched(about: Any, minibatch: int, samples: int, devices: int) -> tuple[dict[str, Any], str]:
    """Solver fields for updates of `minibatch` samples, and a text that says where they come from."""
    from minidnn.study.scaling import REFERENCE, matched

    p = about.solver
    if p is None:
        rate, reference = REFERENCE
        counts, why = (
            {},
            f", from a rate of {rate} for {reference} samples (Goyal et al. 2017; a solver file says its own)",
        )
    else:
        rate, reference = p.base_lr, about.batch * p.iter_size
        counts = {name: _plain(getattr(p, name)) for name in COUNTS if p.has(name) and getattr(p, name)}
        why = f", from the file's {rate:g} for {reference} samples"
    fields = matched(rate, reference, minibatch, samples, counts).fields()
    if devices > 1 or (p is not None and p.iter_size > 1):
        fields["iter_size"] = devices  # if one device runs all minibatches in turn, the updates are the same
    return {"batch_size": minibatch // devices, **fields}, why


def _plain(value: Any) -> int | list[int]:
    return list(value) if isinstance(value, (list, tuple)) else value


def _fields(match: dict[str, Any]) -> str:
    return ", ".join(f"{k}: {v:g}" if isinstance(v, float) else f"{k}: {v}" for k, v in match.items())


def _measured(about: subject.Subject, found: Any, policy: str) -> list[Any]:
    """Points for the best batch and for the largest that does not swap, planned with measured costs, and run if they
    fit."""
    from minidnn.backends import open_device
    from minidnn.costs import measurements
    from minidnn.measuring.ops import measure
    from minidnn.study.tune import planned, ran

    budgets = about.setting.budget, about.setting.host_budget
    checked = []
    for batch in dict.fromkeys(p.batch for p in (found.best, found.unmoved) if p is not None):
        device = open_device(about.setting.device)
        programs = about.at_batch(batch)
        costs = measure(device, programs, measurements(device))
        point = planned(programs, batch, policy, costs, *budgets, about.train.name)
        checked.append(ran(about.runner(batch), point, policy, costs, budgets[0]) if point.fits else point)
    return checked


def _progress(policy: str) -> Any:
    from minidnn.report.table import rate

    def tell(p: Any) -> None:
        if sys.stderr.isatty():
            said = f"{rate(p.rate)} samples/s" if p.fits else "refused"
            say(f"{policy}: batch {p.batch} {said}", file=sys.stderr, flush=True)

    return tell
