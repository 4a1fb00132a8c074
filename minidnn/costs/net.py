"""The cost of communications between ranks: the messages and bytes of the busiest rank, over a link.

All ranks send to all others at once, without detours, since that is what the engines do (minidnn/ranks). A rank has
one link for each direction, on which its messages follow one another:

    latency + (messages - 1) * gap + bytes / bandwidth

Where processors move the bytes, a rank's own part takes time, too: it is copied from one tensor to the other.

This is LogGP's cost of messages that one rank sends in a row (Alexandrov et al., "LogGP: Incorporating Long Messages
into the LogP Model", SPAA 1995). A gap as long as the latency makes it the model of Thakur, Rabenseifner and Gropp
("Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005, section 3). In that model, an
all-to-all and an all-gather of one tensor among R ranks cost as much as their pairwise exchange and their ring: (R - 1)
messages, and (R - 1) / R of the bytes (sections 4.1 and 4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from minidnn.costs.costs import Choice, Costs, remembering
from minidnn.program import DEFAULT, Op

REDUCE_SCATTER = "net.all_to_all"  # any other communication is an all-gather


@dataclass(frozen=True)
class Link:
    """Between each rank and all others.

    gap:  seconds between two messages that a rank sends in a row; None: the latency
    drag: seconds of an op's work that are lost for each second of a communication beside it, 0 to MOST_DRAG. It is
          above 0 where the processors that compute move the bytes, too
    own:  bytes per second at which a rank copies its own part; None: that takes no time"""

    bandwidth: float  # bytes per second of a rank, in each direction
    latency: float  # seconds of a message without bytes
    gap: float | None = None
    drag: float = 0.0
    title: str = ""
    own: float | None = None

    def seconds(self, op: Op) -> float:
        """The seconds of a communication (programs/ranks.py)."""
        return self.carry(op.attrs.ranks - 1, len(op.reads), sum(shard for shard, _ in _parts(op)))

    def carry(self, peers: int, messages: int, nbytes: float) -> float:
        """Seconds until a rank has sent so many messages, of so many bytes together, to each of so many peers, and has
        copied its own."""
        if not peers:
            return 0.0
        gap = self.latency if self.gap is None else self.gap
        own = nbytes / self.own if self.own is not None else 0.0
        return self.latency + (peers * messages - 1) * gap + peers * nbytes / self.bandwidth + own


@dataclass(frozen=True)
class Nodes:
    """Nodes of `each` ranks. Those of a node have links of their own; a node has `rails` to the others, which its ranks
    share. Both kinds work at the same time."""

    within: Link
    between: Link
    each: int
    rails: int = 1

    @property
    def title(self) -> str:
        rails = "" if self.rails == 1 else f"{self.rails} x "
        return f"{self.within.title} in nodes of {self.each}, and {rails}{self.between.title} between nodes"

    @property
    def drag(self) -> float:
        return max(self.within.drag, self.between.drag)

    def seconds(self, op: Op) -> float:
        ranks, count = op.attrs.ranks, len(op.reads)
        mine = sum(shard for shard, _ in _parts(op))
        inside = self.within.carry(min(ranks, self.each) - 1, count, mine)
        outside = max(0, ranks - self.each)
        node = sum(min(self.each * shard, whole) for shard, whole in _parts(op))  # the first node's shards, the most
        return max(inside, self.between.carry(outside, count, node / self.rails))


Network = Link | Nodes
LINK = Link(4e9, 3e-5, title="4 GB/s and 30 µs, assumed")  # between processes of a machine, or machines at 40 Gb/s


def sent(op: Op) -> int:
    """The bytes of a communication that leave or reach the first rank: it has the most.

    Shards are whole blocks (ranks/shards.py), so the first ranks have more than others of a small tensor."""
    return (op.attrs.ranks - 1) * sum(shard for shard, _ in _parts(op))


def _parts(op: Op) -> list[tuple[int, int]]:
    """(bytes of the first rank's shard, bytes of the whole) of each tensor."""
    if op.kind == REDUCE_SCATTER:
        return [(rows.nbytes // op.attrs.ranks, x.nbytes) for x, rows in zip(op.reads, op.writes, strict=True)]
    return [(x.nbytes, whole.nbytes) for x, whole in zip(op.reads, op.writes, strict=True)]


def among(costs: Costs, link: Network) -> Costs:
    """The costs with those of communications."""
    return replace(_communicating(costs, link.seconds), net_drag=link.drag)


def unhindered(costs: Costs) -> Costs:
    """The costs if communications took no time, and slowed nothing down."""
    return replace(_communicating(costs, lambda op: 0.0), net_drag=0.0)


def _communicating(costs: Costs, seconds: Callable[[Op], float]) -> Costs:
    def choose(op: Op) -> tuple[Choice, ...]:
        return (Choice(DEFAULT, seconds(op)),) if op.on_net else costs.choices(op)

    return replace(costs, choices=remembering(choose))
