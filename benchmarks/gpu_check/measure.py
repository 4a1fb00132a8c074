"""Seconds of every (op, algorithm) on this card, each run alone; and a net under a policy, loaded to be timed.

Measurements are kept in the machine's temporary folder, so that items that need the same ops share them. They are
copied to the results, and the next run begins with those that are found there.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from types import TracebackType

import numpy as np

from benchmarks.gpu_check.journal import LATELY, digest, whole
from benchmarks.gpu_check.place import RAM
from benchmarks.gpu_check.run import Run
from benchmarks.nets import TRAIN, batch_of
from minidnn.backends.cuda.device import OF_CUDNN, CudaDevice
from minidnn.costs import Costs, Measurements, measurements
from minidnn.files import cache
from minidnn.measuring.link import link
from minidnn.measuring.ops import measure
from minidnn.memory.schedule import Compute, Schedule
from minidnn.nets.net import Net
from minidnn.program import Program, Tensor
from minidnn.training.session import Session

WARM = 3  # steps: one not captured, one captured, one replayed
COPIED = 256 << 20  # bytes of the copies that are timed
BACKEND = ("minidnn/backends/cuda/*.py", "minidnn/backends/cuda/kernels/*")  # whose kernels are timed


def costs_of(run: Run, device: CudaDevice, programs: Sequence[Program]) -> Costs:
    """Costs of every op of these programs by every algorithm; those that are not known yet are measured.

    Raises TimeoutError near the item's end; the measurements so far are saved for the next time."""
    known, kept = known_costs(run, device)
    before, began = len(known.seconds), time.time()

    def tell(done: int, of: int, name: str) -> None:
        if run.left() < 1:
            raise TimeoutError(f"{done} of {of} measured, and the item's time is over")

    copies = partial(link, nbytes=min(run.place.link_bytes, COPIED), beside=run.place.beside)
    try:
        return measure(device, programs, known, tell=tell, copies=copies)
    finally:
        if known.path.exists():
            content = {"backend": digest(BACKEND), "time": time.time(), "measured": json.loads(cache.read(known.path))}
            whole(kept, json.dumps(content, indent=1) + "\n")
        if count := len(known.seconds) - before:
            free = device.api.free_memory()
            run.say(f"measured {count} (op, algorithm) in {time.time() - began:.1f} s; then {free} bytes are free")


def known_costs(run: Run, device: CudaDevice) -> tuple[Measurements, Path]:
    """What is known of this card, and the file among the results that keeps it for the next run and for other machines.

    At first it is what a former run left there, also of other code. Our own kernels count only if the backend is still
    the same; and the link only for a few hours, since the next card may be in another machine."""
    folder = Path(tempfile.gettempdir()) / f"gpu_check-{digest(BACKEND)}"
    known = measurements(device, folder)
    kept = run.folder / f"costs-{known.path.stem}.json"
    if known.problem is None and not known.path.exists() and kept.exists():
        before = json.loads(kept.read_text())
        cache.write(known.path, json.dumps(before["measured"]).encode())
        known = measurements(device, folder)
        if before["backend"] != digest(BACKEND):
            known.seconds = {k: s for k, s in known.seconds.items() if k.partition(" ")[0] in OF_CUDNN}
        if time.time() - before["time"] > 3600 * LATELY:
            known.bandwidth_out = 0.0
    if known.problem:
        run.say(known.problem)
    return known, kept


def summed(schedule: Schedule, costs: Costs) -> float:
    """The sum of the seconds of all ops of a schedule."""
    return sum(costs.seconds(x.op, x.algorithm) for x in schedule.instructions if isinstance(x, Compute))


class Loaded:
    """A net loaded under a policy, with its batch on the host, after a few steps.

    The batch stays the same, so only steps are timed. Each step copies the batch to the card."""

    def __init__(
        self,
        device: CudaDevice,
        net: Net,
        policy: str,
        costs: Costs,
        batch: dict[Tensor, np.ndarray] | None = None,
        budget: int | None = None,
        warm: int = WARM,
        format: str = "float32",
        graphs: bool = True,
    ) -> None:
        device.graphs = graphs
        self.costs, self.before = costs, device.api.free_memory()
        self.session = Session(
            net,
            TRAIN,
            ("TRAIN",),
            device=device,
            policy=policy,
            budget=budget,
            costs=costs,
            seed=1,
            format=format,
            ram=RAM,
        )
        self.taken = self.before - device.api.free_memory()
        self.arrangement = self.session.arrangement
        self.schedule = self.arrangement.schedules["TRAIN"]
        self.batch = batch or batch_of(self.schedule.program)
        try:
            for t, value in self.batch.items():
                self.session.machine.write(t, value, "TRAIN")
            self.losses = []
            for _ in range(warm):
                self.session.step("TRAIN")
                self.losses.append(self.session.objective("TRAIN"))
        except BaseException:
            self.close()
            raise

    def seconds(self, count: int) -> float:
        """Seconds of one step: the mean of `count` steps, run as the solver trains. Each step's loss is read; the rest
        of the step is not waited for."""
        began = perf_counter()
        for _ in range(count):
            self.session.launch("TRAIN")
            self.session.objective("TRAIN")
        self.session.machine.settle()
        return (perf_counter() - began) / count

    def both_ways(self, count: int = 3) -> tuple[list[float], list[float]]:
        """The losses of a few steps, each waited for; and those of the same steps launched as the solver does, which
        reads a loss while the rest of its step still runs."""
        machine, found = self.session.machine, []
        program = self.schedule.program
        before = {t: machine.get(t) for t in (*program.persistent, *program.host_resident)}
        for run in (self.session.step, self.session.launch):
            for t, value in before.items():
                machine.set(t, value)
            losses: list[float] = []
            for _ in range(count):
                run("TRAIN")
                losses.append(self.session.objective("TRAIN"))
            machine.settle()
            found.append(losses)
        return found[0], found[1]

    def close(self) -> None:
        self.session.close()
        self.session.machine.persistent.clear()
        gc.collect()

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
