"""(g) Bytes per second between device and page-locked host memory: out, in, both at once, and each during compute.

Also: how much slower compute is then; whether compute and both copies still run at once in a replayed graph; and the
seconds of small copies. All are medians, timed by events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.gpu_check.run import Run, Wrong
from minidnn.backends.cuda.api import Direction
from minidnn.backends.cuda.device import CudaDevice
from minidnn.measuring.link import computing, first_that_runs, workspace
from minidnn.program import Op
from minidnn.programs.autodiff import differentiate

REPEATS = 5
HIDDEN = 0.5  # the least part of the copies' time that must run during compute
SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 27)


def item(run: Run) -> None:
    device = run.place.device()
    link = Link(device, run.place.link_bytes)
    try:
        run.case("alone", link.alone)
        run.case("both at once", link.both)
        net = run.place.net("tests/lenet") if run.place.small else run.place.net("vgg16", 32)
        convolutions = [op for op in differentiate(net.graph("TRAIN")).ops if op.kind == "convolution.forward"]
        largest = max(convolutions, key=lambda op: op.flops)
        run.case("beside compute", lambda: link.beside(device, largest))
        run.case("in a replayed graph", lambda: link.replayed(device, largest, run.place.small))
        run.case("by size", link.sizes)
    finally:
        link.close()
    for op in run.place.beside:
        run.case(f"beside {op.kind}", partial(beside, device, op, run.place.link_bytes))


def beside(device: CudaDevice, op: Op, nbytes: int) -> dict[str, Any]:
    """The rates of copies while `op` runs, as `minidnn profile` measures them (measuring/link.py)."""
    found = computing(device, op, nbytes)
    return {
        "op": op.kind, "bound_by": found.bound_by, "out_bytes_per_second": found.out,
        "in_bytes_per_second": found.back, "compute_slowdown_both": found.slower,
    }  # fmt: skip


class Link:
    def __init__(self, device: CudaDevice, nbytes: int) -> None:
        self.api, self.nbytes = device.api, nbytes
        self.compute = device.compute
        self.there = [self.api.allocate(nbytes) for _ in range(2)]
        self.here = [self.api.allocate_host(nbytes) for _ in range(2)]
        for page in self.here:
            page.fill(1)
        self.streams = [self.api.stream() for _ in range(2)]
        for address in self.there:
            self.api.fill(address, 1, nbytes, self.compute)
        self.api.synchronize(self.compute)

    def close(self) -> None:
        for address in self.there:
            self.api.release(address)
        for page in self.here:
            self.api.release_host(page)
        for stream in self.streams:
            self.api.release_stream(stream)

    def _copy(self, direction: Direction, nbytes: int | None = None) -> tuple[int, Callable[[], object]]:
        """(the copy's stream, a function that enqueues the copy)"""
        nbytes, k = nbytes or self.nbytes, 0 if direction == "out" else 1
        there, here = self.there[k], self.here[k].__array_interface__["data"][0]
        to, source = (here, there) if direction == "out" else (there, here)
        return self.streams[k], lambda: self.api.copy(to, source, nbytes, direction, self.streams[k])

    def seconds(self, *works: tuple[int, Callable[[], object]], repeats: int = REPEATS) -> list[float]:
        """Median seconds of each work (stream, function that enqueues it), all begun at the same time."""
        taken: list[list[float]] = []
        for k in range(repeats + 1):
            begin = self.api.event(timed=True)
            ends = [self.api.event(timed=True) for _ in works]
            self.api.record(begin, works[0][0])
            for stream, _ in works[1:]:
                self.api.wait(stream, begin)
            for (stream, call), end in zip(works, ends, strict=True):
                call()
                self.api.record(end, stream)
            for stream, _ in works:
                self.api.synchronize(stream)
            if k:  # the first round warms up
                taken.append([self.api.elapsed(begin, end) for end in ends])
            for event in (begin, *ends):
                self.api.release_event(event)
        return [max(median(column), 1e-9) for column in zip(*taken, strict=True)]

    def alone(self) -> dict[str, Any]:
        (out,), (back,) = self.seconds(self._copy("out")), self.seconds(self._copy("in"))
        return {
            "bytes": self.nbytes,
            "out_bytes_per_second": self.nbytes / out,
            "in_bytes_per_second": self.nbytes / back,
        }

    def both(self) -> dict[str, Any]:
        out, back = self.seconds(self._copy("out"), self._copy("in"))
        return {
            "out_bytes_per_second": self.nbytes / out, "in_bytes_per_second": self.nbytes / back,
            "together_bytes_per_second": 2 * self.nbytes / max(out, back),
        }  # fmt: skip

    @contextlib.contextmanager
    def _computing(self, device: CudaDevice, op: Op) -> Iterator[tuple[str, int, Callable[[], None]]]:
        """(the algorithm of a convolution, how many runs outlast the copies, a function that enqueues these runs)"""
        sizes = [-(-t.nbytes // 256) * 256 for t in op.tensors]
        bench = device.runtime(sum(sizes) + workspace(device, op), 0, 0.0, 0)
        try:
            at, views = 0, {}
            for t, size in zip(op.tensors, sizes, strict=True):
                views[t] = bench.arena[at : at + t.nbytes]
                at += size
            bench.fill(bench.arena, 0x3D)()  # 0x3d3d3d3d is 0.046 in float32; zeros could be quicker to multiply
            algorithm, call = first_that_runs(device, bench, op, views, at)
            (one,) = self.seconds((self.compute, call))
            copying = max(*self.seconds(self._copy("out"), self._copy("in")))
            most = 2000 if self.nbytes > 1 << 20 else 3  # in a rehearsal times do not matter
            count = int(np.clip(2 * copying / one, 2, most))

            def many() -> None:
                for _ in range(count):
                    call()

            yield algorithm.name, count, many
        finally:
            bench.close()

    def beside(self, device: CudaDevice, op: Op) -> dict[str, Any]:
        """The rates of copies while a convolution is repeated for longer than they last, and how much it slows down."""
        with self._computing(device, op) as (algorithm, count, many):
            work = (self.compute, many)
            (alone,) = self.seconds(work, repeats=3)
            slower, out = self.seconds(work, self._copy("out"), repeats=3)
            _, back = self.seconds(work, self._copy("in"), repeats=3)
            slowest, out2, back2 = self.seconds(work, self._copy("out"), self._copy("in"), repeats=3)
        return {
            "op": op.name, "algorithm": algorithm, "times": count, "compute_seconds": alone,
            "out_bytes_per_second": self.nbytes / out, "in_bytes_per_second": self.nbytes / back,
            "both_bytes_per_second": 2 * self.nbytes / max(out2, back2),
            "compute_slowdown_out": slower / alone, "compute_slowdown_both": slowest / alone,
        }  # fmt: skip

    def replayed(self, device: CudaDevice, op: Op, small: bool) -> dict[str, Any]:
        """Seconds of replayed graphs, captured as in backends/cuda/runtime.py: compute alone, copies alone, and both.

        `hidden` is the part of the copies' time that runs during compute: 1 if all of it does. Raises Wrong if it is
        less than HIDDEN."""
        copies = [self._copy("out"), self._copy("in")]
        with self._computing(device, op) as (_, count, many):
            compute = self._graph(many, [])
            copying = self._graph(lambda: None, copies)
            together = self._graph(many, copies)
        hidden = (compute + copying - together) / min(compute, copying)
        values = {
            "times": count, "compute_seconds": compute, "copies_seconds": copying, "together_seconds": together,
            "hidden": hidden,
        }  # fmt: skip
        if hidden < HIDDEN and not small:
            raise Wrong(f"only {hidden:.0%} of the copies' time runs beside compute in a replayed graph", values)
        return values

    def _graph(self, work: Callable[[], object], copies: list[tuple[int, Callable[[], object]]]) -> float:
        """Median seconds of a replay of a graph of `work` and the copies."""
        api, compute = self.api, self.compute
        edge, *ends = events = [api.event() for _ in range(1 + len(copies))]
        api.begin_capture(compute)
        try:
            api.record(edge, compute)
            for (stream, call), end in zip(copies, ends, strict=True):
                api.wait(stream, edge)
                call()
                api.record(end, stream)
            work()
            for end in ends:
                api.wait(compute, end)
        except BaseException:
            with contextlib.suppress(Exception):
                api.release_graph(api.end_capture(compute))
            raise
        graph = api.end_capture(compute)
        try:
            (seconds,) = self.seconds((compute, lambda: api.replay(graph, compute)), repeats=3)
            return seconds
        finally:
            api.release_graph(graph)
            for event in events:
                api.release_event(event)

    def sizes(self) -> dict[str, Any]:
        found = {}
        for nbytes in SIZES:
            if nbytes <= self.nbytes:
                out, back = self.seconds(self._copy("out", nbytes))[0], self.seconds(self._copy("in", nbytes))[0]
                found[str(nbytes)] = {"out_seconds": out, "in_seconds": back}
        return {"seconds": found}
