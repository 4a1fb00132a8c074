"""Do several ranks end with the bytes of one? Five small nets, every policy, under mpiexec.

    python -m benchmarks.rank_bytes            1 × iter_size 4, 2 × 2 and 4 × 1 ranks, on cpu and reference
    python -m benchmarks.rank_bytes --device cpu --nets residual --policies best,vdnn_all:m --json

Each run trains for four iterations and writes a snapshot (weights, statistics, the optimizer's state, and where the run
is) every second one. The files have to be equal to the byte to those of one rank. Then runs go on from the snapshot of
iteration 2: from 4 ranks to 1, and from that to 2. A test shows what each rank's tests say: the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.progress import watched
from minidnn.cli.options import names
from minidnn.memory import policies

ROOT = Path(__file__).resolve().parents[1]
DATA = """
- {name: data, type: Data, top: [data, label],
   data_param: {source: "synthetic:3x14x14:classes=10:count=60", batch_size: 5},
   transform_param: {crop_size: 12, mirror: true, scale: 0.01}}
"""
LOSS = """
- {name: scores, type: InnerProduct, bottom: last, top: scores,
   inner_product_param: {num_output: 10, weight_filler: {type: xavier}}}
- {name: accuracy, type: Accuracy, bottom: [scores, label], top: accuracy, include: {phase: TEST}}
- {name: loss, type: SoftmaxWithLoss, bottom: [scores, label], top: loss}
"""


def _conv(name: str, bottom: str, top: str, outputs: int = 8, more: str = "pad: 1, kernel_size: 3") -> str:
    return (
        f"- {{name: {name}, type: Convolution, bottom: {bottom}, top: {top}, "
        f"convolution_param: {{num_output: {outputs}, {more}, weight_filler: {{type: msra}}}}}}\n"
    )


def _norm(x: str) -> str:
    return (
        f"- {{name: norm_{x}, type: BatchNorm, bottom: {x}, top: {x}}}\n"
        f"- {{name: scale_{x}, type: Scale, bottom: {x}, top: {x}, scale_param: {{bias_term: true}}}}\n"
    )


def _relu(x: str) -> str:
    return f"- {{name: relu_{x}, type: ReLU, bottom: {x}, top: {x}}}\n"


def _pool(bottom: str, top: str) -> str:
    what = "pooling_param: {pool: MAX, kernel_size: 2, stride: 2}"
    return f"- {{name: pool_{top}, type: Pooling, bottom: {bottom}, top: {top}, {what}}}\n"


PLAIN = _conv("conv1", "data", "conv1") + _relu("conv1") + _pool("conv1", "pool1")
NETS: dict[str, tuple[str, dict[str, Any]]] = {  # the layers between DATA and LOSS, and solver fields
    "dropout": (
        PLAIN + "- {name: drop, type: Dropout, bottom: pool1, top: last}\n",
        {"momentum": 0.9},
    ),
    "batch_norm": (
        _conv("conv1", "data", "conv1", 16) + _norm("conv1") + _relu("conv1")
        + _conv("conv2", "conv1", "last", 8, "kernel_size: 3, stride: 2") + _norm("last") + _relu("last"),
        {"type": "Nesterov", "momentum": 0.9, "weight_decay": 0.001},
    ),
    "residual": (
        _conv("conv1", "data", "conv1") + _norm("conv1") + _relu("conv1") + _conv("conv2", "conv1", "conv2")
        + _norm("conv2") + "- {name: sum, type: Eltwise, bottom: [conv1, conv2], top: sum}\n"
        + _pool("sum", "pool") + "- {name: drop, type: Dropout, bottom: pool, top: last}\n",
        {"type": "Adam", "momentum": 0.9, "momentum2": 0.99, "base_lr": 0.002},
    ),
    "clipped": (
        PLAIN + "- {name: ip1, type: InnerProduct, bottom: pool1, top: last, "
        "inner_product_param: {num_output: 150, weight_filler: {type: xavier}}}\n" + _relu("last"),
        {"momentum": 0.9, "clip_gradients": 0.5, "weight_decay": 0.001},
    ),
    "two_losses": (
        PLAIN + "- {name: side, type: InnerProduct, bottom: pool1, top: side, "
        "inner_product_param: {num_output: 10, weight_filler: {type: xavier}}}\n"
        "- {name: side_loss, type: SoftmaxWithLoss, bottom: [side, label], top: side_loss, loss_weight: 0.3, "
        "include: {phase: TRAIN}}\n"
        + _conv("conv2", "pool1", "last", 16) + _norm("last") + _relu("last"),
        {"momentum": 0.9, "clip_gradients": 1.0},
    ),
}  # fmt: skip
RUNS = ((1, 4), (2, 2), (4, 1))
# With :m, where a policy takes it: another algorithm gives other bits, and which ones fit depends on the bytes left.
POLICIES = [
    name if name in policies.CHOOSING else f"{name}:m" for name in policies.names() if name not in policies.SOME_NETS
]
ITERATIONS = 4


def write(folder: Path, net: str) -> None:
    """The files of one of the nets."""
    layers, fields = NETS[net]
    (folder / "net.yaml").write_text(f"name: {net}\nlayer:{DATA}{layers}{LOSS}")
    own = {"base_lr": 0.05, "lr_policy": "fixed", "random_seed": 7, "max_iter": ITERATIONS, "snapshot": 2,
           "test_iter": 3, "test_interval": 2, "net": "net.yaml"} | fields  # fmt: skip
    (folder / "solver.yaml").write_text("".join(f"{key}: {value}\n" for key, value in own.items()))


def runs(folder: Path, job: Mapping[str, Any]) -> dict[str, Any]:
    """Train with each policy; {policy: what the files and the tests were}."""
    from minidnn.ranks import launched
    from minidnn.training.events import Tested
    from minidnn.training.solver import Solver

    os.chdir(folder)
    launch = launched.launch()
    engine = launched.engine(launch) if launch else None
    found = {}
    for policy in job["policies"]:
        prefix = f"{job['name']}-{policy.replace(':', '-')}"
        options = {"engine": engine} if engine else {}
        with Solver(
            "solver.yaml", device=job["device"], policy=policy, iter_size=job["each"], snapshot_prefix=prefix,
            resume=job["resume"] and f"{job['resume']}-{policy.replace(':', '-')}_iter_2.safetensors", **options,
        ) as solver:  # fmt: skip
            tests = [dict(event.outputs) for event in solver.run() if isinstance(event, Tested)]
        files = {
            f"iter_{n}": hashlib.sha256(Path(f"{prefix}_iter_{n}.safetensors").read_bytes()).hexdigest()
            for n in ((2, 4) if not job["resume"] else (4,))
        }
        found[policy] = {"files": files, "tests": tests[-1:]}
    return found


def started(folder: Path, ranks: int, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `runs` gives on each of so many ranks."""
    out = Path(tempfile.mkdtemp(dir=folder))
    command = [sys.executable, "-m", "benchmarks.rank_bytes", "--serve", str(folder), str(out), json.dumps(job)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    launcher = ["mpiexec", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*launcher, *command], env=variables, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{ranks} ranks, {job}: {done.stdout}{done.stderr}")
    return [json.loads(path.read_text()) for path in sorted(out.iterdir())]


def compared(net: str, device: str, wanted: Sequence[str]) -> dict[str, Any]:
    """How many files of one net on one device were compared, and which differ."""
    compared, differ = 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, net)
        job = {"device": device, "policies": list(wanted), "resume": None}
        first = None
        chain = [(f"{r}x{m}", r, m, None) for r, m in RUNS] + [("on1", 1, 4, "4x1"), ("on2", 2, 2, "2x2")]
        for title, ranks, each, resume in chain:
            found = started(folder, ranks, job | {"name": title, "each": each, "resume": resume})
            first = first or found[0]
            for rank, one in enumerate(found):
                for policy, what in one.items():
                    compared += len(what["files"])
                    same = all(first[policy]["files"][k] == v for k, v in what["files"].items())
                    if not same or what["tests"] != first[policy]["tests"]:
                        differ.append(f"{title}, rank {rank}, {policy}")
    policies_differ = len({json.dumps(one["files"]) for one in first.values()}) - 1 if first else 0
    return {"net": net, "device": device, "policies": len(wanted), "files": compared, "differ": differ,
            "other_bytes_by_policy": policies_differ}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["--serve"]:
        folder, out, job = argv[1:]
        found = runs(Path(folder), json.loads(job))
        rank = os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        (Path(out) / rank.zfill(4)).write_text(json.dumps(found))
        return 0
    parser = argparse.ArgumentParser("benchmarks/rank_bytes.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nets", type=names, default=list(NETS), metavar="A,B", help=",".join(NETS))
    parser.add_argument("--device", type=names, default=["cpu", "reference"], metavar="A,B", help="(cpu,reference)")
    parser.add_argument("--policies", type=names, default=POLICIES, metavar="A,B", help="(all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(argv)
    if shutil.which("mpiexec") is None:
        parser.error("there is no mpiexec on the PATH: pip install 'minidnn[mpi]'")
    rows = []
    with watched() as (_, say):
        for k, device in enumerate(args.device):
            for i, net in enumerate(args.nets):
                say(k * len(args.nets) + i, len(args.device) * len(args.nets), f"{net} on {device}")
                rows.append(compared(net, device, args.policies))
    if args.json:
        print(json.dumps({"rows": rows}, indent=2))
    else:
        table = Table("net", "device", "policies", "files compared", "that differ", box=None)
        for row in rows:
            table.add_row(row["net"], row["device"], str(row["policies"]), str(row["files"]), str(len(row["differ"])))
        Console().print(table)
        for row in rows:
            for one in row["differ"]:
                print(f"differs: {row['net']} on {row['device']}: {one}")
    return int(any(row["differ"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
