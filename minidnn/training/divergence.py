"""Divergence: the error that stops training at a value that is not finite, and the search for the value's origin."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidnn.errors import Failed
from minidnn.memory.execution.machine import NotFinite
from minidnn.program import Role
from minidnn.training.feed import Feed
from minidnn.training.feeds import Feeds
from minidnn.training.session import Session


class Diverged(Failed, ArithmeticError):
    """Training stopped because a value is not finite. `what` names the value: the loss, or an output of a test."""

    def __init__(self, iteration: int, loss: float, layer: str | None, why: str, what: str = "the loss") -> None:
        super().__init__(f"iteration {iteration}: {what} is {loss}: {why}")
        self.iteration, self.loss, self.layer = iteration, loss, layer
        self._given = iteration, loss, layer, why, what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given  # so that a rank can send it to others


def diagnosed(session: Session, feeds: Feeds, program: str, loss: float, iteration: int, position: int) -> Diverged:
    """The error for a loss that is not finite; it names the first bad value that is found.

    The search looks at the parameters, then at the data of this step, then runs the step again and checks each op."""
    for t in reversed(list(session.params.tensors)):  # in the order of updates: from the loss down
        # TRAIN does not read running statistics, so they are no cause: this step has spoiled them, too.
        if t.role is Role.PARAM and not np.isfinite(session.machine.get(t)).all():
            layer, name = t.name.rsplit(".", 1)
            why = f"layer {layer}: its {name} is not finite since the update of iteration {iteration - 1}"
            return Diverged(iteration, loss, layer, why)
    for feed in (one for one in feeds if isinstance(one, Feed)):
        first = feeds.first(feed, position)
        images, _ = feed.loader.batch(first)
        if feed.data and not np.isfinite(images).all():
            bad = first + int(np.flatnonzero(~np.isfinite(images.reshape(len(images), -1)).all(1))[0])
            why = f"{feed.data.name}: sample {bad} of {feed.name} holds values that are not finite"
            return Diverged(iteration, loss, None, why)
    if session.setting.engine is not None:  # no rank can run a step alone
        why = f"rank {session.setting.engine.rank} has it; a run of one rank, with iter_size, names the layer"
        return Diverged(iteration, loss, None, why)
    return Diverged(iteration, loss, *culprit(session, program))


def culprit(session: Session, program: str) -> tuple[str | None, str]:
    """Run the step again: (the first layer that writes a value that is not finite, a sentence for the error message).

    The layer is None if all values are finite this time."""
    try:
        session.step(program, check=True, again=True)
    except NotFinite as result:
        op = next(one for one in result.op.members if result.tensor in one.writes)
        where = f"{op.name} wrote it into {result.tensor.name}"
        return op.layer, f"layer {op.layer} is the first to produce a value that is not finite: {where}"
    return None, "it came out finite when the step was run again"
