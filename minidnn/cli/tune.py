"""`minidnn tune MODEL --budget 12GB`: the minibatch of the highest throughput, and the learning rate that goes with it.

AccUDNN-style: how the paper's tuner does it is not known (study/tune.py has what is).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import minidnn
from minidnn import sizes
from minidnn.cli import subject
from minidnn.cli.options import positive, size


def arguments(parser: argparse.ArgumentParser) -> None:
    subject.arguments(parser, "policy", "budget", "host_budget", "device", "format", "gpu", "facts", "json")
    parser.add_argument(
        "--grid", type=positive, metavar="N", help="find batches to within N (default: a quarter of the first)"
    )
    parser.add_argument("--gpus", type=positive, default=1, metavar="N", help="devices that train in step, by model")
    parser.add_argument(
        "--link", type=size, metavar="BYTES",
        help="bytes per second between two of them, each way, such as 10GB (default: as to the host)",
    )  # fmt: skip
    parser.add_argument(
        "--samples", type=positive, metavar="N",
        help="samples of an epoch (default: as many as the data has; ImageNet's 1281167 where it is synthetic)",
    )  # fmt: skip
    parser.add_argument(
        "--measure", action="store_true",
        help="time the ops of the batches that were found, run them, and say how far off the prediction is",
    )  # fmt: skip
    parser.add_argument("--report", metavar="FILE", help="write a page (.html), or the curve alone as a picture (.svg)")


def run(args: argparse.Namespace) -> int:
    from minidnn.errors import InvalidInput
    from minidnn.files import replacing, unwritable
    from minidnn.report import curve as drawn
    from minidnn.report import table
    from minidnn.study.tune import Cluster, gradient_bytes, sweep

    if args.report and (problem := unwritable(Path(args.report), ".html", ".svg")):
        raise InvalidInput(f"--report {args.report}: {problem}")
    if args.measure and args.gpu:
        raise InvalidInput(f"--measure runs on --device: leave out --gpu {args.gpu}")
    about = subject.read(args)
    policy = args.policy or (about.solver is not None and about.solver.minidnn.policy) or "accudnn"
    subject.check_policies([policy], sizes=True)
    costs = subject.costs_of(about, args.gpu)
    budget, host_budget = about.setting.budget, about.setting.host_budget
    samples, epoch = _epoch(about, args.samples)
    first = about.batch
    if first is None:
        raise InvalidInput(f"{about.path} has no input with a first dimension of samples: nothing to tune")
    tell = _progress(policy)
    found = sweep(about.at_batch, first, policy, costs, budget, host_budget, args.grid, about.train.name, tell)
    cluster = Cluster(args.gpus, float(args.link or min(costs.bandwidth_out, costs.bandwidth_in)), costs.latency)
    shared = gradient_bytes(about.train)
    checked = _measured(args, about, found, policy, budget, host_budget) if args.measure else []
    rows = []
    for p in found.points:
        row = {**asdict(p), "fits": p.fits, "samples_per_second": p.rate}
        row["moved_bytes"], row["peak_bytes"], row["host_bytes"] = row.pop("moved"), row.pop("arena"), row.pop("host")
        row["stall_seconds"] = row.pop("stall")
        row["epoch_seconds"] = cluster.epoch(p, shared, samples) if p.fits else None
        row["efficiency"] = cluster.efficiency(p, shared) if p.fits else None
        row.pop("measured")
        rows.append(row)
    best, unmoved = found.best, found.unmoved
    match, why = _matched(about, best.batch * args.gpus, samples, args.gpus) if best is not None else (None, "")
    ratio = best.batch / unmoved.batch if best is not None and unmoved is not None else None
    title = f"{about.name}, {policy}, {sizes.text(costs.memory if budget is None else budget)} of {costs.device}"
    said = [*_sentences(found, ratio, cluster, shared, samples), epoch]
    if match is not None:
        said.append(f"Solver fields for it{why}: {_fields(match)}.")
    said += [_error(p) for p in checked]
    said.append(subject.notes(costs, about.setting.format))
    lines = (_HEADINGS, [_line(r) for r in rows])
    if args.report:
        at = best.batch if best is not None else None, unmoved.batch if unmoved is not None else None
        with replacing(Path(args.report)) as file:
            if Path(args.report).suffix == ".svg":
                file.write(drawn.picture(rows, *at, title))
            else:
                file.write(drawn.page(rows, *at, title, said, lines, minidnn.__version__))
    if args.json:
        facts = {
            "policy": policy, "budget": budget, "device": costs.device, "origin": costs.origin,
            "format": about.setting.format,
            "best": best and best.batch, "largest_unswapped": unmoved and unmoved.batch, "ratio": ratio,
            "grid": found.grid, "samples": samples, "gpus": args.gpus, "link": cluster.bandwidth,
            "gradient_bytes": shared, "solver": match,
            "measured": [
                {"batch": p.batch, "predicted_seconds": p.seconds, "measured_seconds": p.measured} for p in checked
            ],
        }  # fmt: skip
        table.dump({"rows": rows, **facts})
    else:
        table.plain(*lines, title, spare=("efficiency", "stalled", "one iteration", "moved"))
        for sentence in said:
            print(sentence)
        refused = next((r for r in rows if not r["fits"]), None)
        if refused is not None:
            print(f"Batch {refused['batch']} is refused: {refused['why']}")
        if args.report:
            print(f"report: {args.report}")
    return 0  # that nothing fits is an answer, not a failure


def _epoch(about: Any, asked: int | None) -> tuple[int, str]:
    """Samples of an epoch, and whence that is known: --samples, else what the data has. Data that is made up stands
    for ImageNet's, as does a net's bare input."""
    from minidnn.data import parse
    from minidnn.study.tune import SAMPLES

    if asked is not None:
        return asked, f"An epoch is {asked} samples."
    layers = [node.layer for node in about.net.graph("TRAIN").layers]
    source = next((parse(x.source[0].source, "TRAIN") for x in layers if x.source), None)
    if source is None or source.made_up:
        return SAMPLES, f"An epoch is ImageNet's {SAMPLES} samples (--samples says otherwise)."
    data = source.open()
    return len(data), f"An epoch is the {len(data)} samples of {data.name}."


_HEADINGS = ["batch", "fits", "peak", "moved", "one iteration", "stalled", "samples/s", "efficiency", "epoch"]


def _line(r: dict[str, Any]) -> list[str]:
    from minidnn.report.table import duration, rate
    from minidnn.report.table import size as text

    if not r["fits"]:
        return [str(r["batch"]), "refused", *["–"] * 7]
    moved = text(r["moved_bytes"])
    return [
        str(r["batch"]), "yes", text(r["peak_bytes"]), moved, duration(r["seconds"]), duration(r["stall_seconds"]),
        rate(r["samples_per_second"]), f"{r['efficiency']:.3f}", _long(r["epoch_seconds"]),
    ]  # fmt: skip


def _long(seconds: float) -> str:
    from minidnn.report.table import duration

    return (
        duration(seconds)
        if seconds < 120
        else f"{seconds / 60:.1f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _sentences(found: Any, ratio: float | None, cluster: Any, shared: int, samples: int) -> list[str]:
    from minidnn.report.table import rate

    best, unmoved = found.best, found.unmoved
    if best is None:
        return ["No batch fits."]
    said = [f"The efficiency-optimal batch is {best.batch} (to within {found.grid}): {rate(best.rate)} samples/s."]
    if unmoved is None:
        said.append("Every batch that fits swaps.")
    else:
        gain = best.rate / unmoved.rate
        said.append(
            f"Without swapping at most {unmoved.batch} fit: the best has {ratio:.2f} times that, at {gain:.3f} times"
            " its throughput."
        )
    if cluster.devices > 1:
        said.append(
            f"{cluster.devices} devices, by model ({sizes.text(shared)} of gradients in a ring at"
            f" {cluster.bandwidth / 1e9:.1f} GB/s take {_long(cluster.sync(shared))}, and nothing overlaps with that):"
        )
        for p, words in ((best, "the best batch"), (unmoved, "the largest without swapping")):
            if p is not None:
                fast, epoch = cluster.devices * cluster.efficiency(p, shared), _long(cluster.epoch(p, shared, samples))
                said.append(
                    f"  with {words}, {p.batch} each, they are {fast:.2f} times as fast as one, and {samples} samples"
                    f" take {epoch}."
                )
    return said


COUNTS = ("max_iter", "stepsize", "stepvalue", "test_interval", "snapshot")  # solver fields that count iterations


def _matched(about: Any, minibatch: int, samples: int, devices: int) -> tuple[dict[str, Any], str]:
    """Solver fields for `minibatch` samples an update, and what they are derived from, in words."""
    from minidnn.study.tune import REFERENCE, matched

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
        fields["iter_size"] = devices  # one device runs the others' minibatches in turn: the same updates
    return {"batch_size": minibatch // devices, **fields}, why


def _plain(value: Any) -> int | list[int]:
    return list(value) if isinstance(value, (list, tuple)) else value


def _fields(match: dict[str, Any]) -> str:
    return ", ".join(f"{k}: {v:g}" if isinstance(v, float) else f"{k}: {v}" for k, v in match.items())


def _measured(
    args: argparse.Namespace, about: Any, found: Any, policy: str, budget: int | None, host_budget: int | None
) -> list[Any]:
    """The best batch and the largest that does not swap: planned with measured costs, and run."""
    from minidnn.backends import open_device
    from minidnn.costs import measurements
    from minidnn.measuring.ops import measure
    from minidnn.study.tune import planned, ran

    checked = []
    for batch in dict.fromkeys(p.batch for p in (found.best, found.unmoved) if p is not None):
        device = open_device(about.setting.device)
        programs = about.at_batch(batch)
        costs = measure(device, programs, measurements(device))
        point = planned(programs, batch, policy, costs, budget, host_budget, about.train.name)
        if not point.fits:
            checked.append(point)
            continue
        checked.append(ran(about.runner(batch), point, policy, costs, budget))
    return checked


def _error(p: Any) -> str:
    from minidnn.report.table import duration, rate

    if p.measured is None:
        return f"Batch {p.batch} with measured costs: {p.why}"
    off = 100 * (p.seconds / p.measured - 1)
    return (
        f"Batch {p.batch} run: {duration(p.measured)} an iteration, predicted {duration(p.seconds)} from measured costs"
        f" ({off:+.1f} %), {rate(p.batch / p.measured)} samples/s."
    )


def _progress(policy: str) -> Any:
    from minidnn.report.table import rate

    def tell(p: Any) -> None:
        if sys.stderr.isatty():
            said = f"{rate(p.rate)} samples/s" if p.fits else "refused"
            print(f"{policy}: batch {p.batch} {said}", file=sys.stderr, flush=True)

    return tell
