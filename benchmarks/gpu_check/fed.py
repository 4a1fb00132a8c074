"""Training on data, beside the bare step: seconds of a Solver's iterations on images in bytes, and of the same step
without a new batch."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.fed import of_bytes
from benchmarks.gpu_check.measure import WARM, costs_of
from benchmarks.gpu_check.place import RAM
from benchmarks.gpu_check.run import Run
from benchmarks.nets import GENTLE, TRAIN
from minidnn.formats import usable
from minidnn.programs.build import programs
from minidnn.training.solver import Solver

TURNS, TURN = 4, 0.5  # how often each is timed, and for about how many seconds


def fed(run: Run, name: str, batch: int, form: str, policy: str) -> dict[str, Any]:
    device, net = run.place.device(), of_bytes(run.place.net(name, batch))
    made = [
        program
        for early in (False, True)
        for program in programs(
            net, TRAIN, ("TRAIN",), format=usable(form), fuses=device.fuses, double_buffered=early
        ).values()
    ]
    with Solver(
        net, device=device, policy=policy, costs=costs_of(run, device, made), format=form, seed=1, base_lr=GENTLE,
        momentum=0.9, weight_decay=5e-4, ram=RAM,
    ) as solver:  # fmt: skip
        solver.step(2 * WARM)  # from both places
        one = _fed_seconds(solver, 1)
        count = 1 if run.place.small else max(2, min(40, int(TURN / one)))
        turns = 1 if run.place.small else TURNS
        pairs = [(_bare_seconds(solver, count), _fed_seconds(solver, count)) for _ in range(turns)]
        early = solver.session.programs["TRAIN"].double_buffered
        bare, whole = (median(p[k] for p in pairs) for k in (0, 1))
        return {
            "policy": policy, "bare_seconds": bare, "fed_seconds": whole, "fed_over_bare": whole / bare,
            "fed_images_per_second": batch / whole, "early": bool(early), "batch_bytes": sum(t.nbytes for t in early),
            "arena_bytes": solver.arrangement.arena,
        }  # fmt: skip


def _bare_seconds(solver: Solver, count: int) -> float:
    ahead = solver.feeds["TRAIN"]._ahead
    assert ahead is not None
    ahead[1].result()
    solver.session.step("TRAIN")  # takes the batch that the Solver has begun; the following steps get no other
    began = perf_counter()
    for _ in range(count):
        solver.session.launch("TRAIN")
        solver.session.objective("TRAIN")
    solver.machine.settle()
    return (perf_counter() - began) / count


def _fed_seconds(solver: Solver, count: int) -> float:
    began = perf_counter()
    solver.step(count)
    return (perf_counter() - began) / count
