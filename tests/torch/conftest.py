"""An imitation of the counters that PyTorch's caching allocator keeps for a GPU."""

from __future__ import annotations

import pytest


class Counters:
    """What `torch.cuda.memory_stats` tells; `take` and `give` are what kernels do."""

    def __init__(self) -> None:
        self.current = self.peak = 7777  # what was there before

    def take(self, nbytes: int) -> None:
        self.current += nbytes
        self.peak = max(self.peak, self.current)

    def give(self, nbytes: int) -> None:
        self.current -= nbytes

    def stats(self, device: object = None) -> dict[str, int]:
        return {"allocated_bytes.all.current": self.current, "allocated_bytes.all.peak": self.peak}

    def reset(self, device: object = None) -> None:
        self.peak = self.current


@pytest.fixture
def counters(monkeypatch) -> Counters:
    import torch

    result = Counters()
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_stats", result.stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", result.reset)
    return result
