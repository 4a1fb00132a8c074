"""Packing: where buffers with known lives lie in one block of memory (dynamic storage allocation, which is NP-hard).

height
  |    +-------+                The height is at least the load, the largest sum of sizes alive at once.
  |    |   C   |  +-----+       A portfolio of greedy orders comes first (greedy.py); it finds the load
  | +--+-------+--+  D  |       itself where lives nest, as those of liveness do. Where it misses the
  | |       A     |     |       wanted height, a search in C goes on (tight.py).
  | +-------------+-----+
  +-----------------------> time
"""

from minidnn.memory.packing.packer import lowest, pack
from minidnn.memory.packing.problem import Problem, ProblemError, Solution, read, write

__all__ = ["Problem", "ProblemError", "Solution", "lowest", "pack", "read", "write"]
