"""What kernels of products are assumed to reach of a GPU's peaks: minidnn's own, and PyTorch's attention. One table for
simulated GPUs, for the estimate of one at hand, and for modules of PyTorch.

All of it is assumed: no GPU has run minidnn's kernels. Measured costs take the place of the estimate.

Kernels that multiply by mma.sync, as minidnn's own and FlashAttention-2 do, do not reach a Hopper's peak, which takes
wgmma. MMA_SYNC says how much of it they may have. "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via
Microbenchmarking" (Luo et al., 2024) measured 62.9 % on an H100. A B200 is assumed to do as much of it in a cycle.

  matmul       Tiles of 128 x 128 in three stages. cuBLAS reaches 0.6 to 0.75 of the peak in large products.
  linear_loss  The same products, with a softmax of their results between two of them.
  attention    FlashAttention-2 reaches 0.5 to 0.73 of an A100's peak (Dao, 2023), and 0.35 of an H100's (Shah et al.,
               "FlashAttention-3", 2024). minidnn's has half of that: its copies wait for its arithmetic, and backward
               takes the scores once for dq and once for dk and dv.
  recurrent    Float32 products, whatever the format.

Without tensor cores, a loop of 256 multiply-adds loads 128 numbers from shared memory, one at a time. That takes at
least twice as long as the arithmetic does. Attention adds its exponentials, and four barriers for each tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Reach:
    """Parts of peaks: of that of tensor cores, as far as mma.sync has it, and of float32's without them."""

    tensor_cores: float
    without: float


# family of products -> what minidnn's own kernels reach; those of other families are libraries'
OWN = {
    "matmul": Reach(0.5, 0.2),
    "linear_loss": Reach(0.4, 0.2),
    "attention": Reach(0.3, 0.15),
    "recurrent": Reach(0.0, 0.2),
}
TORCH_ATTENTION = 0.55  # the part for PyTorch's, on tensor cores
# operations of a multiprocessor's tensor cores in a cycle, of 16-bit values -> the part that mma.sync reaches; else 1
MMA_SYNC = {4096: 0.63, 8192: 0.31}


def mma_sync(per_cycle: float) -> float:
    """The part of a peak that mma.sync reaches on cards whose tensor cores do so much a multiprocessor and cycle. Data
    sheets count other clocks than the boost, so the nearest power of two is taken."""
    return MMA_SYNC.get(2 ** round(math.log2(per_cycle)), 1.0)
