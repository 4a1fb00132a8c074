"""(t) Steps of PyTorch modules under `minidnn.torch`, on the card: what no imitation can show.

NET, BATCH, SHARE%      gradients and buffers with eager's bits, where eager mode repeats its own; the peak foreseen
                        and measured, and what PyTorch reserves; seconds over eager's; the part of the copies that is
                        hidden at least
NET, BATCH, ring        the same through a ring of pinned memory, and through a disk
NET, BATCH, graph       the same as two CUDA graphs
NET, BATCH, addresses   in a process of its own, with planned addresses: the bytes reserved are those planned

python3 -m benchmarks.gpu_check.steps gpt2 64 [--rehearse]      the last of these: one line of JSON
"""

from __future__ import annotations

import gc
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any

from benchmarks.gpu_check.journal import ROOT
from benchmarks.gpu_check.place import Place, Rehearsal
from benchmarks.gpu_check.run import Run, Wrong

SEED = 7
MARK = "steps: "
PART, KIB = 0.001, 64 << 10  # by which a measured peak may exceed the foreseen one, as a part or in bytes


def item(run: Run) -> None:
    if importlib.util.find_spec("torch") is None:
        return  # item d has reported that PyTorch is missing
    place = run.place
    for name, batch in place.torch_nets:
        made = Side(place, name, batch)
        for share in place.torch_shares:
            run.case(
                f"{name}, {batch}, {share}%", partial(made.under, budget=f"{share}%"), needs=0 if place.small else 5
            )
    name, batch = place.torch_nets[0]
    share, ring = f"{place.torch_shares[0]}%", place.torch_ring
    made = Side(place, name, batch)
    run.case(f"{name}, {batch}, ring", partial(made.under, budget=share, host_ring=ring))
    run.case(f"{name}, {batch}, disk", partial(made.under, budget=share, host_ring=ring, disk=str(run.folder)))
    run.case(f"{name}, {batch}, graph", partial(made.under, policy="liveness", cuda_graph=True))
    run.case(f"{name}, {batch}, addresses", lambda: child(run, name, batch), needs=0 if place.small else 10)


class Side:
    """A module on the card, what eager mode leaves of it, and steps of copies of it."""

    def __init__(self, place: Place, name: str, batch: int) -> None:
        import torch

        from tests.torch.nets import NETS

        self.place, self.torch = place, torch
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.manual_seed(SEED)
        case = NETS[name](batch)
        self.loss = case.loss
        self.module = case.module.train().to(place.torch)
        self.args = tuple(x.to(place.torch) for x in case.args)
        self._left: Any = None

    def eager(self, module: Any) -> Callable[..., Any]:
        return lambda *args: module(*args) if self.loss is None else self.loss(module(*args[:-1]), args[-1])

    def left(self, module: Any, call: Callable[..., Any], steps: int = 4) -> list[Any]:
        """What some steps leave. The last ones are replayed, if any are."""
        self.torch.manual_seed(SEED)
        result = []
        for _ in range(steps):
            module.zero_grad(set_to_none=True)
            loss = call(*self.args)
            loss.backward()
            result.append(loss.detach().clone())
        return [*result, *(p.grad.clone() for p in module.parameters() if p.grad is not None), *module.buffers()]

    @property
    def reference(self) -> tuple[list[Any], bool, float]:
        """What eager mode leaves, whether it does so twice, and its seconds of a step."""
        if self._left is None:
            once, again = deepcopy(self.module), deepcopy(self.module)
            left = self.left(once, self.eager(once))
            repeats = all(map(self.torch.equal, left, self.left(again, self.eager(again))))
            self._left = left, repeats, self.seconds(once, self.eager(once))
        result: tuple[list[Any], bool, float] = self._left
        return result

    def seconds(self, module: Any, call: Callable[..., Any]) -> float:
        """The median of some steps, with the wait for the card at the end of each."""
        taken = []
        for _ in range(2 if self.place.small else 12):
            module.zero_grad(set_to_none=True)
            self.wait()
            began = time.perf_counter()
            call(*self.args).backward()
            self.wait()
            taken.append(time.perf_counter() - began)
        return median(taken[1:])

    def wait(self) -> None:
        if not self.place.small:
            self.torch.cuda.synchronize()

    def under(self, **given: Any) -> dict[str, Any]:
        """Raises Wrong if a bit differs where eager's do not, or if the peak is above the foreseen one."""
        from minidnn.memory.budget import BudgetError

        try:
            return self._under(**given)
        except BudgetError as refused:
            return {"refused_budget": str(refused)}

    def _under(self, **given: Any) -> dict[str, Any]:
        from minidnn.program import nbytes
        from minidnn.torch.memory import followed
        from minidnn.torch.step import compile

        expected, repeats, eager_seconds = self.reference
        module = deepcopy(self.module)
        step = compile(module, loss=self.loss, **given)
        with self.place.torch_steps(step):
            left = self.left(module, step)
            unequal = sum(not self.torch.equal(a, b) for a, b in zip(left, expected, strict=True))
            del left
            planned = next(iter(step.plans.values()))
            own = nbytes(planned.capture.program.persistent)
            module.zero_grad(set_to_none=True)
            gc.collect()
            with followed(self.place.torch) as memory:
                step(*self.args).backward()
                self.wait()
                peak = memory.peak
            values = {
                "foreseen_bytes": planned.peak - own, "measured_bytes": peak, "owned_bytes": own, "unequal": unequal,
                "eager_repeats": repeats, "why_no_graph": planned.why_no_graph, "eager_seconds": eager_seconds,
            }  # fmt: skip
            values["seconds"] = self.seconds(module, step)
        values["over_eager"] = values["seconds"] / eager_seconds
        values |= self.copied(planned.schedule, values["seconds"] - eager_seconds) | self.reserved()
        if unequal and repeats:
            raise Wrong(f"{unequal} losses, gradients and buffers differ from eager's", values)
        graph = not planned.why_no_graph
        if not graph and peak > values["foreseen_bytes"] + max(KIB, PART * values["foreseen_bytes"]):
            raise Wrong("the peak is above the foreseen one", values)
        if given.get("cuda_graph") and not graph:
            raise Wrong(f"not captured: {planned.why_no_graph}", values)
        return values

    def copied(self, schedule: Any, longer: float) -> dict[str, Any]:
        """Bytes that a step copies, their seconds on the link alone, and the part of these that compute hides at least:
        all that a step takes longer than eager mode's counts as copies, re-runs too."""
        from minidnn.memory.schedule import Offload, Prefetch

        out = sum(x.residency.tensor.nbytes for x in schedule.instructions if isinstance(x, Offload))
        back = sum(x.residency.tensor.nbytes for x in schedule.instructions if isinstance(x, Prefetch))
        if not out or self.place.small:
            return {"out_bytes": out, "in_bytes": back}
        alone = (out + back) / self.rate()
        return {
            "out_bytes": out,
            "in_bytes": back,
            "copies_seconds": alone,
            "hidden": 1 - min(1.0, max(0.0, longer) / alone),
        }

    def rate(self) -> float:
        """Bytes per second from pinned memory to the card."""
        torch = self.torch
        here = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
        there = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        for _ in range(2):
            torch.cuda.synchronize()
            began = time.perf_counter()
            there.copy_(here, non_blocking=True)
            torch.cuda.synchronize()
        return (1 << 28) / (time.perf_counter() - began)

    def reserved(self) -> dict[str, Any]:
        if self.place.small:
            return {}
        result = {"reserved_bytes": self.torch.cuda.max_memory_reserved()}
        self.torch.cuda.empty_cache()
        self.torch.cuda.reset_peak_memory_stats()
        return result


# ---- planned addresses, which must be asked for before anything else uses CUDA


def child(run: Run, name: str, batch: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu_check.steps", name, str(batch), *["--rehearse"] * run.place.small]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=run.within(60.0))
    except subprocess.TimeoutExpired as late:
        raise TimeoutError(f"no end in {late.timeout:.0f} s") from None
    line = next((x for x in done.stdout.splitlines() if x.startswith(MARK)), None)
    if done.returncode or line is None:
        raise Wrong(f"exit code {done.returncode}: {done.stderr[-600:]}", {"output": done.stderr[-1500:]})
    found: dict[str, Any] = json.loads(line.removeprefix(MARK))
    if found["reserved_bytes"] > found["foreseen_reserved_bytes"]:
        raise Wrong("more is reserved than planned", found)
    return found


def main(name: str, batch: int, place: Place) -> dict[str, Any]:
    """Bytes that steps reserve with planned addresses, foreseen and found, above those at their start."""
    from minidnn.torch.step import compile

    library = place.torch_addresses()
    side = Side(place, name, batch)
    step = compile(side.module, loss=side.loss, budget=f"{place.torch_shares[0]}%")
    with place.torch_steps(step, library):
        side.left(side.module, step, 1)  # the first, in which libraries take what they take
        side.module.zero_grad(set_to_none=True)
        side.wait()
        library.drop_kept()
        before = library.bytes().reserved
        for _ in range(4):
            side.module.zero_grad(set_to_none=True)
            step(*side.args).backward()
        side.wait()
        planned = next(iter(step.plans.values()))
        seconds = side.seconds(side.module, step)
        after = library.bytes().reserved
    return {"foreseen_reserved_bytes": planned.reserved, "reserved_bytes": after - before, "seconds": seconds,
            "arena_bytes": planned.repeated.addresses.arena, "recordings": planned.repeated.recordings,
            "live_peak_bytes": planned.peak}  # fmt: skip


if __name__ == "__main__":
    asked = main(sys.argv[1], int(sys.argv[2]), Rehearsal() if "--rehearse" in sys.argv else Place())
    print(MARK + json.dumps(asked))
