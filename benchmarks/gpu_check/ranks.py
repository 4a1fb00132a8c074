"""(n) NCCL with one rank, which needs no second GPU: it sends to itself.

    NCCL with itself   seconds and bytes of the card to make a communicator; whether the engine's calls give the right
                       bytes, call by call and in a replayed graph, between copies in and out on other streams; their
                       rate; seconds of one look at NCCL's errors, which the host takes again and again while it waits

What several GPUs do is in tests/backends/cuda/test_nccl.py, on a CUDA and an NCCL of the host's memory.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.gpu_check.run import Run, Wrong
from minidnn.backends.cuda.device import CudaDevice
from minidnn.memory.execution.runtime import BoundCall
from minidnn.program import Op, Pass, Tensor
from minidnn.programs.ranks import NetAttrs
from minidnn.ranks.engine import Channel
from minidnn.ranks.nccl import Nccl

LAUNCHES = 5
LOOKS = 100


class Alone(Channel):
    rank, ranks = 0, 1

    def share(self, value: Any) -> list[Any]:
        return [value]

    def close(self) -> None: ...


def item(run: Run) -> None:
    run.case("NCCL with itself", lambda: itself(run), needs=0 if run.place.small else 4)


def itself(run: Run) -> dict[str, Any]:
    """Raises Wrong if bytes are not those that were sent, or if the step was not captured."""
    device = run.place.device()
    before, began = device.api.free_memory(), time.perf_counter()
    engine = Nccl(Alone(), device.api, device.net, limit=30.0)
    try:
        values = {
            "version": device.api.nccl().get_version(),
            "seconds": time.perf_counter() - began,
            "taken_bytes": before - device.api.free_memory(),
        }
        values |= transferred(device, engine, run.place.link_bytes)
        watch, began = device.api.watch, time.perf_counter()
        assert watch is not None
        for _ in range(LOOKS):
            watch(0.0)
        return {**values, "look_seconds": (time.perf_counter() - began) / LOOKS}
    finally:
        engine.close()


def transferred(device: CudaDevice, engine: Nccl, nbytes: int) -> dict[str, Any]:
    """Launch a step again and again that brings new bytes in, exchanges them, gathers them, and brings them out."""
    x, rows, y = (Tensor(name, (nbytes // 4,)) for name in ("x", "rows", "y"))
    runtime = device.runtime(3 * nbytes, 2 * nbytes)
    try:
        at = {t: runtime.arena[k * nbytes : (k + 1) * nbytes] for k, t in enumerate((x, rows, y))}
        sent, got = runtime.host[:nbytes], runtime.host[nbytes:]
        calls = [
            BoundCall(number, "net", engine.prepare(_net(kind, read, write), [at[read]], [at[write]]))
            for number, kind, read, write in ((2, "net.all_to_all", x, rows), (3, "net.all_gather", rows, y))
        ]
        step = [
            BoundCall(0, "in", runtime.copy(at[x], sent, "in")), BoundCall(1, "net", on=0), *calls,
            BoundCall(4, "out", on=3), BoundCall(5, "out", runtime.copy(got, at[y], "out")),
            BoundCall(6, "compute", on=3), BoundCall(7, "compute", runtime.fill(at[x], 0xFF)),
        ]  # fmt: skip
        prepared, wrong = runtime.bind(step), []
        for k in range(1, LAUNCHES + 1):  # the first is not captured
            sent[:] = k
            runtime.launch(prepared)
            runtime.settle()
            if (got != k).any():
                wrong.append(k)
        if wrong or prepared.graph is None:
            raise Wrong(f"NCCL gave other bytes in the launches {wrong}, or was not captured", {"wrong": wrong})
        seconds = runtime.seconds(runtime.bind(calls), LAUNCHES)
        return {"launches": LAUNCHES, "bytes": nbytes, "bytes_per_second": 2 * nbytes / seconds}
    finally:
        runtime.close()


def _net(kind: str, read: Tensor, write: Tensor) -> Op:
    return Op(kind, kind, "net", Pass.UPDATE, (read,), (write,), NetAttrs(1))
