"""The zoo as a table: parameters, arithmetic and the memory of a training step, of every net that has a name.

    python -m benchmarks.zoo_table           print it
    python -m benchmarks.zoo_table --save    write it to docs/models.md

Bytes are those of arenas on the profile of a Titan X, in float32, as the cuda backend fuses: without any policy
(baseline:p), with bytes reused (liveness:p), and the least that any plan can take, by the bound. Nothing is run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks.nets import TRAIN
from minidnn import sizes, zoo
from minidnn.costs import profile
from minidnn.files.replace import replacing
from minidnn.memory.joint.variants import ProgramVariants
from minidnn.memory.planning import arrange
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.report.table import plain

PAGE = Path(__file__).resolve().parents[1] / "docs/models.md"
HEADINGS = ("net", "batch", "parameters", "GFLOP a sample", "baseline", "liveness", "least")
HEAD = """# The zoo

These nets have names: `minidnn plan NAME`, `minidnn train NAME_solver`, `minidnn.load("NAME")`. In a family, the name
contains the depth: `vgg416`, `resnet1517`, `wrn_28_10`. GFLOP count forward and backward. Memory is that of a training
step in float32 on the profile of a Titan X: with separate memory for every tensor (baseline), with memory reused
(liveness), and the minimum for any plan (least). `python -m benchmarks.zoo_table --save` writes this page.

"""
BATCHES = {
    "fcn32s": 1,
    "unet": 1,
    "siamese": 64,
    "autoencoder": 100,
    "lenet": 64,
    "digits_lenet": 64,
    "cifar10_quick": 100,
    "cifar10_full": 100,
    "resnet56": 128,
}
BATCH = 32


def rows() -> Iterator[tuple[str, ...]]:
    costs = profile("titan_x")
    for name in zoo.net_names():
        batch = BATCHES.get(name, BATCH)
        net = zoo.load(name, batch)
        if len(net.layers) > 3000:
            continue  # the deepest of a family: some seconds each, and nothing new
        graph = net.graph("TRAIN")
        batch = graph.layers[0].tops[0].tensor.shape[0]
        learned = {n.tensor_name(p): prod(p.shape) for n in graph.layers for p in n.parameters if p.learnable}
        weights = sum(learned.values())
        program = programs(net, TRAIN, ("TRAIN",), fuses=as_cuda)["TRAIN"].synchronous_inputs()
        arenas = [arrange([program], policy, costs, 1 << 62).arena for policy in ("baseline:p", "liveness:p")]
        least = ProgramVariants(program, costs).least()
        flops = sum(op.flops for op in program.ops) / batch / 1e9
        counted = f"{weights / 1e6:.1f} M" if weights >= 1e6 else f"{weights / 1e3:.0f} k"
        work = f"{flops:.0f}" if flops >= 100 else f"{flops:.3g}"
        yield (name, str(batch), counted, work, *(sizes.text(n) for n in (*arenas, least)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write docs/models.md")
    save = parser.parse_args().save
    found = []
    for row in rows():
        print(row[0], file=sys.stderr)
        found.append(row)
    plain(HEADINGS, found)
    if save:
        lines = [HEADINGS, ("---", *["---:"] * (len(HEADINGS) - 1)), *found]
        with replacing(PAGE) as file:
            file.write(HEAD + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
