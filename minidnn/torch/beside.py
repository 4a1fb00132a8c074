"""What calls take beside their results, for plans.

Nothing is run for it: what was measured before is known, else a table tells (scratch/). Of what is in no table nothing
is known, and no bytes are counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minidnn.errors import few
from minidnn.jobs import gpus
from minidnn.sizes import text
from minidnn.torch.capturing import extents
from minidnn.torch.scratch import KEPT, TABLE, UNKNOWN, Call, Found, Scratch
from minidnn.torch.scratch.cuda import CAPABILITY, HOPPER
from minidnn.torch.traced import Traced

LATER = "Hopper", "Blackwell"  # architectures whose products have cuBLAS's larger workspace
NOTHING = 0  # bytes that may be taken to measure
TOLD = {KEPT: "measured before", TABLE: "by a table", UNKNOWN: "in no table, counted as 0"}


class Beside:
    """gpu: the GPU that is simulated; None: the CPU. lasting: bytes that a library takes once, and keeps"""

    def __init__(self, gpu: str | None) -> None:
        device = "cpu" if gpu is None else "cuda"
        self._scratch = Scratch(device, limit=NOTHING, capability=HOPPER if is_later(gpu) else CAPABILITY)
        self.lasting = self._scratch.lasting
        self._found: list[tuple[str, Found]] = []  # of the last graph: the operator, and what it takes

    def __call__(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """Bytes beside the results of a call of PyTorch."""
        return self._scratch.of([Call.of(func, args, kwargs)])[0].nbytes

    def of(self, traced: Traced) -> Mapping[str, Found]:
        """What each call of a graph takes, as a capture asks for it."""
        result = extents(traced, self._scratch)
        self._found = [(str(n.target), result[n.name]) for n in traced.graph.graph.nodes if n.name in result]
        return result

    def told(self, elsewhere: Iterable[Beside] = ()) -> str:
        """Where the bytes come from, in a sentence; empty if there are none to speak of. elsewhere: what they take on
        GPUs of another kind"""
        count = {origin: sum(found.origin == origin for _, found in self._found) for origin in TOLD}
        parts = [f"{count[origin]} {words}" for origin, words in TOLD.items() if count[origin]]
        if lacking := sorted({name for name, found in self._found if found.origin == UNKNOWN}):
            parts[-1] += f" ({few(lacking, 3)})"
        keeps = " or ".join(text(one.lasting) for one in (self, *elsewhere))
        lasting = f"; cuBLAS keeps {keeps}" if self.lasting else ""
        return f"Scratch of calls: {', '.join(parts)}{lasting}." if parts else ""


def is_later(gpu: str | None) -> bool:
    """Whether it is a GPU whose products have cuBLAS's larger workspace."""
    return gpu is not None and any(name in gpus.gpu(gpu).title for name in LATER)
