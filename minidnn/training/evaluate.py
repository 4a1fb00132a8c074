"""Evaluation: the outputs of the TEST net, averaged over its test data."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter

import numpy as np

from minidnn.training.confusion import Counting
from minidnn.training.divergence import Diverged, culprit
from minidnn.training.events import Tested
from minidnn.training.feeds import Feeds
from minidnn.training.session import Session


def evaluate(
    session: Session,
    feeds: Feeds,
    batches: int | None = None,
    iteration: int = 0,
    stopped: Callable[[], bool] = lambda: False,
    program: str = "TEST",
    confusion: bool = False,
) -> Tested | None:
    """A TEST net's outputs of one number, averaged over batches; and its loss, if the program computes it.

    batches:   how many, from the first sample on; None: enough to show every sample
    iteration: the number of training iterations so far, for the result and for errors
    stopped:   asked after each batch; if it says True, the result is None
    program:   "TEST", or the name of another net's program of that phase
    confusion: whether to count which classes are taken for which, too

    Raises Diverged if an output is not finite, and InvalidInput if there are no classes to count."""
    began, images, sums, loss = perf_counter(), 0, dict[str, float](), 0.0
    counting = Counting(session, feeds, program) if confusion else None
    told = session.tells_objective(program)
    batches = batches or -(-len(feeds) // feeds.batch)
    for k in range(batches):
        images += feeds.write(session.machine, session.programs[program], k * feeds.batch)
        with np.errstate(all="ignore"):  # as in training: Diverged says more
            session.step(program)
            for name, value in session.scalars(program).items():
                if not math.isfinite(value):
                    raise Diverged(iteration, value, *culprit(session, program), f"{name} of test batch {k}")
                sums[name] = sums.get(name, 0.0) + value
            loss += session.objective(program) if told else 0.0
        if counting:
            counting(k * feeds.batch)
        if stopped():
            return None
    outputs = {name: value / batches for name, value in sums.items()}
    objective, counted = loss / batches if told else None, counting.result() if counting else None
    return Tested(iteration, outputs, images, perf_counter() - began, program, objective, counted)
