"""Evaluation: the outputs of the TEST net, averaged over its test data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from minidnn.training.confusion import Confusion, Counting, together
from minidnn.training.divergence import Diverged, culprit
from minidnn.training.events import Tested
from minidnn.training.feeds import Feeds
from minidnn.training.session import Session


@dataclass
class Part:
    """The results of one rank's batches, in their order."""

    values: list[dict[str, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    images: int = 0
    confusion: Confusion | None = None
    stopped: bool = False


def evaluate(
    session: Session,
    feeds: Feeds,
    batches: int | None = None,
    iteration: int = 0,
    stopped: Callable[[], bool] = lambda: False,
    program: str = "TEST",
    confusion: bool = False,
) -> Tested | None:
    """A TEST net's outputs of one number, averaged over batches, and what follows from them; and its loss, if the
    program computes it. Each of several ranks runs some of the batches, and all of them get the result of all batches.

    batches:   how many, from the first sample on; None: enough to show every sample
    iteration: the number of training iterations so far, for the result and for errors
    stopped:   asked after each batch; if it says True, the result is None
    program:   "TEST", or the name of another net's program of that phase
    confusion: whether to count which classes are taken for which, too

    Raises Diverged if an output is not finite, and InvalidInput if there are no classes to count."""
    began, machine, engine = perf_counter(), session.machine, session.setting.engine
    batches = batches or -(-len(feeds) // feeds.batch)
    rank, ranks = (engine.rank, engine.ranks) if engine else (0, 1)
    counting = Counting(session, feeds, program) if confusion else None
    told = session.tells_objective(program)
    part = Part()
    machine.all_gather()  # all ranks do, also those without a batch
    for k in range(batches * rank // ranks, batches * (rank + 1) // ranks):
        part.images += feeds.write(machine, session.programs[program], k * feeds.batch)
        with np.errstate(all="ignore"):  # as in training: Diverged says more
            session.step(program)
            values = session.scalars(program)
            for name, value in values.items():
                if not math.isfinite(value):
                    raise Diverged(iteration, value, *culprit(session, program), f"{name} of test batch {k}")
            part.values.append(values)
            part.losses.append(session.objective(program) if told else 0.0)
        if counting:
            counting(k * feeds.batch)
        if stopped():
            part.stopped = True
            break
    part.confusion = counting.result() if counting else None
    parts: list[Part] = engine.share(part) if engine else [part]
    if any(one.stopped for one in parts):
        return None
    sums, loss = dict[str, float](), 0.0
    for one in parts:  # in the order of batches, whichever rank has had them
        for values, objective in zip(one.values, one.losses, strict=True):
            loss += objective
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value
    return Tested(
        iteration,
        session.told(program, {name: value / batches for name, value in sums.items()}),
        sum(one.images for one in parts),
        perf_counter() - began,
        program,
        loss / batches if told else None,
        together([one.confusion for one in parts if one.confusion]),
    )
