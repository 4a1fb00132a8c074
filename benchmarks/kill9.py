"""Kills training by signal 9 at a random moment, resumes it, and compares the end with that of an undisturbed run.

    python benchmarks/kill9.py [--kills 20] [--device cpu] [--seed 1]

Each trial trains a small net (momentum, dropout, batch norm, random crops) in a process of its own. It kills the
process after a random iteration and a random part of a second, so sometimes while a snapshot is being written. Then it
resumes training under another policy, and compares every byte of the last snapshot with the undisturbed run's.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from minidnn.files.replace import NEW
from minidnn.training import snapshot

MODEL = """
name: kill9
layer:
- {name: data, type: Data, top: [data, label], transform_param: {crop_size: 8, mirror: true, scale: 0.5},
   data_param: {source: "synthetic:2x10x10:classes=4:count=50", batch_size: 8}}
- {name: conv, type: Convolution, bottom: data, top: conv,
   convolution_param: {num_output: 6, kernel_size: 3, pad: 1, weight_filler: {type: xavier}}}
- {name: bn, type: BatchNorm, bottom: conv, top: conv}
- {name: scale, type: Scale, bottom: conv, top: conv, scale_param: {bias_term: true}}
- {name: relu, type: ReLU, bottom: conv, top: conv}
- {name: pool, type: Pooling, bottom: conv, top: pool, pooling_param: {kernel_size: 2, stride: 2}}
- {name: drop, type: Dropout, bottom: pool, top: pool, dropout_param: {dropout_ratio: 0.3}}
- {name: ip, type: InnerProduct, bottom: pool, top: ip,
   inner_product_param: {num_output: 4, weight_filler: {type: xavier}}}
- {name: loss, type: SoftmaxWithLoss, bottom: [ip, label], top: loss}
"""
SOLVER = """
net: model.yaml
base_lr: 0.05
momentum: 0.9
weight_decay: 0.0005
lr_policy: inv
gamma: 0.01
power: 0.75
iter_size: 2
display: 1
snapshot: 3
snapshot_prefix: {prefix}
max_iter: {iterations}
random_seed: 7
"""
POLICIES = ("liveness:m", "vdnn_all:m", "vdnn_conv:m", "baseline:m")  # all use the same algorithms


@dataclass(frozen=True)
class Row:
    """The result of one trial."""

    killed_after: int  # the last iteration that it had printed
    resumed_from: int  # the iteration of the snapshot; 0: there was none
    half_written: int  # partial snapshots that the kill left
    policies: tuple[str, str]  # before and after the kill
    equal: bool  # whether it ended with the undisturbed run's bytes


def write_case(folder: Path, name: str, iterations: int) -> Path:
    """Write a solver file whose snapshots go into a folder of that name. Returns its path."""
    (folder / "model.yaml").write_text(MODEL)
    path = folder / f"{name}.yaml"
    path.write_text(SOLVER.format(prefix=folder / name / "run", iterations=iterations))
    return path


def command(solver: Path, policy: str, device: str, *more: str) -> list[str]:
    verb = [sys.executable, "-m", "minidnn.cli.main", "train", solver.name]
    return [*verb, "--policy", policy, "--device", device, *more]


def undisturbed(folder: Path, iterations: int, device: str) -> snapshot.Snapshot:
    solver = write_case(folder, "undisturbed", iterations)
    subprocess.run(command(solver, "liveness:m", device), cwd=folder, check=True, capture_output=True, text=True)
    return snapshot.load(snapshot.path_of(folder / "undisturbed" / "run", iterations))


def trial(folder: Path, name: str, iterations: int, device: str, rng: random.Random, whole: snapshot.Snapshot) -> Row:
    """Train, kill the process at a random moment, resume, and compare the last snapshot with `whole`."""
    solver = write_case(folder, name, iterations)
    before, after = rng.choice(POLICIES), rng.choice(POLICIES)
    last = rng.randrange(iterations - 1)
    process = subprocess.Popen(command(solver, before, device), cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if f"] Iteration {last}, lr" in line:
            break
    time.sleep(rng.random() * 0.02)
    process.kill()
    process.wait()
    process.stdout.close()
    prefix = folder / name / "run"
    partial = len(list(prefix.parent.glob(f".*{NEW}")))
    found = snapshot.latest(prefix)[1]
    subprocess.run(
        command(solver, after, device, "--resume", "latest"), cwd=folder, check=True, capture_output=True, text=True
    )
    end = snapshot.load(snapshot.path_of(prefix, iterations))
    return Row(last, found.iteration if found else 0, partial, (before, after), equal(whole, end))


def equal(a: snapshot.Snapshot, b: snapshot.Snapshot) -> bool:
    """Whether every tensor's bytes, the iteration, the data's position and the seed are equal."""
    return (a.iteration, a.position, a.seed) == (b.iteration, b.position, b.seed) and all(
        x.keys() == y.keys() and all(x[name].whole().tobytes() == y[name].whole().tobytes() for name in x)
        for x, y in ((a.weights, b.weights), (a.state, b.state))
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole = undisturbed(Path(folder), args.iterations, args.device)
        print("kill  after iteration  resumed from  half-written  policy, then           bytes")
        rows = []
        for k in range(args.kills):
            row = trial(Path(folder), f"trial{k}", args.iterations, args.device, rng, whole)
            rows.append(row)
            policies, verdict = ", ".join(row.policies), "equal" if row.equal else "DIFFER"
            numbers = f"{k + 1:4}  {row.killed_after:15}  {row.resumed_from:12}  {row.half_written:12}"
            print(f"{numbers}  {policies:21}  {verdict}", flush=True)
    good = sum(row.equal for row in rows)
    print(f"{good} of {len(rows)} resumed runs ended with the undisturbed run's bytes")
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
