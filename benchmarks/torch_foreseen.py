"""The bytes of an eager step of PyTorch, foreseen without running it, beside those that it takes on this CPU.

    python -m benchmarks.torch_foreseen                         twenty nets, three batches each: some minutes
    python -m benchmarks.torch_foreseen --gpus rtx4090,h100     also foresees training by AdamW on these; nothing runs
    python -m benchmarks.torch_foreseen --save                  also writes benchmarks/results/torch-foreseen-*

Bytes are those of a step at its peak above parameters, buffers and the batch. What ops take beside their results comes
once from the table, as on a machine where nothing was measured, and once from a measurement of each op. On a GPU: the
most bytes of a training step with AdamW in all, what CUDA's caching allocator would reserve for it, and the most with
each repeated block under torch.utils.checkpoint.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.torch_steps import Row, Side, mib, parser, report
from minidnn.cli.options import names
from minidnn.report.table import duration
from minidnn.torch.eager import predict
from minidnn.torch.example import Example
from minidnn.torch.following import Scratch as Beside
from minidnn.torch.job import TorchJob
from minidnn.torch.scratch import Call, Scratch
from tests.support.peers import installed
from tests.torch.nets import NETS, PACKAGES

BATCHES = 1, 2, 8
HEADINGS = (
    "net", "batch", "measured, MiB", "by the table, MiB", "off, %", "ops measured, MiB", "off, %", "foreseen in",
)  # fmt: skip
ON_GPU = "net", "batch", "GPU", "eager, MiB", "reserved, MiB", "checkpoint, MiB"


def told_by(scratch: Scratch) -> Beside:
    return lambda func, args, kwargs: scratch.of([Call.of(func, args, kwargs)])[0].nbytes


def rows(name: str, folder: Path) -> Iterator[Row]:
    for batch in BATCHES:
        torch.manual_seed(0)
        case = NETS[name](batch)
        case.module.train()
        row: Row = {"net": name, "batch": batch}
        for how, limit in (("table", 0), ("ops", None)):
            begin = time.perf_counter()
            step = predict(case.module, case.args, loss=case.loss, scratch=told_by(Scratch("cpu", limit, folder / how)))
            row |= {f"{how}_seconds": time.perf_counter() - begin, f"{how}_bytes": step.above}
        side = Side(case)
        side.step()
        yield row | {"bytes": side.peak()}


def on_gpus(name: str, gpus: Sequence[str]) -> Iterator[Row]:
    for batch in BATCHES:
        torch.manual_seed(0)
        case = NETS[name](batch)
        example = Example.of(case.module.train(), case.args, case.loss, "adamw")
        for gpu in gpus:
            job = TorchJob.of(example, {}, gpu)
            ways = {row.pytorch_way: row for row in job.beside()}
            again = ways.get("checkpoint")
            yield {
                "net": name, "batch": batch, "gpu": gpu, "bytes": ways["eager"].most_bytes,
                "reserved_bytes": ways["eager"].reserved_bytes,
                "checkpoint_bytes": None if again is None else again.most_bytes, "assumed": job.assumed,
            }  # fmt: skip


def off(row: Row, how: str) -> float:
    """How far the foreseen bytes are from the measured ones, as a part of these."""
    return float(row[f"{how}_bytes"] / row["bytes"] - 1)


def cells(row: Row) -> list[str]:
    found = [cell for how in ("table", "ops") for cell in (mib(row[f"{how}_bytes"]), f"{100 * off(row, how):+.3f}")]
    return [row["net"], str(row["batch"]), mib(row["bytes"]), *found, duration(row["table_seconds"])]


def cells_on_gpu(row: Row) -> list[str]:
    numbers = (row["bytes"], row["reserved_bytes"], row["checkpoint_bytes"])
    return [row["net"], str(row["batch"]), row["gpu"], *map(mib, numbers)]


def assumed(all_rows: Sequence[Row]) -> list[str]:
    """What is assumed of all nets; the rows have what is assumed of each."""
    every = [row["assumed"].split(". ") for row in all_rows]
    return [". ".join(sentence for sentence in every[0] if all(sentence in others for others in every)) + "."]


def summary(all_rows: Sequence[Row]) -> list[str]:
    told = []
    for how, words in (("table", "by the table"), ("ops", "with each op measured")):
        errors = [(abs(off(row, how)), f"{row['net']} at {row['batch']}") for row in all_rows]
        worst, where = max(errors)
        median = statistics.median(error for error, _ in errors)
        told.append(
            f"{words}: {len(errors)} predictions, {median:.3%} off in the median, {worst:.2%} at worst ({where}); "
            f"{statistics.median(row[f'{how}_seconds'] for row in all_rows):.1f} s in the median"
        )
    return told


def main(argv: Sequence[str] | None = None) -> int:
    asked = parser(__doc__)
    asked.add_argument("--only", type=names, default=list(NETS), metavar="NET,...", help=", ".join(NETS))
    asked.add_argument("--gpus", type=names, default=[], metavar="GPU,...", help="GPUs to foresee training for")
    args = asked.parse_args(argv)
    if unknown := [name for name in args.only if name not in NETS]:
        asked.error(f"no net {unknown[0]}; there are {', '.join(NETS)}")
    warnings.simplefilter("ignore")
    there = [name for name in args.only if name not in PACKAGES or installed(PACKAGES[name][1])]
    if left := [name for name in args.only if name not in there]:
        print(f"left out, since their packages are not installed: {', '.join(left)}", file=sys.stderr)
    measured: list[Row] = []
    foreseen: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in there:
            for row in rows(name, Path(folder)):
                measured.append(row)
                print("  ".join(cells(row)), file=sys.stderr, flush=True)
            for row in on_gpus(name, args.gpus):
                foreseen.append(row)
                print("  ".join(cells_on_gpu(row)), file=sys.stderr, flush=True)
    report("torch-foreseen", HEADINGS, [cells(row) for row in measured], summary(measured), measured, args)
    if foreseen:
        report("torch-gpus", ON_GPU, [cells_on_gpu(row) for row in foreseen], assumed(foreseen), foreseen, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
