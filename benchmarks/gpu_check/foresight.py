"""(f) The simulator's predictions from measured costs against measurements: seconds of a step, and bytes of the card.

Also the rate of a policy's copies while it trains, against the link's own rate. A case per policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks.gpu_check.measure import Loaded, costs_of
from benchmarks.gpu_check.run import Run
from benchmarks.nets import TRAIN
from minidnn.formats import usable
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import Span
from minidnn.memory.schedule import Schedule
from minidnn.programs.build import programs

FIRST = ("liveness:p", "vdnn_all:p", "vdnn_dyn", "superneurons", "vdnn_conv:p", "sqrt_n", "layrub", "baseline:p")
LARGE = 1 << 20  # bytes of a copy from which on its rate is the link's, not its latency's


def item(run: Run) -> None:
    batches: dict[tuple, Any] = {}
    for form in run.place.formats[-1 if run.place.small else 0 :]:
        for name, batch in run.place.foresight:
            for policy in run.place.policies(FIRST):
                case = f"{name}, {batch}, {form}: {policy}"
                work = lambda n=name, b=batch, f=form, p=policy: both(run, n, b, f, p, batches)  # noqa: E731
                run.case(case, work, needs=1 if run.place.small else 5)


def both(run: Run, name: str, batch: int, form: str, policy: str, batches: dict[tuple, Any]) -> dict[str, Any]:
    device, net, form = run.place.device(), run.place.net(name, batch), usable(form)
    costs = costs_of(run, device, list(programs(net, TRAIN, ("TRAIN",), format=form, fuses=device.fuses).values()))
    try:
        with Loaded(device, net, policy, costs, batches.get((name, form)), format=form) as ours:
            batches.clear()  # keep the batch of one net at a time
            batches[name, form] = ours.batch
            predicted = simulate(ours.schedule, costs)
            count = 1 if run.place.small else int(np.clip(0.4 / ours.seconds(1), 2, 20))
            seconds = median(ours.seconds(count) for _ in range(3))
            trace = ours.session.step("TRAIN", trace=True)
            assert trace is not None
            return {
                "predicted_seconds": predicted.seconds, "seconds": seconds,
                "predicted_stall_seconds": predicted.stall_seconds, "stall_seconds": trace.stall_seconds,
                "arena_bytes": ours.arrangement.arena, "taken_bytes": ours.taken, "host_bytes": ours.arrangement.host,
                "predicted_live_peak_bytes": predicted.peak_bytes, "live_peak_bytes": trace.peak_bytes,
                "link_out": costs.bandwidth_out, "link_in": costs.bandwidth_in, **rates(ours.schedule, trace.spans),
            }  # fmt: skip
    except (BudgetError, MemoryError) as error:
        return {"why": f"{error}"[:400]}


def rates(schedule: Schedule, spans: Sequence[Span]) -> dict[str, float]:
    """Bytes, and bytes per second, of a step's large copies in each direction; no entry if there are none."""
    found = {}
    for way in ("out", "in"):
        moved = [
            (schedule.instructions[s.index].residency.tensor.nbytes, s.end - s.start)  # type: ignore[union-attr]
            for s in spans
            if s.stream == way
        ]
        large = [(n, seconds) for n, seconds in moved if n >= LARGE]
        if total := sum(seconds for _, seconds in large):
            found[f"copied_{way}_bytes"] = sum(n for n, _ in large)
            found[f"{way}_bytes_per_second"] = found[f"copied_{way}_bytes"] / total
    return found
