"""(e) Nets that need more than a budget: each policy's seconds over those of liveness without a budget.

For comparison, PyTorch's seconds in as much memory over its own without a limit: in eager mode, with
torch.utils.checkpoint, and with save_on_cpu. The most promising policies run first, then PyTorch, then the other
policies. Which are promising depends on the link: policies that copy hide their copies only if it moves what must leave
before the forward pass is over. If it does not, policies that recompute come first.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.gpu_check.measure import Loaded, costs_of
from benchmarks.gpu_check.run import Run
from benchmarks.nets import RATE, TRAIN, batch_of
from minidnn.formats import usable
from minidnn.memory.budget import BudgetError
from minidnn.programs.build import programs

COPYING = ("vdnn_dyn", "superneurons", "accudnn", "vdnn_conv", "vdnn_all", "layrub", "vdnn_pp")
RECOMPUTING = ("sqrt_n", "recompute_cheap", "recompute_all")
FORWARD = 1 / 3  # the forward pass, as a part of a step
LIKELIEST = 5
UNLIMITED = "liveness:p"


def item(run: Run) -> None:
    for form in run.place.formats[-1 if run.place.small else 0 :]:
        for name, batch in run.place.tight_nets:
            Tight(run, name, batch, form).cases()


def first(free: dict[str, Any], budget: int) -> tuple[str, ...]:
    """The policies to run first. free: the values of a run without a budget, {} if there are none.

    `liveness` comes before all: where it keeps the budget, it costs nothing."""
    slow = not free.get("seconds") or free["bytes"] - budget > free["link_out"] * FORWARD * free["seconds"]
    return ("liveness", *RECOMPUTING, *COPYING) if slow else ("liveness", *COPYING, *RECOMPUTING)


class Tight:
    def __init__(self, run: Run, name: str, batch: int, form: str) -> None:
        self.run, self.title, self.budget, self.form = run, f"{name}, {batch}, {form}", run.place.tight, usable(form)
        self.net = run.place.net(name, batch)
        fuses = run.place.device().fuses
        self.programs = list(programs(self.net, TRAIN, ("TRAIN",), format=form, fuses=fuses).values())
        self.needs = 2.0 if run.place.small else 8.0
        self.batch: Any = None

    def cases(self) -> None:
        free = self.run.case(f"{self.title}: {UNLIMITED}, no budget", self._ours(UNLIMITED, None, None), self.needs)
        base = free and free.get("seconds")
        policies = self.run.place.policies(first(free or {}, self.budget))
        for policy in policies[:LIKELIEST]:
            self.run.case(f"{self.title}: {policy}", self._ours(policy, self.budget, base), self.needs)
        self._peers()
        for policy in policies[LIKELIEST:]:
            self.run.case(f"{self.title}: {policy}", self._ours(policy, self.budget, base), self.needs)

    def _ours(self, policy: str, budget: int | None, base: float | None) -> Callable[[], dict[str, Any]]:
        return lambda: self.ours(policy, budget, base)

    def _peers(self) -> None:
        try:
            import torch  # noqa: F401
        except ImportError:
            return
        name = f"{self.title}: PyTorch, no budget"
        free = self.run.case(name, lambda: self.theirs("eager", None, None), self.needs)
        base = free and free.get("seconds")
        for mode in ("checkpoint", "save_on_cpu", "eager"):
            name = f"{self.title}: PyTorch, {mode}"
            self.run.case(name, lambda m=mode: self.theirs(m, self.budget, base), self.needs)

    def ours(self, policy: str, budget: int | None, base: float | None) -> dict[str, Any]:
        device = self.run.place.device()
        costs = costs_of(self.run, device, self.programs)
        try:
            with Loaded(device, self.net, policy, costs, self.batch, budget, format=self.form) as loaded:
                self.batch = loaded.batch
                seconds = self._timed(loaded)
                return {
                    "seconds": seconds, "over_unlimited": base and seconds / base, "link_out": costs.bandwidth_out,
                    "bytes": loaded.arrangement.arena, "host_bytes": loaded.arrangement.host,
                }  # fmt: skip
        except (BudgetError, MemoryError) as error:
            return {"why": f"{error}"[:400]}

    def theirs(self, mode: str, budget: int | None, base: float | None) -> dict[str, Any]:
        import torch

        from benchmarks.peer import Peer, Trainer, first_weights, forget

        self.run.place.settle(True)
        cuda = self.run.place.torch == "cuda"
        if cuda:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, (budget or total) / total))
        self.batch = self.batch or batch_of(self.programs[0])
        graph = self.net.graph("TRAIN")
        trainer = None
        try:
            peer = Peer(graph, first_weights(self.net), self.run.place.torch, format=self.form)
            peer.mode = mode
            trainer = Trainer(peer, {t.name: v for t, v in self.batch.items()}, TRAIN, RATE, warm=2)
            seconds = self._timed(trainer)
            memory = trainer.memory()
            return {
                "seconds": seconds, "over_unlimited": base and seconds / base, "losses": trainer.losses,
                "bytes": memory["torch_reserved_bytes"], **memory,
            }  # fmt: skip
        except torch.OutOfMemoryError as error:
            return {"why": f"{error}"[:400]}
        finally:
            peer = trainer = None
            forget()

    def _timed(self, runner: Any) -> float:
        one = runner.seconds(1)
        return median([one, *(runner.seconds(1) for _ in range(1 if self.run.place.small or one > 3 else 3))])
