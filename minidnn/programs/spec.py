"""How a step trains, as a value: all that programs take from a solver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from minidnn.optimizers import SGD, Optimizer


@dataclass(frozen=True)
class TrainSpec:
    """How a step trains.

    clip_gradients: the largest norm of all gradients together; negative: no clipping
    iter_size:  how many micro-batches' gradients are added up before an update
    accumulate: True for the ACCUMULATE program, which runs for all but the last of these: it adds up gradients and
                updates nothing
    seed:       the seed of dropout
    loss_scale: the loss's scale at the start; used in float16 only
    ranks:      how many devices train together, each with `iter_size` micro-batches
    rank:       which of them this is; plans do not depend on it
    bucket:     bytes of gradients that travel together; None: as many as programs/buckets.py chooses, else ranks.BUCKET
    begins:     True for the program of an iteration's first micro-batch
    """

    optimizer: Optimizer = SGD()  # noqa: RUF009  (frozen)
    clip_gradients: float = -1.0
    iter_size: int = 1
    seed: int = 0
    accumulate: bool = False
    loss_scale: float = 2.0**16
    ranks: int = 1
    rank: int = field(default=0, compare=False)
    bucket: int | None = None
    begins: bool = False

    @property
    def parts(self) -> list[TrainSpec]:
        """Those of the programs of an iteration's micro-batches, in their order."""
        last = replace(self, begins=self.iter_size == 1)
        middle = replace(self, accumulate=True)
        return [*(replace(middle, begins=k == 0) for k in range(self.iter_size - 1)), last]

    @property
    def part(self) -> str:
        """The program's name: TRAIN for the last micro-batch, else ACCUMULATE. Where several ranks first make their
        weights whole, the first of several is BEGIN."""
        if not self.accumulate:
            return "TRAIN"
        return "BEGIN" if self.begins and self.ranks > 1 else "ACCUMULATE"

    @property
    def clips(self) -> bool:
        return self.clip_gradients >= 0

    @property
    def waiting(self) -> int:
        """The most partial sums of a gradient waiting between micro-batches (`sum_tree.SumAttrs`): log2(iter_size)."""
        return self.iter_size.bit_length() - 1
