"""How a step trains, and the ops after the gradients of weights: sums over micro-batches and ranks, then steps
(programs/steps.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from minidnn.layers.base import Parameter
from minidnn.optimizers import SGD, Optimizer
from minidnn.program import Op, Pass, Role, Tensor
from minidnn.programs.ranks import BUCKET, Exchanges, Statistics, gathers, net, shard_of
from minidnn.programs.scalars import ITERATION, OBJECTIVE, objectives
from minidnn.programs.steps import Learned, Steps

STATISTICS = "batch_norm.statistics"


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
    bucket:     bytes of gradients that travel together; None: as many as programs/buckets.py chooses, else BUCKET
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
        """The most partial sums of a gradient that wait between micro-batches (`SumAttrs`): log2(iter_size)."""
        return self.iter_size.bit_length() - 1


@dataclass(frozen=True)
class SumAttrs:
    """The gradients of `every` micro-batches are the leaves of a balanced binary tree, and their sum is taken along it.

    One device walks the tree as a binary counter counts. After k micro-batches a partial sum waits for each 1 among the
    digits of k, the longest run of micro-batches first. So a contiguous run of 2^n micro-batches has a sum of its own,
    and devices that each take such a run end with the same bytes."""

    every: int


class Updates:
    """Makes the ops after the gradients of one program and hands them to `emit` in order. `carried` lists the tensors
    among theirs that live across steps."""

    def __init__(self, train: TrainSpec, scaled: bool, emit: Callable[[Op], object]) -> None:
        """`scaled`: the gradients of the losses are multiplied by a scale, and updates must divide by it."""
        self.train, self.emit = train, emit
        self.carried: list[Tensor] = []
        self.steps = Steps(train, scaled, emit)
        self.shards: dict[Tensor, Tensor] = {}  # of several ranks: {weight: its shard}
        self.bucket = train.bucket or BUCKET
        several = train.ranks > 1
        self.exchanges = Exchanges(train.ranks, train.rank, self.bucket, emit, self.steps.made) if several else None
        self.statistics = Statistics(train.ranks, train.iter_size, ITERATION) if several else None

    def complete(self, layer: str, p: Parameter, w: Tensor, dw: Tensor) -> None:
        """Take a parameter's complete gradient."""
        train = self.train
        if train.iter_size > 1:
            dw = self._sum(layer, p, w, dw)
        axes = len(w.shape)
        if train.ranks > 1:
            whole, w = w, shard_of(w, train.ranks)
            self.shards[whole] = w
            self.carried.append(w)
        self.carried += train.optimizer.state(w)  # for ACCUMULATE, too: all programs carry the same tensors
        if train.accumulate:
            return
        if self.exchanges is None:
            self.steps.add(Learned(layer, p, w, dw, axes))
            self.steps.made()
        else:
            self.exchanges.add(dw, lambda shard: self.steps.add(Learned(layer, p, w, shard, axes)))

    def forward(self, ops: Iterable[Op]) -> list[Op]:
        """These ops of a layer's forward pass. Among several ranks, updates of running statistics come later."""
        if self.statistics is None:
            return list(ops)
        return [x for op in ops for x in (self.statistics.kept(op) if op.kind == STATISTICS else [op])]

    def objective(self) -> None:
        """The objective is there: tell the other ranks."""
        if self.train.ranks > 1:
            found = objectives(self.train.ranks)
            self.emit(net("net.objectives", "net.gather", [OBJECTIVE], [found], self.train.ranks))
        if self.statistics is not None:
            self.carried += self.statistics.carried
            if not self.train.accumulate:
                for op in self.statistics.gathered():
                    self.emit(op)

    def together(self) -> list[Op]:
        """The ops that the program of several ranks begins with: they make the weights whole."""
        if self.exchanges is None or not self.train.begins:
            return []
        pairs = [(shard, w) for w, shard in reversed(self.shards.items())]  # about in the order of forward
        return gathers(pairs, self.train.ranks, self.bucket)

    def _sum(self, layer: str, p: Parameter, w: Tensor, dw: Tensor) -> Tensor:
        """Add this micro-batch's gradient to those before it; the last one's program gets their sum."""
        train = self.train
        waiting = Tensor(f"{dw.name}.sums", (train.waiting * dw.size,), w.dtype, Role.PARAM_GRADIENT)
        self.carried.append(waiting)
        attrs = SumAttrs(train.iter_size)
        if train.accumulate:
            reads = [waiting, dw, ITERATION]
            name = f"{layer}.accumulate_{p.name}"
            self._op(name, "gradient.accumulate", layer, reads, [waiting], attrs, flops=w.size)
            return dw
        total = Tensor(f"{dw.name}.sum", dw.shape, w.dtype, Role.PARAM_GRADIENT)
        inplace = [(dw, total)] if dw.dtype == total.dtype else []
        flops = w.size * train.waiting
        self._op(f"{layer}.sum_{p.name}", "gradient.total", layer, [waiting, dw], [total], attrs, flops, inplace)
        return total

    def finish(self) -> None:
        """All gradients are complete: make what had to wait."""
        train = self.train
        if self.exchanges is not None:
            self.exchanges.finish()
        if self.statistics is not None and not train.accumulate:
            for op in self.statistics.updated():
                self.emit(op)
        self.steps.finish()

    def _op(self, name, kind, layer, reads, writes, attrs=None, flops=0, inplace=()) -> None:
        self.emit(Op(name, kind, layer, Pass.UPDATE, tuple(reads), tuple(writes), attrs, tuple(inplace), flops))
