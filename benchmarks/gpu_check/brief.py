"""(l) Small batches, whose kernels take about as long as their launches: seconds of an iteration as a replayed graph,
call by call, and in PyTorch's eager mode."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.gpu_check.measure import Loaded, costs_of, summed
from benchmarks.gpu_check.run import Run
from benchmarks.nets import RATE, TRAIN
from minidnn.programs.build import programs

POLICY = "liveness:p"
TURN = 0.3  # about how many seconds each side is timed


def item(run: Run) -> None:
    form = run.place.formats[-1]
    for name, batch in run.place.brief:
        case = f"{name}, {batch}, {form}"
        run.case(case, partial(brief, run, name, batch, form), needs=1 if run.place.small else 5)


def brief(run: Run, name: str, batch: int, form: str) -> dict[str, Any]:
    device, net = run.place.device(), run.place.net(name, batch)
    costs = costs_of(run, device, list(programs(net, TRAIN, ("TRAIN",), format=form, fuses=device.fuses).values()))
    with Loaded(device, net, POLICY, costs, format=form) as replayed:
        seconds, given, kernels = _seconds(run, replayed), replayed.batch, summed(replayed.schedule, costs)
    with Loaded(device, net, POLICY, costs, given, format=form, graphs=False) as called:
        values = {"seconds": seconds, "call_seconds": _seconds(run, called), "kernel_seconds": kernels}
    values["torch_seconds"] = _theirs(run, net, {t.name: value for t, value in given.items()}, form)
    return {**values, "ratio": seconds / values["torch_seconds"]} if values["torch_seconds"] else values


def _theirs(run: Run, net: Any, given: dict[str, np.ndarray], form: str) -> float | None:
    """None without PyTorch, which item d has reported."""
    try:
        from benchmarks.peer import Peer, Trainer, first_weights, forget
    except ImportError:
        return None
    run.place.settle(True)
    peer = trainer = None
    try:
        peer = Peer(net.graph("TRAIN"), first_weights(net), run.place.torch, format=form)
        trainer = Trainer(peer, given, TRAIN, RATE)
        return _seconds(run, trainer)
    finally:
        peer = trainer = None
        forget()


def _seconds(run: Run, side: Any) -> float:
    count = 1 if run.place.small else int(np.clip(TURN / side.seconds(2), 2, 200))
    return median(side.seconds(count) for _ in range(3))
