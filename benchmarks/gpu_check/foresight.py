"""(f) What the simulator foresees from measured costs, and what happens: seconds of a step, and bytes of the card."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from benchmarks.gpu_check.measure import TRAIN, Loaded, costs_of
from benchmarks.gpu_check.run import Run
from minidnn.memory.arrange import BudgetError
from minidnn.memory.simulator import simulate
from minidnn.session import programs

POLICIES = ("liveness:p", "vdnn_conv:p", "vdnn_all:p", "vdnn_dyn", "baseline:p")


def item(run: Run) -> None:
    for form in run.place.formats:
        for name, batch in run.place.foresight:
            run.case(f"{name}, {batch}, {form}", lambda n=name, b=batch: both(run, n, b), needs=5)


def both(run: Run, name: str, batch: int) -> dict[str, Any]:
    device, net = run.place.device(), run.place.net(name, batch)
    costs = costs_of(run, device, list(programs(net, TRAIN, ("TRAIN",)).values()))
    rows, left_out, shared = [], [], None
    for policy in POLICIES:
        if run.left() < (1 if run.place.small else 6):
            left_out.append(policy)
            continue
        try:
            with Loaded(device, net, policy, costs, shared) as ours:
                shared = ours.batch
                predicted = simulate(ours.schedule, costs)
                count = 1 if run.place.small else int(np.clip(0.4 / ours.seconds(1), 2, 20))
                seconds = median(ours.seconds(count) for _ in range(3))
                trace = ours.session.step("TRAIN", trace=True)
                assert trace is not None
                rows.append({
                    "policy": policy, "predicted_seconds": predicted.seconds, "seconds": seconds,
                    "predicted_stall_seconds": predicted.stall_seconds, "stall_seconds": trace.stall_seconds,
                    "arena_bytes": ours.arrangement.arena, "taken_bytes": ours.taken,
                    "predicted_live_peak_bytes": predicted.peak_bytes, "live_peak_bytes": trace.peak_bytes,
                })  # fmt: skip
        except (BudgetError, MemoryError) as error:
            run.say(f"{name} {policy}: {error}"[:300])
    return {"policies": rows, "left_out": left_out}
