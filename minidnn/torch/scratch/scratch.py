"""Scratch of calls: from the user's cache, else measured, else from a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from minidnn.memory.execution.host import free_memory
from minidnn.sizes import text
from minidnn.torch.scratch import cpu, cuda, kept
from minidnn.torch.scratch.calls import Call
from minidnn.torch.scratch.measuring import measure

MEASURED, KEPT, TABLE, UNKNOWN = ORIGINS = "measured", "kept", "table", "unknown"
SHARE = 0.5  # of the memory that is free, which a call's tensors may take while it is measured


@dataclass(frozen=True)
class Found:
    """nbytes:  what the operator takes beside its results, at its peak
    results: the bytes of each result's storage, 0 for one that was there before. An operator may give a small tensor in
             a large storage (mse_loss), or one whose size PyTorch's shapes without numbers do not tell (an LSTM's
             workspace), so these may be more than the results' shapes say
    origin:  MEASURED now; KEPT, measured before; from the TABLE; or UNKNOWN, and then nbytes is 0
    why:     why it was not measured; empty if it was
    """

    nbytes: int
    results: tuple[int, ...]
    origin: str
    why: str = ""

    def beside(self, expected: int) -> int:
        """What the operator takes beside so many bytes of results."""
        return max(0, self.nbytes + sum(self.results) - expected)


class Scratch:
    """device:     "cpu", or "cuda" with or without a number. Where PyTorch has no such device, the table tells all
    limit:      bytes that a call's tensors may take while it is measured; None: half of the memory that is free
    directory:  where values are kept; None: a folder of the user's cache
    capability: of the GPU for the table of cuda, as (9, 0)
    """

    def __init__(
        self,
        device: str = "cpu",
        limit: int | None = None,
        directory: Path | None = None,
        capability: tuple[int, int] = cuda.CAPABILITY,
    ):
        self.device, self.limit = device, limit
        self.absent = _absent(device)
        self._file = None if self.absent else kept.path(device, directory)
        self._known = {} if self._file is None else kept.load(self._file)
        self._table: Callable[[Call], int | None] = cpu.scratch
        self._results: Callable[[Call], tuple[int, ...]] = cpu.results
        self.lasting = 0  # bytes that libraries take at their first use, and keep
        if device != "cpu":
            self._results = cuda.results
            self._table, self.lasting = lambda call: cuda.scratch(call, capability), cuda.lasting(capability)

    def of(self, calls: Sequence[Call]) -> list[Found]:
        """What each of the calls takes. Those that are new are measured, and kept."""
        found = {key: Found(*self._known[key], KEPT) for call in calls if (key := call.key) in self._known}
        new = {call.key: call for call in calls if call.key not in found}
        limit = int(SHARE * free_memory()) if self.limit is None else self.limit
        wrong = {key: why for key, call in new.items() if (why := self._why_not(call, limit))}
        found |= self._measured([call for key, call in new.items() if key not in wrong], wrong)
        found |= {key: self._by_table(new[key], why) for key, why in wrong.items()}
        return [found[call.key] for call in calls]

    def _measured(self, calls: Sequence[Call], wrong: dict[str, str]) -> dict[str, Found]:
        """What these take, by their keys. wrong: gets the reason for each that did not run"""
        result = {}
        for run in measure(calls, self.device) if calls else ():
            if run.failed:
                wrong[run.call.key] = f"it does not run by itself: {run.failed}"
            else:
                result[run.call.key] = Found(run.nbytes, run.results, MEASURED)
        if result and self._file is not None:
            values = {key: (found.nbytes, found.results) for key, found in result.items()}
            self._known.update(values)
            kept.add(self._file, values)
        return result

    def _why_not(self, call: Call, limit: int) -> str:
        """Why the call is not measured; empty if it can be."""
        if self.absent or call.impossible:
            return self.absent or call.impossible
        results = self._shapes(call)
        if results is None:
            return "PyTorch does not tell its results' shapes"
        takes = sum(form.nbytes for form in call.forms) + sum(results) + (self._table(call) or 0)
        return f"it takes {text(takes)}, and {text(limit)} may be taken to measure it" if takes > limit else ""

    def _by_table(self, call: Call, why: str) -> Found:
        results = self._shapes(call)
        nbytes = None if results is None else self._table(call)
        return Found(nbytes or 0, results or (), UNKNOWN if nbytes is None else TABLE, why)

    def _shapes(self, call: Call) -> tuple[int, ...] | None:
        """The bytes of each result; None where PyTorch does not tell them."""
        try:
            return self._results(call)
        except Exception:  # of whatever kind an operator raises without numbers
            return None


def by_origin(found: Iterable[Found]) -> dict[str, tuple[int, int]]:
    """How many of these are of each origin, and the sum of their bytes."""
    result = {origin: (0, 0) for origin in ORIGINS}
    for one in found:
        count, nbytes = result[one.origin]
        result[one.origin] = count + 1, nbytes + one.nbytes
    return result


def _absent(device: str) -> str:
    """Why nothing can be measured on this device; empty if it can."""
    import torch

    if device == "cpu":
        return ""
    number = int(device.partition(":")[2] or 0)
    if torch.cuda.is_available() and number < torch.cuda.device_count():
        return ""
    return f"this machine has no {device}"
