"""(s) The first look at a new card: seconds to begin, bytes that CUDA and its libraries take at each stage, and whether
an arena takes as many bytes as planned.

    opening        seconds until a device is open, and the bytes that its context and cuDNN's handle take on the card
    kernels        seconds that NVRTC takes for each source and format, eight at once; bytes of their code on the card
    device memory  seconds to allocate and release; the granule in which the card gives memory
    page-locked    seconds to allocate, first use and release: hosts are slow at this
    stages         a net under vdnn_all, loaded twice: seconds and free memory after it was planned, loaded, run call by
                   call, captured, replayed and closed. The second loading must take nothing but the arena, within one
                   granule and page tables for the host's part. Steps may take at most MARGIN bytes, which are left
                   free for them.
    plans          seconds and bytes of the card that cuDNN takes to list and build the plans of a large net
    told           whether the host, which waits for an output in the middle of a replayed graph, gets that replay's
                   output and not the one before
    by the host    whether steps wait for calls of the host (by_host.py)
"""

from __future__ import annotations

import time
from itertools import product
from typing import Any

from benchmarks.gpu_check import by_host
from benchmarks.gpu_check.place import RAM
from benchmarks.gpu_check.run import Run, Wrong
from benchmarks.nets import TRAIN, batch_of
from minidnn.backends.cuda.device import MARGIN, OF_CUDNN
from minidnn.costs import estimate, geometry
from minidnn.memory.execution.runtime import BoundCall
from minidnn.memory.planning import arrange
from minidnn.programs.build import programs
from minidnn.training.session import Session

STORAGES = ("float", "bf16", "fp16")
POLICY = "vdnn_all"
FILLS, LAUNCHES = 20, 5
PAGE_TABLES = 256  # the card's page tables take at most this part of the page-locked memory that it copies from and to


def item(run: Run) -> None:
    small = run.place.small
    run.case("opening", lambda: opening(run))
    run.case("kernels", lambda: kernels(run))
    granule = run.case("device memory", lambda: device_memory(run))
    net = "stages of {}, {}".format(*run.place.staged)
    run.case(net, lambda: stages(run, granule["granule_bytes"] if granule else 1), needs=0 if small else 8)
    run.case("the host is told", lambda: told(run))
    by_host.cases(run)
    name, batch = run.place.speed[0]
    run.case(f"plans of {name}, {batch}", lambda: plans(run, name, batch), needs=0 if small else 3)
    run.case("page-locked memory", lambda: page_locked(run), needs=0 if small else 3)


def opening(run: Run) -> dict[str, Any]:
    began = time.perf_counter()
    total = run.place.total_memory()  # this loads CuPy and makes the context
    context = time.perf_counter() - began
    device = run.place.device()
    seconds = time.perf_counter() - began
    taken = total - device.api.free_memory()
    return {
        "seconds": seconds, "context_seconds": context, "total_bytes": total, "taken_bytes": taken,
        "device": device.description,
    }  # fmt: skip


def kernels(run: Run) -> dict[str, Any]:
    """Seconds to compile all kernels in several processes, then to load them one after another; bytes of their code."""
    place, api = run.place, run.place.device().api
    what = list(product(place.sources(), STORAGES))
    began = time.perf_counter()
    each = dict(zip(map(" ".join, what), place.compile(what), strict=True))
    compiled = time.perf_counter() - began
    before, began = api.free_memory(), time.perf_counter()
    for one in what:
        api.functions(*one)
    loaded = time.perf_counter() - began
    return {
        "sources": len(what), "compile_seconds": compiled, "together_seconds": sum(each.values()),
        "load_seconds": loaded, "taken_bytes": before - api.free_memory(),
        "each_seconds": {name: round(s, 3) for name, s in each.items()},
    }  # fmt: skip


def device_memory(run: Run) -> dict[str, Any]:
    """The granule of device memory, and seconds to allocate and release a large block.

    The granule is the most that the card's free memory falls for one of several small blocks."""
    api, steps, held = run.place.device().api, [], []
    for _ in range(4):  # the first blocks may fit into a granule that is already taken
        before = api.free_memory()
        held.append(api.allocate(1 << 20))
        steps.append(before - api.free_memory())
    for address in held:
        api.release(address)
    large = run.place.large
    before, began = api.free_memory(), time.perf_counter()
    address = api.allocate(large)
    allocated = time.perf_counter() - began
    taken = before - api.free_memory()
    began = time.perf_counter()
    api.release(address)
    released = time.perf_counter() - began
    return {
        "granule_bytes": max(steps), "large_bytes": large, "large_taken_bytes": taken,
        "allocate_seconds": allocated, "release_seconds": released,
    }  # fmt: skip


def page_locked(run: Run) -> dict[str, Any]:
    api, rows = run.place.device().api, []
    for nbytes in run.place.pinned:
        run.place.forget_pinned()
        began = time.perf_counter()
        pages = api.allocate_host(nbytes)
        allocated = time.perf_counter() - began
        began = time.perf_counter()
        pages.fill(1)
        used = time.perf_counter() - began
        began = time.perf_counter()
        api.release_host(pages)
        run.place.forget_pinned()
        released = time.perf_counter() - began
        rows.append({"bytes": nbytes, "seconds": allocated, "first_use_seconds": used, "release_seconds": released})
    last = rows[-1]
    return {"bytes_per_second": last["bytes"] / max(last["seconds"], 1e-9), "rows": rows}


def told(run: Run) -> dict[str, Any]:
    """Launch a step again and again that copies new bytes in, computes, copies them out and computes on. The host waits
    for the copy out alone, by an event that each replay has to record anew. Raises Wrong if the host sees old bytes."""
    nbytes, stale, seconds = 1 << 20, [], []
    runtime = run.place.device().runtime(nbytes + run.place.filled_bytes, 2 * nbytes)
    try:
        word, block = runtime.arena[:nbytes], runtime.arena[nbytes:]
        sent, got = runtime.host[:nbytes], runtime.host[nbytes:]
        fill = runtime.fill(block, 0)

        def work() -> None:
            for _ in range(FILLS):
                fill()

        step = [
            BoundCall(0, "in", runtime.copy(word, sent, "in")),
            BoundCall(1, "compute", on=0),
            BoundCall(2, "compute", work),
            BoundCall(3, "out", on=2),
            BoundCall(4, "out", runtime.copy(got, word, "out")),
            BoundCall(5, "compute", work),
        ]
        prepared = runtime.bind(step, outputs_after=4)
        for k in range(1, LAUNCHES + 1):  # the first is not captured
            sent[:] = k
            began = time.perf_counter()
            runtime.launch(prepared)
            runtime.wait_for_outputs()
            reached = time.perf_counter() - began
            if (got != k).any():
                stale.append(k)
            runtime.settle()
            seconds.append((reached, time.perf_counter() - began))
    finally:
        runtime.close()
    values = {"launches": LAUNCHES, "stale": stale, "output_seconds": seconds[-1][0], "step_seconds": seconds[-1][1]}
    if stale:
        why = f"in the launches {stale} the host was told of outputs that were not there: let it wait for a step's end"
        raise Wrong(why, values)
    return values


def plans(run: Run, name: str, batch: int) -> dict[str, Any]:
    """Seconds and bytes that cuDNN takes to list and build all plans of a net; those with a ReLU are tried, too."""
    device = run.place.device()
    before, began = device.api.free_memory(), time.perf_counter()
    ops = programs(run.place.net(name, batch), TRAIN, ("TRAIN",), fuses=device.fuses)["TRAIN"].ops
    listed = {geometry(op): device.algorithms(op) for op in ops if op.kind in OF_CUDNN}
    return {
        "seconds": time.perf_counter() - began,
        "taken_bytes": before - device.api.free_memory(),
        "geometries": len(listed),
        "plans": sum(map(len, listed.values())),
    }


def stages(run: Run, granule: int) -> dict[str, Any]:
    device, net = run.place.device(), run.place.net(*run.place.staged)
    first, second = once(device, net), once(device, net)
    tables = second["host_bytes"] // PAGE_TABLES
    beyond, arena = second["session"]["taken_bytes"] - second["arena_bytes"], second["arena_bytes"]
    values = {
        "arena_bytes": arena, "host_bytes": second["host_bytes"], "granule_bytes": granule,
        "beyond_arena_bytes": beyond, "page_tables_bytes": tables,
        "left_taken_bytes": second["closed"]["taken_bytes"] - first["closed"]["taken_bytes"],
        "taken_by_steps_bytes": first["replayed"]["taken_bytes"] - first["session"]["taken_bytes"],
        "first_step_after_seconds": sum(first[s]["seconds"] for s in ("planned", "session", "called")),
        "first": first, "second": second,
    }  # fmt: skip
    if not 0 <= beyond < max(granule, 1) + tables:
        why = (
            f"loading takes {beyond} bytes besides the arena's {arena}; the card gives {granule} at once, and may need"
        )
        raise Wrong(f"{why} {tables} for page tables", values)
    if values["taken_by_steps_bytes"] > MARGIN:
        raise Wrong(f"steps take {values['taken_by_steps_bytes']} bytes, and {MARGIN} are left free for them", values)
    return values


def once(device: Any, net: Any) -> dict[str, Any]:
    """Stage -> its seconds, and the bytes of the card taken since the beginning when it ends; and the net's bytes."""
    api, found = device.api, {}
    device.graphs = True
    before, began = api.free_memory(), time.perf_counter()

    def stage(name: str) -> None:
        nonlocal began
        found[name] = {"seconds": time.perf_counter() - began, "taken_bytes": before - api.free_memory()}
        began = time.perf_counter()

    costs = estimate(device)
    lowered = programs(net, TRAIN, ("TRAIN",), fuses=device.fuses)
    arrange(list(lowered.values()), POLICY, costs)
    stage("planned")
    with Session(net, TRAIN, ("TRAIN",), device=device, policy=POLICY, costs=costs, seed=1, ram=RAM) as session:
        stage("session")  # a Session plans once more, binds, and writes the first weights
        arena, host = session.arrangement.arena, session.arrangement.host
        for t, value in batch_of(lowered["TRAIN"]).items():
            session.machine.write(t, value, "TRAIN")
        stage("batch")
        for name in ("called", "captured", "replayed"):  # the first run is not captured (memory/execution/runtime.py)
            session.step("TRAIN")
            stage(name)
    session.machine.persistent.clear()
    stage("closed")
    return {**found, "arena_bytes": arena, "host_bytes": host}
