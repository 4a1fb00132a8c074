"""The contract of an optimizer: the solver fields that it reads, the state of a weight, the op that updates the weight.

An optimizer never touches an array: its kernels are in the backends, which find them by the kind of its op. It gets
complete gradients: programs/updates.py adds up micro-batches, programs/steps.py clips and divides by the loss's scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from minidnn.program import Op, Pass, Role, Tensor


@dataclass(frozen=True)
class Site:
    """The tensors and numbers for the update of one weight, whose gradient is complete.

    w, dw:     the weight, float32, and its gradient: in the net's number format, float32 if it is a sum over batches.
               Among several ranks they are this rank's shards
    rate:      float32 (1,), the learning rate of this iteration
    iteration: int64 (1,), the number of the micro-batch from 0
    objective: float32 (1,); if it is not finite, the update must change nothing
    clip:      float32 (1,), a factor of all gradients; if it is not finite, the update must change nothing; None: 1
    scale:     1 / (iter_size * ranks), another factor of the gradient
    axes:      those of the whole weight
    ranks:     how many have shards
    """

    layer: str
    name: str  # the parameter's name: "w", "gamma"
    w: Tensor
    dw: Tensor
    rate: Tensor
    iteration: Tensor
    objective: Tensor
    clip: Tensor | None
    lr_mult: float
    decay_mult: float
    scale: float
    axes: int
    ranks: int = 1

    def op(
        self, kind: str, attrs: Any, state: Sequence[Tensor] = (), more: Sequence[Tensor] = (), flops: int = 0
    ) -> Op:
        """The op that updates w and `state`. It reads w, dw, rate, objective, the state, `more` and, if any, clip, in
        this order. It writes w and the state."""
        clip = [self.clip] if self.clip is not None else []
        reads = (self.w, self.dw, self.rate, self.objective, *state, *more, *clip)
        return Op(
            f"{self.layer}.update_{self.name}", kind, self.layer, Pass.UPDATE, reads, (self.w, *state), attrs, (), flops
        )


@dataclass(frozen=True)
class Optimizer:
    """A rule for updates. `OPTIMIZERS` (optimizers/__init__.py) maps each `type` of a solver file to its subclass. The
    fields of a subclass are the numbers of its rule."""

    fields: ClassVar[tuple[str, ...]] = ()  # the solver fields that it reads, of those that not all optimizers read

    @classmethod
    def of(cls, solver: Any) -> Optimizer:
        """The optimizer that a SolverParameter describes."""
        raise NotImplementedError

    @classmethod
    def problems(cls, solver: Any) -> Iterator[tuple[str, str]]:
        """(solver field, error message) for each value that is valid alone but not with the others."""
        return iter(())

    def state(self, w: Tensor) -> tuple[Tensor, ...]:
        """The tensors that the optimizer keeps for a weight from step to step. They are zero at first, and are saved in
        snapshots."""
        raise NotImplementedError

    def squares(self, s: Site) -> Op | None:
        """An op whose last write are sums of squares (optimizers/squares.py). The ops behind it need those of all
        ranks. None if there is no such op."""
        return None

    def before(self, s: Site) -> Sequence[Op]:
        """Ops that the update needs before it, such as one that makes a ratio of norms."""
        return ()

    def update(self, s: Site) -> Op:
        """The op that updates the weight of this site once."""
        raise NotImplementedError


def state_tensor(w: Tensor, name: str) -> Tensor:
    """The tensor `<weight>.<name>`, of the weight's shape and dtype, for the state of an optimizer."""
    return Tensor(f"{w.name}.{name}", w.shape, w.dtype, Role.STATE)
