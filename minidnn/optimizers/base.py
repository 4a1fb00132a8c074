"""The contract of an optimizer: the solver fields it reads, the state it keeps for a weight, the op that updates it.

An optimizer never touches an array: its kernels live in the backends, looked up by the kind of its op. When a gradient
is complete, how micro-batches add up, clipping and the scale of the loss are not its business (programs/updates.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from minidnn.program import Op, Pass, Role, Tensor


@dataclass(frozen=True)
class Site:
    """One weight at the point where its gradient is complete.

    w, dw:     the weight, float32, and its gradient, in the net's number format or, where it is a sum, float32
    rate:      float32 (1,), this iteration's learning rate; iteration: int64 (1,), the micro-batch's number from 0
    objective: float32 (1,); an update changes nothing where it is not finite
    clip:      float32 (1,), a factor of all gradients; an update changes nothing where it is not finite; None: 1
    scale:     1 / iter_size, a factor of the gradient
    """

    layer: str
    name: str  # of the parameter: "w", "gamma"
    w: Tensor
    dw: Tensor
    rate: Tensor
    iteration: Tensor
    objective: Tensor
    clip: Tensor | None
    lr_mult: float
    decay_mult: float
    scale: float

    def op(
        self, kind: str, attrs: Any, state: Sequence[Tensor] = (), more: Sequence[Tensor] = (), flops: int = 0
    ) -> Op:
        """The op that updates w and `state`: w dw rate objective state.. more.. clip? -> w state.."""
        clip = [self.clip] if self.clip is not None else []
        reads = (self.w, self.dw, self.rate, self.objective, *state, *more, *clip)
        return Op(
            f"{self.layer}.update_{self.name}", kind, self.layer, Pass.UPDATE, reads, (self.w, *state), attrs, (), flops
        )


@dataclass(frozen=True)
class Optimizer:
    """What one update is. Subclasses are looked up by a solver file's `type` in `optimizers.OPTIMIZERS`; their fields
    are the numbers that an update takes."""

    fields: ClassVar[tuple[str, ...]] = ()  # of the solver fields that not every optimizer reads, those that this does

    @classmethod
    def of(cls, solver: Any) -> Optimizer:
        """The optimizer that a SolverParameter describes."""
        raise NotImplementedError

    @classmethod
    def problems(cls, solver: Any) -> Iterator[tuple[str, str]]:
        """(solver field, what is wrong with it) for values that are right by themselves and not together."""
        return iter(())

    def state(self, w: Tensor) -> tuple[Tensor, ...]:
        """What lives on from step to step beside the weight. It is zero at first, and a part of snapshots."""
        raise NotImplementedError

    def update(self, s: Site) -> Op:
        """The op that takes one step."""
        raise NotImplementedError


def state_tensor(w: Tensor, name: str) -> Tensor:
    """A tensor of the weight's shape that lives on beside it: `<weight>.<name>`."""
    return Tensor(f"{w.name}.{name}", w.shape, w.dtype, Role.STATE)
