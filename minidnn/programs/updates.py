"""The ops after the gradients of weights: sums over micro-batches and ranks, then steps (programs/steps.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minidnn.layers.base import Parameter
from minidnn.program import Op, Pass, Role, Tensor
from minidnn.programs.ranks import BUCKET, ReduceScatters, Statistics, all_gathers, net, shard_of
from minidnn.programs.scalars import ITERATION, OBJECTIVE, objectives
from minidnn.programs.spec import TrainSpec
from minidnn.programs.steps import Learned, Steps
from minidnn.programs.sum_tree import SumAttrs

STATISTICS = "batch_norm.statistics"


class Updates:
    """Makes the ops after the gradients of one program and hands them to `emit` in order. `persistent` lists the
    tensors among theirs that live across steps."""

    def __init__(self, train: TrainSpec, scaled: bool, emit: Callable[[Op], object]) -> None:
        """`scaled`: the gradients of the losses are multiplied by a scale, and updates must divide by it."""
        self.train, self.emit = train, emit
        self.persistent: list[Tensor] = []
        self.steps = Steps(train, scaled, emit)
        self.shards: dict[Tensor, Tensor] = {}  # of several ranks: {weight: its shard}
        self.bucket = train.bucket or BUCKET
        several = train.ranks > 1
        self.reduce_scatters = (
            ReduceScatters(train.ranks, train.rank, self.bucket, emit, self.steps.update_ready) if several else None
        )
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
            self.persistent.append(w)
        self.persistent += train.optimizer.state(w)  # for ACCUMULATE, too: all programs carry the same tensors
        if train.accumulate:
            return
        if self.reduce_scatters is None:
            self.steps.add(Learned(layer, p, w, dw, axes))
            self.steps.update_ready()
        else:
            self.reduce_scatters.add(dw, lambda shard: self.steps.add(Learned(layer, p, w, shard, axes)))

    def forward(self, ops: Iterable[Op]) -> list[Op]:
        """These ops of a layer's forward pass. Among several ranks, updates of running statistics come later."""
        if self.statistics is None:
            return list(ops)
        return [x for op in ops for x in (self.statistics.keep(op) if op.kind == STATISTICS else [op])]

    def objective(self) -> None:
        """The objective is there: tell the other ranks."""
        if self.train.ranks > 1:
            result = objectives(self.train.ranks)
            self.emit(net("net.objectives", "net.all_gather", [OBJECTIVE], [result], self.train.ranks))
        if self.statistics is not None:
            self.persistent += self.statistics.persistent
            if not self.train.accumulate:
                for op in self.statistics.all_gather():
                    self.emit(op)

    def together(self) -> list[Op]:
        """The ops that the program of several ranks begins with: they make the weights whole."""
        if self.reduce_scatters is None or not self.train.begins:
            return []
        pairs = [(shard, w) for w, shard in reversed(self.shards.items())]  # about in the order of forward
        return all_gathers(pairs, self.train.ranks, self.bucket)

    def _sum(self, layer: str, p: Parameter, w: Tensor, dw: Tensor) -> Tensor:
        """Add this micro-batch's gradient to those before it; the last one's program gets their sum."""
        train = self.train
        waiting = Tensor(f"{dw.name}.sums", (train.waiting * dw.size,), w.dtype, Role.PARAM_GRADIENT)
        self.persistent.append(waiting)
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
        if self.reduce_scatters is not None:
            self.reduce_scatters.finish()
        if self.statistics is not None and not train.accumulate:
            for op in self.statistics.updated():
                self.emit(op)
        self.steps.finish()

    def _op(self, name, kind, layer, reads, writes, attrs=None, flops=0, inplace=()) -> None:
        self.emit(Op(name, kind, layer, Pass.UPDATE, tuple(reads), tuple(writes), attrs, tuple(inplace), flops))
