"""How long planning takes, and how it grows with the number of ops.

    python benchmarks/planning.py [--policies best] [--json]

For ResNets of growing depth and each policy it measures CPU seconds (one thread; medians of three runs) from reading
the net to proved schedules. From these it fits the exponent k of seconds ~ ops^k, and for comparison the k of n log n
over the same points. A transformer, whose blocks are equal, stands beside them. `best` plans for half of the arena
that liveness:p takes; the others have room for all. Wall seconds stand beside the CPU seconds; other programs on the
machine make them longer.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import time
from collections.abc import Sequence

from minidnn import zoo
from minidnn.costs import profile
from minidnn.memory.planning import arrange
from minidnn.memory.policies import BUDGETED
from minidnn.memory.policies.shared import kept
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.programs.autodiff import differentiate
from minidnn.programs.spec import TrainSpec

DEPTHS = (50, 101, 152, 302, 500, 1001, 1517)
RESNETS = tuple(f"resnet{depth}" for depth in DEPTHS)
BESIDE = ("vit_small",)
POLICIES = ("baseline:m", "liveness:m", "vdnn_all:m", "vdnn_conv:m", "vdnn_dyn", "accudnn:m", "liveness:f", BUDGETED)
PART = 0.5  # of liveness:p's arena is the budget of `best`
ROOM = 1 << 50
BATCH, REPEATS = 16, 3


def net(name: str) -> Net:
    found = zoo.find(name, BATCH)
    return found.with_batch(BATCH) if isinstance(found, Net) else Net.from_file(found, batch=BATCH)


def seconds(work) -> float:
    return both(work)[0]


def both(work) -> list[float]:
    """The medians of the CPU seconds and of the wall seconds that `work` takes."""
    clocks, taken = (time.process_time, time.perf_counter), []
    for _ in range(REPEATS):
        gc.collect()
        start = [clock() for clock in clocks]
        work()
        taken.append([clock() - began for clock, began in zip(clocks, start, strict=True)])
    return [statistics.median(one) for one in zip(*taken, strict=True)]


def measure(policies: Sequence[str]) -> list[dict]:
    costs, rows = profile("titan_x"), []
    for name in (*RESNETS, *BESIDE):
        reading = seconds(lambda n=name: net(n))
        made = net(name)
        graph = made.graph("TRAIN")
        lowering = seconds(lambda g=graph: differentiate(g, train=TrainSpec(SGD(momentum=0.9))))
        program = differentiate(graph, train=TrainSpec(SGD(momentum=0.9)))
        whole = arrange([program], "liveness:p", costs, budget=ROOM).arena
        for policy in policies:
            budget = int(whole * PART) if policy == BUDGETED else ROOM
            planning, wall = both(lambda p=policy, o=program, b=budget: arrange([o], p, costs, budget=b))
            rows.append(
                {
                    "network": name, "policy": policy, "ops": len(program.ops),
                    "read_seconds": reading, "differentiate_seconds": lowering, "plan_seconds": planning,
                    "plan_wall_seconds": wall, "seconds": reading + lowering + planning,
                }
            )  # fmt: skip
            show(rows[-1])
    return rows


def show(row: dict) -> None:
    print(
        f"{row['network']:>11} {row['ops']:>6} ops  {row['policy']:<10} read {row['read_seconds']:6.2f}"
        f"  differentiate {row['differentiate_seconds']:6.2f}  plan and prove {row['plan_seconds']:6.2f}"
        f" (wall {row['plan_wall_seconds']:6.2f})"
        f"  together {row['seconds']:6.2f} s",
        flush=True,
    )


def exponent(ops: list[int], seconds: list[float]) -> float:
    """The least-squares slope of log seconds over log ops."""
    x, y = [math.log(n) for n in ops], [math.log(t) for t in seconds]
    mx, my = statistics.mean(x), statistics.mean(y)
    return round(sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document at the end")
    parser.add_argument("--policies", default=",".join(POLICIES), help="POLICY,...")
    args = parser.parse_args()
    kept.KEEPS = False  # a plan from the cache would take no time
    policies = args.policies.split(",")
    rows = measure(policies)
    growth = {}
    for policy in policies:
        own = [r for r in rows if r["policy"] == policy and r["network"] in RESNETS]
        ops = [r["ops"] for r in own]
        growth[policy] = exponent(ops, [r["plan_seconds"] for r in own])
    growth["n log n"] = exponent(ops, [n * math.log(n) for n in ops])
    if args.json:
        print(json.dumps({"rows": rows, "exponent": growth}))
    else:
        print("seconds ~ ops^k, k:", ", ".join(f"{name} {k}" for name, k in growth.items()))


if __name__ == "__main__":
    main()
