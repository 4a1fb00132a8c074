"""Seconds of every (op, algorithm) on this card, each run alone; and a net under a policy, loaded to be timed.

Measurements are kept in the machine's temporary folder, so that items that need the same ops share them.
"""

from __future__ import annotations

import gc
import math
import shutil
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.gpu_check.journal import code
from benchmarks.gpu_check.link import Link
from benchmarks.gpu_check.run import Run
from benchmarks.nets import TRAIN, batch_of
from minidnn.backends.cuda.device import CudaDevice
from minidnn.costs import Costs, Measurements, key, measured, measurements
from minidnn.formats import FORMATS, floating, usable
from minidnn.measuring.ops import timed
from minidnn.memory.schedule import Compute, Schedule, aligned
from minidnn.nets.net import Net
from minidnn.program import Algorithm, Op, Program, Tensor
from minidnn.training.session import Session

TILE = 16 << 20  # values of noise, with which buffers are filled repeatedly
WARM = 3  # steps: one not captured, one captured, one replayed


def costs_of(run: Run, device: CudaDevice, programs: Sequence[Program]) -> Costs:
    """Costs of every op of these programs by every algorithm; those that are not known yet are measured.

    Raises TimeoutError near the item's end; the measurements so far are saved for the next time."""
    form = usable(next((t.dtype for program in programs for t in program.inputs if t.dtype in FORMATS), "float32"))
    known = measurements(device, Path(tempfile.gettempdir()) / f"gpu_check-{code()}")
    if not known.bandwidth_out:
        link = Link(device, min(run.place.link_bytes, 256 << 20))
        try:
            rates = link.alone()
            known.bandwidth_out, known.bandwidth_in = rates["out_bytes_per_second"], rates["in_bytes_per_second"]
            known.latency = min(link.seconds(link._copy("in", 256)))
        finally:
            link.close()
    wanted: dict[str, tuple[Op, Algorithm]] = {}
    for program in programs:
        for op in program.ops:
            for algorithm in device.algorithms(op):
                k = key(op, algorithm)
                if k not in known.seconds:
                    wanted.setdefault(k, (op, algorithm))
    try:
        if wanted:
            _measure(run, device, wanted, known, form)
    finally:
        known.save()
        shutil.copyfile(known.path, run.folder / "costs.json")  # for use on machines without the card, too
    return measured(device, known)


def _measure(
    run: Run, device: CudaDevice, wanted: dict[str, tuple[Op, Algorithm]], known: Measurements, form: str
) -> None:
    began = time.time()
    room = max(_room(op, algorithm) for op, algorithm in wanted.values())
    bench = device.runtime(room, 0, 0.0, 0)
    best: dict[tuple, float] = {}
    try:
        values = _noise(run.place.small, form)
        noise = device.api.allocate_host(values.nbytes)  # page-locked, since tens of gigabytes are copied from it
        noise[:] = values
        for at in range(0, room, noise.nbytes):
            part = bench.arena[at : at + noise.nbytes]
            bench.write(part, noise[: part.nbytes])
        device.api.release_host(noise)
        for k, (op, algorithm) in wanted.items():
            if run.left() < 1:
                raise TimeoutError(f"{len(known.seconds)} of {len(wanted)} measured, and the item's time is over")
            same = (op.kind, op.attrs, tuple(t.shape for t in op.tensors))
            seconds = alone(device, bench, op, algorithm, best.get(same, math.inf))
            known.seconds[k] = seconds
            best[same] = min(best.get(same, seconds), seconds)
    except TimeoutError:
        raise
    except Exception:
        bench.broken = True
        raise
    finally:
        bench.close()
    run.say(f"measured {len(wanted)} (op, algorithm) in {time.time() - began:.1f} s")


def _room(op: Op, algorithm: Algorithm) -> int:
    return sum(aligned(t.nbytes) for t in op.tensors) + algorithm.workspace


@cache
def _noise(small: bool, form: str) -> np.ndarray:
    """Bytes of ordinary numbers in that format. Two such numbers of 16 bits are an ordinary float32, too."""
    values = np.random.default_rng(0).standard_normal(1 << 16 if small else TILE, np.float32)
    return np.abs(values + 0.1, out=values).astype(form).view(np.uint8)  # variances must be positive


def alone(device: CudaDevice, bench: Any, op: Op, algorithm: Algorithm, best: float) -> float:
    """Seconds of one run of an op. Its tensors lie one after another in `bench`, which is filled with noise."""
    at, views = 0, {}
    for t in op.tensors:
        views[t] = bench.arena[at : at + t.nbytes]
        at += aligned(t.nbytes)
        if not floating(t.dtype):
            bench.fill(views[t], 0)()  # labels, indices, iterations: valid for every op
    call = device.prepare(op, algorithm, views, bench.arena[at : at + algorithm.workspace])
    return timed(bench, call, best, repeats=3)


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
    ) -> None:
        device.graphs = True
        self.costs, self.before = costs, device.api.free_memory()
        self.session = Session(
            net, TRAIN, ("TRAIN",), device=device, policy=policy, budget=budget, costs=costs, seed=1, format=format
        )
        self.taken = self.before - device.api.free_memory()
        self.arrangement = self.session.arrangement
        self.schedule = self.arrangement.schedules["TRAIN"]
        self.batch = batch or batch_of(self.schedule.program)
        try:
            for t, value in self.batch.items():
                self.session.machine.write(t, value)
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

    def close(self) -> None:
        self.session.close()
        self.session.machine.homes.clear()
        gc.collect()

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
