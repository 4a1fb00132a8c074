"""What communications between ranks cost: a latency, and the bytes that each rank sends, over a bandwidth."""

from __future__ import annotations

from dataclasses import dataclass, replace

from minidnn.costs.costs import Choice, Costs, remembering
from minidnn.program import DEFAULT, Op


@dataclass(frozen=True)
class Link:
    """Between each rank and all others."""

    bandwidth: float  # bytes per second, in each direction
    latency: float  # seconds before the first byte

    def seconds(self, op: Op) -> float:
        """The seconds of a communication (programs/ranks.py): (ranks - 1) / ranks of its bytes leave each rank."""
        ranks = op.attrs.ranks
        whole = max(sum(t.nbytes for t in op.reads), sum(t.nbytes for t in op.writes))
        return self.latency + whole * (ranks - 1) / ranks / self.bandwidth


LINK = Link(4e9, 3e-5)  # assumed between processes of one machine, or machines at 40 Gb/s


def among(costs: Costs, link: Link) -> Costs:
    """The costs with those of communications."""

    def choose(op: Op) -> tuple[Choice, ...]:
        return (Choice(DEFAULT, link.seconds(op)),) if op.on_net else costs.choices(op)

    return replace(costs, choices=remembering(choose))
