"""How long idle threads of OpenMP look for work before they sleep: briefly.

The threads of a parallel region wait for each other at its end, and for the next region. By default GNU's OpenMP lets
them look for milliseconds, longer than a thread's turn on a busy processor. So beside another program, a thread that
waits takes the processor from the thread that it waits for. On two cores beside two busy loops, an empty region took
16 ms instead of 3 us. A thread that sleeps at once is woken by the system, though, which takes some 10 us.

A waiting thread reads a word and pauses, again and again, and GOMP_SPINCOUNT says how often. With 10000 (1 ms), idle
steps of resnet50 (batch 8) and lenet (64) on an AMD EPYC of two cores took 1.01 and 1.03 times as long as by default;
with 1000, 1.04 and 1.1. Beside two busy loops, trainings made 1.4 and 2.1 times as many steps with 10000, and 1.7 and
2.9 times with 1000 (benchmarks/beside.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

SPINS = "GOMP_SPINCOUNT"
DECIDES = (SPINS, "OMP_WAIT_POLICY")  # variables by which a user decides
BRIEF = "10000"


@contextmanager
def briefly() -> Iterator[None]:
    """The threads of a GNU OpenMP that is loaded within wait briefly, unless the user's environment decides. It reads
    its environment when it is loaded; one that is in the process already, as PyTorch's, stays as it is."""
    if any(name in os.environ for name in DECIDES):
        yield
        return
    os.environ[SPINS] = BRIEF
    try:
        yield
    finally:
        del os.environ[SPINS]
