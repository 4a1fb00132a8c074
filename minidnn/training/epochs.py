"""Epochs: a run's fields that count them become the ones that count iterations, once, before the first iteration.

An epoch is as many iterations as show each sample of TRAIN once or more. That is the number of samples, divided by
those of an iteration (batch times iter_size), and rounded up.
"""

from __future__ import annotations

from minidnn.errors import InvalidInput
from minidnn.optimizers.rates import learning_rate
from minidnn.schema import SolverParameter
from minidnn.schema.message import LARGEST
from minidnn.schema.solver import IN_EPOCHS
from minidnn.training.feeds import Feeds


def iterations_of(feeds: Feeds, p: SolverParameter) -> int | None:
    """The iterations of an epoch; None if the samples of these feeds have no end."""
    samples = feeds.samples
    return None if samples is None else -(-samples // (feeds.batch * p.iter_size))


def until(p: SolverParameter, epochs: int, epoch: int | None) -> SolverParameter:
    """The parameters with so many epochs to train, in place of their max_iter. Raises InvalidInput as below, and for
    a number that is none."""
    if type(epochs) is not int or epochs < 1:
        raise InvalidInput(f"epochs: {epochs!r} is not a whole number of at least 1")
    return in_iterations(p.model_copy(update={"minidnn": p.minidnn.model_copy(update={"epochs": epochs})}), epoch)


def in_iterations(p: SolverParameter, epoch: int | None) -> SolverParameter:
    """The parameters with `max_iter` for `epochs`, and so on (IN_EPOCHS), where an epoch has so many iterations.

    Raises InvalidInput if epochs are given and there are none, if they are too many, or if the learning rates end
    with one that is no number."""
    given = {field: epochs for field, ours in IN_EPOCHS.items() if (epochs := getattr(p.minidnn, ours))}
    if not given:
        return p
    if epoch is None:
        text = ", ".join(f"{IN_EPOCHS[field]} (give {field})" for field in given)
        raise InvalidInput(f"the samples of TRAIN have no end, so there are no epochs to count for {text}")
    counts = {field: epochs * epoch for field, epochs in given.items()}
    for field, count in counts.items():
        if count > LARGEST:
            what = f"{given[field]} epochs of {epoch} iterations are more than {LARGEST} iterations"
            raise InvalidInput(f"{IN_EPOCHS[field]}: {what}")
    result = p.model_copy(update=counts)  # which marks them as given
    if result.max_iter:
        learning_rate(result, result.max_iter - 1)
    return result
