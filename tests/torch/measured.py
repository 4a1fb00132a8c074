"""What PyTorch's allocator on the CPU gives out, as its profiler records it."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """Bytes above those at the start: the most at once, and those at the end, while `result` is alive; and how often so
    many were taken."""

    peak: int
    end: int
    sizes: Counter[int]
    result: Any


def measured(run: Callable[[], Any]) -> Measured:
    import torch

    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        result = run()
    records = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = [e.nbytes() for e in sorted(records, key=lambda e: e.start_ns())]
    taken = list(accumulate(changes, initial=0))
    return Measured(max(taken), taken[-1], Counter(n for n in changes if n > 0), result)
