"""(e) Nets that need more than a budget: each policy's seconds over those of liveness without a budget, beside what
PyTorch does in as much memory: as it is, with torch.utils.checkpoint, with save_on_cpu; over PyTorch's own without one.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.gpu_check.measure import RATE, TRAIN, Loaded, batch_of, costs_of
from benchmarks.gpu_check.run import Run
from minidnn.memory.arrange import BudgetError
from minidnn.session import programs

POLICIES = ("vdnn_dyn", "vdnn_conv:m", "vdnn_all:m", "liveness:m", "baseline:m")
UNLIMITED = "liveness:p"


def item(run: Run) -> None:
    for form in run.place.formats:
        for name, batch in run.place.tight_nets:
            Tight(run, name, batch, f"{name}, {batch}, {form}").cases()


class Tight:
    def __init__(self, run: Run, name: str, batch: int, title: str) -> None:
        self.run, self.title, self.budget = run, title, run.place.tight
        self.net = run.place.net(name, batch)
        self.programs = list(programs(self.net, TRAIN, ("TRAIN",)).values())
        self.needs = 2.0 if run.place.small else 10.0
        self.batch: Any = None
        self.trainer: Any = None

    def cases(self) -> None:
        case = self.run.case
        free = case(f"{self.title}: {UNLIMITED}, no budget", lambda: self.ours(UNLIMITED, None, None), self.needs)
        base = free and free.get("seconds")
        for policy in POLICIES:
            name = f"{self.title}: {policy}"
            case(name, lambda p=policy: self.ours(p, self.budget, base), self.needs)
        try:
            import torch  # noqa: F401
        except ImportError:
            return
        free = case(f"{self.title}: PyTorch, no budget", lambda: self.theirs("eager", None, None), self.needs)
        base = free and free.get("seconds")
        for mode in ("checkpoint", "save_on_cpu", "eager"):
            name = f"{self.title}: PyTorch, {mode}"
            case(name, lambda m=mode: self.theirs(m, self.budget, base), self.needs)

    def ours(self, policy: str, budget: int | None, base: float | None) -> dict[str, Any]:
        device = self.run.place.device()
        costs = costs_of(self.run, device, self.programs)
        try:
            with Loaded(device, self.net, policy, costs, self.batch, budget) as loaded:
                self.batch = loaded.batch
                seconds = self._timed(loaded)
                return {
                    "seconds": seconds, "over_unlimited": base and seconds / base,
                    "bytes": loaded.arrangement.arena, "host_bytes": loaded.arrangement.host,
                }  # fmt: skip
        except (BudgetError, MemoryError) as error:
            return {"why": f"{error}"[:400]}

    def theirs(self, mode: str, budget: int | None, base: float | None) -> dict[str, Any]:
        import torch

        from benchmarks.gpu_check.peer import Peer, Trainer, forget, settle

        settle(True)
        cuda = self.run.place.torch == "cuda"
        if cuda:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, (budget or total) / total))
        self.batch = self.batch or batch_of(self.programs[0])
        graph = self.net.graph("TRAIN")
        weights = {
            f"{node.name}/{p.name}": values[f"{node.name}.{p.name}"].reshape(p.blob_shape or p.shape)
            for values in [self.net.initial(1)]
            for node in graph.layers
            for p in node.parameters
        }
        trainer = None
        try:
            peer = Peer(graph, weights, self.run.place.torch)
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
