"""Several ranks train one net, and end with the bytes of one that takes all micro-batches in turn.

Each rank sums the gradients of its own micro-batches. Then it sends to each rank that rank's shard of the sum
(`net.all_to_all`). A rank adds the received shards along the tree of micro-batches (`gradient.merge`), and updates its
shard of the weight, with its shard of the optimizer's state. Before the next step's forward reads a weight, all ranks
get all shards (`net.all_gather`). This is the traffic of a ring all-reduce, with a fixed order of sums. Each rank has
only its part of the state (Rajbhandari et al., "ZeRO", SC 2020, stage 1).

Losses and BatchNorm's moments are gathered, too: so all ranks decide alike, and statistics are updated in the order of
the micro-batches. Communications are ops, and their tensors lie in the arena. So plans, budgets, the proof and the
simulator treat them like all others.

Gradients go in buckets, as soon as backward has them. A bucket is merged once the next one is on its way, so that
compute does not wait for a message that has just been sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from minidnn.program import Op, Pass, Role, Tensor
from minidnn.ranks import shards

KEPT = ".kept"  # the end of the name of the rows that a rank keeps
BUCKET = 4 * 2**20  # bytes of gradients that travel together, unless TrainSpec says otherwise


@dataclass(frozen=True)
class NetAttrs:
    """A communication of so many ranks."""

    ranks: int


@dataclass(frozen=True)
class MergeAttrs:
    """The op adds up a shard of all ranks' gradients, in the order of a binary counter (sum_tree.SumAttrs).

    own: the elements of the shard that are this rank's; those behind them become zeros. Plans do not depend on it."""

    ranks: int
    own: int = field(compare=False, repr=False)


@dataclass(frozen=True)
class KeepAttrs:
    """The op sets one of `every` rows: that of this micro-batch."""

    every: int


class Statistics:
    """The updates of running statistics, which take all ranks' micro-batches in their order.

    Each micro-batch keeps its statistics. Once the last one has them, the ranks gather all rows."""

    def __init__(self, ranks: int, iter_size: int, iteration: Tensor) -> None:
        self.ranks, self.every, self.iteration = ranks, iter_size, iteration
        self.persistent: list[Tensor] = []
        self.updates: list[Op] = []

    def keep(self, op: Op) -> list[Op]:
        """The ops that take the place of this update, which comes later."""
        mean, variance = op.reads[:2]
        self.updates.append(op)
        if self.every == 1:
            return []
        rows = [Tensor(t.name + KEPT, (self.every * t.size,), role=Role.STATE) for t in (mean, variance)]
        self.persistent += rows
        reads, attrs = (*rows, mean, variance, self.iteration), KeepAttrs(self.every)
        return [Op(f"{op.layer}.keep", "batch_norm.keep", op.layer, op.during, reads, tuple(rows), attrs)]

    def all_gather(self) -> list[Op]:
        """The op that gathers all rows; none without updates."""
        reads = [t for op in self.updates for t in self._own(op)]
        writes = [t for op in self.updates for t in self._all(op)]
        return [net("net.statistics", "net.all_gather", reads, writes, self.ranks)] if reads else []

    def updated(self) -> list[Op]:
        """The updates by all rows, at the end of the step."""
        return [replace(op, reads=(*self._all(op), *op.reads[2:]), during=Pass.UPDATE) for op in self.updates]

    def _own(self, op: Op) -> list[Tensor]:
        if self.every == 1:
            return list(op.reads[:2])
        return [Tensor(t.name + KEPT, (self.every * t.size,), role=Role.STATE) for t in op.reads[:2]]

    def _all(self, op: Op) -> list[Tensor]:
        shape = self.ranks * self.every
        return [Tensor(f"{t.name}.all", (shape * t.size,), role=Role.EXTRA) for t in op.reads[:2]]


@dataclass(frozen=True, eq=False)
class Sent:
    """A gradient on its way: the sum over this rank's micro-batches, the ranks' rows, and the shard to be made."""

    gradient: Tensor
    rows: Tensor
    shard: Tensor
    then: Callable[[Tensor], object]  # called with the shard, once it is merged


def shard_of(t: Tensor, ranks: int, dtype: str | None = None, role: Role | None = None) -> Tensor:
    """The tensor of a rank's shard of t."""
    return Tensor(t.name + shards.SHARD, (shards.length(t.size, ranks),), dtype or t.dtype, role or t.role)


class ReduceScatters:
    """Sends gradients in buckets, and merges the received ones."""

    def __init__(
        self, ranks: int, rank: int, bucket: int, emit: Callable[[Op], object], merged: Callable[[], object]
    ) -> None:
        """`merged` is called after each bucket whose gradients are merged."""
        self.ranks, self.rank, self.bucket, self.emit, self.merged = ranks, rank, bucket, emit, merged
        self.waiting: list[Sent] = []  # not yet sent
        self.sent: list[Sent] = []  # not yet merged
        self.count = 0

    def add(self, gradient: Tensor, then: Callable[[Tensor], object]) -> None:
        """Take a gradient that is complete on this rank."""
        length = shards.length(gradient.size, self.ranks)
        rows = Tensor(f"{gradient.name}.rows", (self.ranks * length,), gradient.dtype, Role.PARAM_GRADIENT)
        shard = shard_of(gradient, self.ranks, "float32")
        self.waiting.append(Sent(gradient, rows, shard, then))
        if sum(one.gradient.nbytes for one in self.waiting) >= self.bucket:
            self._send()

    def finish(self) -> None:
        """Send and merge all that is left."""
        if self.waiting:
            self._send()
        self._merge()

    def _send(self) -> None:
        bucket, self.waiting = self.waiting, []
        reads, writes = [one.gradient for one in bucket], [one.rows for one in bucket]
        self.emit(net(f"net.all_to_all{self.count or ''}", "net.all_to_all", reads, writes, self.ranks))
        self.count += 1
        self._merge()
        self.sent = bucket

    def _merge(self) -> None:
        sent, self.sent = self.sent, []
        for one in sent:
            first, last = shards.bounds(one.gradient.size, self.ranks, self.rank)
            attrs = MergeAttrs(self.ranks, last - first)
            reads = one.rows, one.gradient  # the gradient is not read, but has to stay until the all-to-all has ended
            name = f"{one.gradient.name}.merge"
            flops = self.ranks * one.shard.size
            self.emit(Op(name, "gradient.merge", "net", Pass.UPDATE, reads, (one.shard,), attrs, (), flops))
            one.then(one.shard)
        if sent:
            self.merged()


def all_gathers(weights: Iterable[tuple[Tensor, Tensor]], ranks: int, bucket: int) -> list[Op]:
    """The ops that make weights whole, in this order, of (shard, weight)."""
    result: list[Op] = []
    some: list[tuple[Tensor, Tensor]] = []

    def end() -> None:
        shares, wholes = zip(*some, strict=True)
        result.append(net(f"net.all_gather{len(result) or ''}", "net.all_gather", shares, wholes, ranks))
        some.clear()

    for pair in weights:
        some.append(pair)
        if sum(w.nbytes for _, w in some) >= bucket:
            end()
    if some:
        end()
    return result


def net(name: str, kind: str, reads: Sequence[Tensor], writes: Sequence[Tensor], ranks: int) -> Op:
    """A communication."""
    return Op(name, kind, "net", Pass.UPDATE, tuple(reads), tuple(writes), NetAttrs(ranks))
