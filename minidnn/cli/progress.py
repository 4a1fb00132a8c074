"""How training is shown: a progress bar on a terminal, Caffe's log lines everywhere else.

The lines have the form that Caffe's own tools (its `parse_log` script and others) look for, with glog's prefix.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from minidnn import sizes
from minidnn.report.table import rate
from minidnn.training.best import Best
from minidnn.training.card import beside_arena
from minidnn.training.events import Began, Ended, Event, Saved, Step, Tested
from minidnn.training.solver import Solver
from minidnn.visible import say, visible


class Lines:
    """Caffe's log lines for each event, made `visible`. A speed is the mean over the steps since the last line that
    gave one."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.steps = self.images = 0
        self.seconds = 0.0

    def __call__(self, event: Event) -> Iterator[str]:
        return map(visible, self._of(event))

    def _of(self, event: Event) -> Iterator[str]:
        if isinstance(event, Began):
            yield from heading(event, self.solver)
        elif isinstance(event, Step):
            self.steps, self.images = self.steps + 1, self.images + event.images
            self.seconds += event.seconds
            if is_displayed(event, self.solver):
                yield from self._step(event)
        elif isinstance(event, Tested):
            yield f"Iteration {event.iteration}, Testing net (#{event.number})"
            if event.loss is not None:
                yield f"Test loss: {event.loss:.6g}"
            yield from outputs("Test", event.outputs, self.solver, event.program)
        elif isinstance(event, Saved):
            if event.best:
                yield f"Best {event.best.output} so far: {event.best.value:.6g}"
            yield f"Snapshotting to {event.path}"
        elif isinstance(event, Ended):
            if line := beside_arena(self.solver.session.device):
                yield f"{line} after the last step"
            if event.best:
                yield from summary(event.best, event.spent)
            if line := late(event):
                yield line
            yield "Optimization stopped early." if event.interrupted else "Optimization Done."

    def _step(self, event: Step) -> Iterator[str]:
        samples = self.solver.session.counted("TRAIN")
        each = self.images * samples.each / self.seconds
        speed = f"{rate(self.steps / self.seconds)} iter/s, {rate(each)} {samples.name}/s"
        self.steps, self.images, self.seconds = 0, 0, 0.0
        yield from (f"    {what}: {value:.6g}" for what, value in event.debug.items())
        yield f"Iteration {event.iteration} ({speed}), loss = {event.smoothed:.6g}"
        yield from outputs("Train", event.outputs, self.solver, "TRAIN")
        yield f"Iteration {event.iteration}, lr = {event.rate:.6g}"


LATE = 0.1  # of a run: what ranks wait for one of them before it is named


def late(event: Ended) -> str | None:
    """The rank that others waited for much longer than it for them; None if there is none."""
    if not event.waits or max(event.waits) - min(event.waits) < LATE * event.seconds:
        return None
    rank = event.waits.index(min(event.waits))
    return (
        f"Rank {rank} was late: other ranks waited up to {max(event.waits):.3g} s of {event.seconds:.3g} s, and rank "
        f"{rank} waited {min(event.waits):.3g} s"
    )


def heading(event: Began, solver: Solver) -> Iterator[str]:
    """Lines that say how the net is trained: device, policy, bytes, seed, and the weights that it begins with."""
    arrangement, device = solver.session.arrangement, solver.session.device
    yield f"Solving {solver.net.name or 'net'} from iteration {event.iteration} to {event.max_iter}, seed {event.seed}"
    yield f"Device {device.name}: {device.description}"
    if solver.session.setting.format != "float32":
        yield f"Numbers: {solver.session.setting.format}, weights float32"
    yield f"Memory: {memory(solver)}, policy {arrangement.policy}"
    yield f"RAM: about {solver.session.ram}"
    if line := beside_arena(device):
        yield f"{line} before the first step"
    if event.resumed:
        yield f"Resuming from {event.resumed}"
    if event.weights:
        yield f"Weights: {len(event.weights.taken)} blobs taken"
        for what, names in (
            ("not in the file, filled anew", event.weights.missing),
            ("not used", event.weights.unused),
        ):
            if names:
                yield f"Weights {what}: {', '.join(names)}"
    yield from event.notes


def summary(best: Best, spent: bool) -> Iterator[str]:
    """Lines about the best test of a run that has ended; `spent`: patience has ended it."""
    if spent:
        yield f"No better {best.output} in {best.misses} tests"
    yield f"Best {best.output}: {best.value:.6g}, after iteration {best.iteration}"


def memory(solver: Solver) -> str:
    """The arena's bytes, the device budget if there is one, and the bytes on the host and on a disk, in words."""
    a = solver.session.arrangement
    budget = f" of {sizes.text(a.budget)}" if a.budget else ""
    behind = f", {sizes.text(a.store)} behind a ring of {sizes.text(a.ring)} in it" if a.store else ""
    behind += f", {sizes.text(a.on_disk)} on the disk ({sizes.text(a.undo)} of it for undo)" if a.disk else ""
    return f"{sizes.text(a.arena)}{budget} on the device, {sizes.text(a.host)} on the host{behind}"


def outputs(which: str, values: Mapping[str, float], solver: Solver, program: str) -> Iterator[str]:
    """Caffe's log lines for the net's outputs, one each; the line of a loss shows its weight."""
    layers = solver.session.graphs[program].layers
    weights = {blob.name: node.layer.loss_weight(i) for node in layers for i, blob in enumerate(node.tops)}
    for i, (name, value) in enumerate(values.items()):
        weight = weights.get(name, 0.0)
        share = f" (* {weight:g} = {weight * value:.6g} loss)" if weight else ""
        yield f"    {which} net output #{i}: {name} = {value:.6g}{share}"


def is_displayed(event: Step, solver: Solver) -> bool:
    """Whether this iteration is shown: every `display`-th is (a solver field; 0: none)."""
    return bool(solver.parameters.display) and event.iteration % solver.parameters.display == 0


def glog(line: str) -> str:
    """The line with glog's prefix: level, date, time, process id, source file and line."""
    return f"I{datetime.now():%m%d %H:%M:%S.%f} {os.getpid()} solver.py:1] {line}"


class Log:
    """Prints log lines to a stream: a file or a pipe."""

    def __init__(self, solver: Solver, stream: Any) -> None:
        self.lines, self.stream = Lines(solver), stream

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.flush()

    def __call__(self, event: Event) -> None:
        for line in self.lines(event):
            say(glog(line), file=self.stream, flush=True)


class Bar:
    """A progress bar on a terminal, with loss, learning rate, samples per second and memory; log lines scroll above."""

    def __init__(self, solver: Solver, stream: Any) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.solver, self.lines, self.samples = solver, Lines(solver), solver.session.counted("TRAIN")
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"), TextColumn("lr {task.fields[rate]}"),
            TextColumn(f"{{task.fields[speed]}} {self.samples.name}/s"), TextColumn("{task.fields[memory]}"),
            TimeRemainingColumn(), TextColumn("left"), console=Console(file=stream),
        )  # fmt: skip
        self.task = self.progress.add_task(
            self._epoch(), total=solver.parameters.max_iter, completed=solver.iteration, loss="-", rate="-", speed="-",
            memory=sizes.text(solver.session.arrangement.arena),
        )  # fmt: skip
        self.images, self.seconds = 0.0, 0.0

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def _epoch(self) -> str:
        """The epoch that runs, of a run that counts them; else nothing."""
        epochs, length = self.solver.parameters.minidnn.epochs, self.solver.epoch
        return f"epoch {min(self.solver.iteration // length + 1, epochs)}/{epochs}" if epochs and length else ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Step):
            self.images, self.seconds = 0.95 * self.images + event.images, 0.95 * self.seconds + event.seconds
            self.progress.update(
                self.task, description=self._epoch(), completed=event.iteration + 1, loss=f"{event.smoothed:.4f}",
                rate=f"{event.rate:.3g}", speed=rate(self.images * self.samples.each / self.seconds),
            )  # fmt: skip
        for line in self.lines(event):
            self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


def watching(solver: Solver, quiet: bool) -> Log | Bar:
    """The display for standard output: a Bar if it is a terminal, else a Log.

    If `quiet`, it is a Log on standard error, because standard output carries a JSON document."""
    if quiet:
        return Log(solver, sys.stderr)
    return Bar(solver, sys.stdout) if sys.stdout.isatty() else Log(solver, sys.stdout)
