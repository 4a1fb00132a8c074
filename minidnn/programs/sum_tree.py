"""The tree along which gradients are summed, of micro-batches and of ranks: any number of devices ends with one sum."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SumAttrs:
    """The gradients of `every` micro-batches are the leaves of a balanced binary tree, and their sum is taken along it.

    One device walks the tree as a binary counter counts. After k micro-batches a partial sum waits for each 1 among the
    digits of k, the longest run of micro-batches first. So a contiguous run of 2^n micro-batches has a sum of its own,
    and devices that each take such a run end with the same bytes."""

    every: int
