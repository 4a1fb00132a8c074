"""A step of a PyTorch module, run and measured in one way for all benchmarks of `minidnn.torch`.

Bytes are those that PyTorch's allocator has given out, above those at the step's start (minidnn/torch/memory.py).
What the caller owns is there before: parameters, buffers, the batch.
"""

from __future__ import annotations

import gc
import hashlib
import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from typing import Any

import torch

from benchmarks import machine
from benchmarks.gaps import save
from benchmarks.gpu_check.journal import commit
from minidnn.memory.policies.shared import kept
from minidnn.report import table
from minidnn.torch.memory import followed
from tests.torch.nets.case import Case

KIB, MIB = 1 << 10, 1 << 20
SEED = 7
Row = dict[str, Any]


def digest(value: torch.Tensor | None) -> str:
    if value is None:
        return "none"
    return hashlib.sha256(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()).hexdigest()


@dataclass(frozen=True)
class End:
    """What steps leave, as digests: the losses, the gradient of each parameter, each buffer, the generator's state."""

    losses: tuple[str, ...]
    gradients: Mapping[str, str]
    buffers: Mapping[str, str]
    generator: str

    def unequal(self, other: End) -> list[str]:
        """What differs."""
        parts = [] if self.losses == other.losses else ["loss"]
        for what in ("gradients", "buffers"):
            ours, theirs = getattr(self, what), getattr(other, what)
            if differ := [name for name in theirs if ours.get(name) != theirs[name]]:
                parts.append(f"{len(differ)} of {len(theirs)} {what}: {differ[0]}")
        return parts if self.generator == other.generator else [*parts, "generator"]


class Side:
    """A copy of a case's module, and what computes its loss: eager mode, unless `call` is set."""

    def __init__(self, case: Case) -> None:
        self.case, self.module = case, deepcopy(case.module)
        self.call: Callable[..., Any] = lambda *args: case.eager(self.module)

    def begin_again(self) -> None:
        """Have the values of the case's module, and no gradients."""
        self.module.zero_grad(set_to_none=True)
        self.module.load_state_dict(self.case.module.state_dict())

    def step(self) -> torch.Tensor:
        self.module.zero_grad(set_to_none=True)
        loss: torch.Tensor = self.call(*self.case.args)
        loss.backward()
        return loss.detach()

    def end(self, steps: int = 2) -> End:
        """Of some steps from one seed and the first weights on."""
        self.begin_again()
        torch.manual_seed(SEED)
        losses = tuple(digest(self.step()) for _ in range(steps))
        gradients = {name: digest(p.grad) for name, p in self.module.named_parameters()}
        buffers = {name: digest(b) for name, b in self.module.named_buffers()}
        return End(losses, gradients, buffers, digest(torch.get_rng_state()))

    def peak(self) -> int:
        """Bytes of a step that is not the first."""
        self.module.zero_grad(set_to_none=True)
        gc.collect()
        with followed() as memory:
            self.step()
            return memory.peak

    def seconds(self) -> float:
        begin = time.perf_counter()
        self.step()
        return time.perf_counter() - begin


def in_turns(sides: Sequence[Side], rounds: int) -> list[float]:
    """The median seconds of a step of each side, which run in turns."""
    times = [[side.seconds() for side in sides] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


# ---- as a command


def parser(doc: str | None) -> ArgumentParser:
    kept.KEEPS = False  # a plan from the cache would take no time
    result = ArgumentParser(description=(doc or "").splitlines()[0])
    result.add_argument("--json", action="store_true", help="print one JSON document")
    result.add_argument("--save", action="store_true", help="write the results to benchmarks/results/")
    return result


def report(
    name: str,
    headings: Sequence[str],
    lines: Sequence[Sequence[str]],
    notes: Sequence[str],
    rows: Sequence[Row],
    asked: Namespace,
) -> None:
    """Print and keep what was asked for."""
    document: Row = {
        "rows": list(rows), "torch": torch.__version__, "threads": torch.get_num_threads(), "notes": list(notes),
        "machine": machine.described(), "date": date.today().isoformat(), "commit": commit(),
    }  # fmt: skip
    m = document["machine"]
    cores = f"{m['cpu']}, {m['cores']} cores, {document['threads']} threads"
    about = f"{cores}, PyTorch {torch.__version__}, {document['date']}."
    if asked.json:
        table.dump(document)
    else:
        table.plain(headings, lines)
        print("\n".join([*notes, about]))
    if asked.save:
        save(name, headings, lines, [*notes, about], document)


def mib(nbytes: float | None) -> str:
    return "–" if nbytes is None else f"{nbytes / MIB:.2f}"
