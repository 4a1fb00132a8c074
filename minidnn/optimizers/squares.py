"""Sums of squares by blocks, for norms that do not know of ranks.

The squares of each block of `shards.BLOCK` elements of a tensor are added up in an order of their own, which zeros
behind the elements do not change. The sums of a tensor's blocks are added in the blocks' order, and those of several
tensors in the tensors' order. A rank's shard begins with a block. So ranks that have gathered the sums of all blocks
make the bytes that one rank makes of whole tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidnn.program import Op, Pass, Role, Tensor
from minidnn.ranks import shards


@dataclass(frozen=True)
class Blocks:
    """Where the sums of blocks lie in a tensor: a row for each rank. In a row, `counts` sums of each tensor, or of its
    shard, one tensor behind the other."""

    counts: tuple[int, ...]
    ranks: int = 1

    @classmethod
    def of(cls, tensors: Iterable[Tensor], ranks: int = 1) -> Blocks:
        """The sums of tensors, or of ranks' shards of them."""
        return cls(tuple(shards.blocks(t.size) for t in tensors), ranks)

    def sums(self, name: str) -> Tensor:
        """The tensor of one rank's sums, float64."""
        return Tensor(name, (sum(self.counts),), "float64", Role.EXTRA)


def together(sums: Tensor, ranks: int) -> Tensor:
    """The tensor of all ranks' sums; of a single rank its own."""
    return sums if ranks == 1 else Tensor(f"{sums.name}.all", (ranks * sums.size,), sums.dtype, sums.role)


def squares(name: str, layer: str, of: Sequence[Tensor], into: Tensor) -> Op:
    """The op that adds up the squares of each block of these tensors."""
    flops = 2 * sum(t.size for t in of)
    return Op(name, "gradient.squares", layer, Pass.UPDATE, tuple(of), (into,), None, (), flops)
