"""The numbers of a step, which ops read from the device's memory."""

from __future__ import annotations

from minidnn.program import Role, Tensor

RATE = Tensor("rate", (1,), role=Role.CONTROL)
ITERATION = Tensor("iteration", (1,), "int64", Role.CONTROL)  # the number of the micro-batch
OBJECTIVE = Tensor("objective", (1,))
OBJECTIVES = "objectives"  # the name of those of all ranks
TOGETHER = Tensor("objective.together", (1,), role=Role.EXTRA)  # their sum
SCALE = Tensor("loss_scale", (2,), role=Role.STATE)  # the loss's scale; the number of good steps since it changed


def objectives(ranks: int) -> Tensor:
    """The tensor of all ranks' objectives; a single rank's is its own."""
    return OBJECTIVE if ranks == 1 else Tensor(OBJECTIVES, (ranks,))
