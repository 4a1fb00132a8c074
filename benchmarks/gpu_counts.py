"""How many launches a training step makes on a GPU, and how many bytes its kernels move, counted without a GPU.

    python -m benchmarks.gpu_counts [--json] [--nets resnet50:256,vgg19:256] [--formats float32,bfloat16] [--kinds]

For each net and format it makes the TRAIN program, fused as the cuda device fuses it, and plans it by `--policy`. The
recipe of each op has launches of our own kernels and executions of cuDNN's plans. cuDNN lists plans and workspaces
for a card of tests/support/cuda/gpus.yaml. The card need not be here, but cuDNN's packages must (.venv-cuda13).

The bytes are those of our own kernels. Each argument of a launch that points to a tensor counts as one pass over that
tensor, and as two if the kernel updates the tensor in place. Pieces of the workspace count likewise. So
products do not count, but everything between them does. `ms` is the sum of all ops' estimated seconds
(costs/estimates.py), by rates that are assumed: no GPU has confirmed them. `--save` writes benchmarks/results/, with
our own products on tensor cores and without.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.nets import TRAIN, found
from minidnn.backends.choice import choose
from minidnn.backends.cuda import Planner, packages
from minidnn.backends.cuda.cudnn import Cudnn, Target
from minidnn.backends.cuda.device import rates
from minidnn.backends.cuda.recipe import Execute, Launch, Pointer, Read, Recipe, Space, Table, Write
from minidnn.costs import estimate
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import Compute
from minidnn.program import Op
from minidnn.programs.build import programs

GPUS = Path(__file__).parents[1] / "tests" / "support" / "cuda" / "gpus.yaml"
RESULTS = Path(__file__).parent / "results"
NETS = "resnet50:256,vgg19:256,googlenet:128,alexnet:512,vit_small:256,gpt2:8"
FORMATS = "float32,bfloat16"
GLANCES = {"moments_finish": 0}  # kernel -> its argument of which it reads a few values only


@dataclass
class Count:
    """The launches and bytes of one step, in sum and by kind of op."""

    launches: int = 0
    executions: int = 0
    moved: int = 0  # bytes
    arena: int = 0
    seconds: float = 0.0  # estimated
    by_kind: dict[str, Counter] = field(default_factory=dict)

    def add(self, op: Op, step: Launch | Execute) -> None:
        kind = self.by_kind.setdefault(op.kind, Counter())
        if isinstance(step, Execute):
            self.executions += 1
            kind["executions"] += 1
            return
        nbytes = sum(passes(op, step))
        self.launches += 1
        self.moved += nbytes
        kind.update(launches=1, moved=nbytes)

    @property
    def both(self) -> int:
        """Launches and executions: an execution is one kernel at least."""
        return self.launches + self.executions


def passes(op: Op, step: Launch) -> Iterator[int]:
    """The bytes of each pass over a tensor or a piece of the workspace that a launch makes."""
    glance = step.arguments[GLANCES[step.kernel]] if step.kernel in GLANCES else None
    pointers = [p for p in step.pointers if p != glance]
    sizes = [size(op, p) for p in pointers]
    if step.source == "join" and isinstance(step.arguments[0], Table):  # of the whole no more than the parts
        sizes[-1] = sum(sizes[:-1])
    updated = {*op.reads} & {*op.writes} - {op.reads[p.index] for p in pointers if isinstance(p, Read)}
    for pointer, nbytes in zip(pointers, sizes, strict=True):
        yield nbytes
        if isinstance(pointer, Write) and op.writes[pointer.index] in updated:
            yield nbytes


def size(op: Op, pointer: Pointer) -> int:
    if isinstance(pointer, Space):
        return pointer.nbytes
    return op.read_bytes[pointer.index] if isinstance(pointer, Read) else op.writes[pointer.index].nbytes


def count(device: Planner, net: str, batch: int, format: str, policy: str) -> Count:
    made = programs(found(net, batch), TRAIN, ("TRAIN",), format=format, fuses=device.fuses)
    costs = estimate(device)
    arrangement = arrange(list(made.values()), policy, costs)
    total = Count(arena=arrangement.arena)
    for x in arrangement.schedules["TRAIN"].instructions:
        if isinstance(x, Compute):
            total.seconds += costs.seconds(x.op, x.algorithm)
            recipe = choose(device.recipes(x.op), x.op, x.algorithm, x.algorithm.workspace, device.name)
            for step in recipe.steps:
                total.add(x.op, step)
    return total


class WithoutTensorCores(Planner):
    """For our own kernels of products; cuDNN's use tensor cores."""

    def _on_tensor_cores(self, op: Op) -> list[Recipe]:
        return []


def planner(card: str, driver: str | None, on_tensor_cores: bool = True) -> Planner:
    if driver:
        ctypes.CDLL(driver, mode=ctypes.RTLD_GLOBAL)
    properties = YAML(typ="safe").load(GPUS)["gpus"][card]
    module = packages.load(gpu=False).cudnn
    cudnn = Cudnn(module, Target.properties(module, properties))
    kind = Planner if on_tensor_cores else WithoutTensorCores
    found = kind(cudnn, properties["totalGlobalMem"], properties["deviceName"])
    clocks = "multiProcessorCount", "smClockRateKHz", "memClockRateKHz", "memoryBusWidth"
    found.rates = rates([properties[name] for name in clocks], cudnn.target.capability, cudnn.settings.tf32)
    return found


def show(rows: list[dict[str, Any]], kinds: bool) -> None:
    head = f"{'net':<10} {'batch':>5} {'format':<9} {'tensor':<7} {'launches':>8} {'cuDNN':>6} {'both':>6} {'GB':>8}"
    print(f"{head} {'arena GiB':>9} {'ms':>7}")
    for r in rows:
        print(
            f"{r['net']:<10} {r['batch']:>5} {r['format']:<9} {'yes' if r['tensor_cores'] else 'no':<7} "
            f"{r['launches']:>8} {r['executions']:>6} {r['both']:>6} "
            f"{r['moved_bytes'] / 1e9:>8.2f} {r['arena_bytes'] / 2**30:>9.3f} "
            f"{r['estimated_seconds'] * 1e3:>7.1f}"
        )
        for kind, of in sorted(r["kinds"].items(), key=lambda entry: -entry[1]["moved"]) if kinds else ():
            print(f"{'':<17}{kind:<32} {of['launches'] + of['executions']:>6} {of['moved'] / 1e9:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=NETS, help="net:batch, separated by commas")
    parser.add_argument("--formats", default=FORMATS)
    parser.add_argument("--policy", default="liveness:p")
    parser.add_argument("--card", default="h200", help="a card of tests/support/cuda/gpus.yaml")
    parser.add_argument("--driver", help="the library made of tests/support/cuda/driver.c, where there is no driver")
    parser.add_argument("--kinds", action="store_true", help="launches and bytes of each kind of op, too")
    parser.add_argument("--both", action="store_true", help="also without tensor cores for our own products")
    parser.add_argument("--save", action="store_true", help="write results/gpu-counts-CARD.json, with --both")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    rows = []
    for on_tensor_cores in (True, False) if args.save or args.both else (True,):
        device = planner(args.card, args.driver, on_tensor_cores)
        for entry in args.nets.split(","):
            net, batch = entry.split(":")
            for format in args.formats.split(","):
                c = count(device, net, int(batch), format, args.policy)
                kinds = {k: {n: v[n] for n in ("launches", "executions", "moved")} for k, v in c.by_kind.items()}
                rows.append(
                    {
                        "net": net, "batch": int(batch), "format": format, "policy": args.policy, "card": args.card,
                        "tensor_cores": on_tensor_cores, "launches": c.launches, "executions": c.executions,
                        "both": c.both, "moved_bytes": c.moved, "arena_bytes": c.arena,
                        "estimated_seconds": c.seconds, "kinds": kinds,
                    }
                )  # fmt: skip
    if args.save:
        without_kinds = [{k: v for k, v in r.items() if k != "kinds"} for r in rows]
        (RESULTS / f"gpu-counts-{args.card}.json").write_text(json.dumps(without_kinds, indent=1) + "\n")
    if args.json:
        print(json.dumps(rows))
    else:
        show(rows, args.kinds)


if __name__ == "__main__":
    main()
