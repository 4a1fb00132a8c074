"""The events of a run as its logs have them: plain values by name. The names are the same in all logs.

A step has the loss, the rate and the speed, and the outputs of the training net as `train/NAME`. A test has the outputs
of its net as `test/NAME`, of a second test net as `test1/NAME`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from minidnn.results.counted import Counted
from minidnn.training.best import OBJECTIVE
from minidnn.training.events import Began, Ended, Event, Saved, Step, Tested
from minidnn.training.session import Session

STEP = ("loss", "smoothed_loss", "rate", "step_seconds")
SPEED = "_per_second"


def record(event: Event, epoch: int | None, samples: Callable[[str], Counted]) -> dict[str, Any]:
    """The event's values; the first ones are `event`, `iteration` and `epoch`.

    samples: what is counted of a program's samples, such as images

    epoch: the iterations of an epoch. The record's epoch is the number of epochs before the event, such as 2.25; None
           if there are none."""
    kind = {Began: "begin", Step: "step", Tested: "test", Saved: "snapshot", Ended: "end"}[type(event)]
    at = round(event.iteration / epoch, 4) if epoch else None
    return {"event": kind, "iteration": event.iteration, "epoch": at, **_values(event, samples)}


def _values(event: Event, samples: Callable[[str], Counted]) -> dict[str, Any]:
    if isinstance(event, Step):
        each = samples("TRAIN")
        speed = {each.name + SPEED: event.images * each.each / event.seconds if event.seconds else None}
        told = (event.loss, event.smoothed, event.rate, event.seconds)
        return {**dict(zip(STEP, told, strict=True)), **speed, **_named("train", event.outputs)}
    if isinstance(event, Tested):
        objective = {} if event.loss is None else {OBJECTIVE: event.loss}
        named = _named(event.program.lower(), {**event.outputs, **objective})
        each = samples(event.program)
        return {**named, each.name: event.images * each.each, "seconds": event.seconds}
    if isinstance(event, Saved):
        return {"path": str(event.path), "best": event.best is not None}
    if isinstance(event, Began):
        resumed = None if event.resumed is None else str(event.resumed)
        weights = event.weights and event.weights.data()
        about = {"max_iter": event.max_iter, "seed": event.seed}
        return {**about, "resumed": resumed, "weights": weights, "notes": list(event.notes)}
    assert isinstance(event, Ended)
    best = None if event.best is None else event.best.data()
    return {"signal": event.signal, "out_of_patience": event.spent, "best": best}


def _named(where: str, outputs: Mapping[str, float]) -> dict[str, float | None]:
    """The outputs by the names that logs give them; None for a value that is not finite, since JSON has none."""
    return {f"{where}/{name}": value if math.isfinite(value) else None for name, value in outputs.items()}


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a step's or a test's record that make a curve; none of any other record."""
    return {
        name: value
        for name, value in record.items()
        if (name in STEP or name.endswith(SPEED) or "/" in name) and value is not None
    }


def columns(session: Session) -> list[str]:
    """The names of all curves that the records of this session's steps and tests have, in order."""
    result = [*STEP, session.counted("TRAIN").name + SPEED]
    for program in session.graphs:
        more = [OBJECTIVE] if program != "TRAIN" and session.tells_objective(program) else []
        result += [f"{program.lower()}/{name}" for name in (*session.scalar_names(program), *more)]
    return result
