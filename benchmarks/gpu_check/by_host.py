"""Part of (s): calls of the host within a step (backends/cuda/runtime.py), in captured graphs and without.

the host is waited for  whether a copy out comes before a call of the host, and a copy in after it, in each replay; the
                        seconds that a call costs; whether calls of two streams run at once, or one after another
the host fails          whether a run ends with the error that a call of the host raised, and the next run is well
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu_check.run import Run, Wrong
from minidnn.memory.execution.runtime import BoundCall
from minidnn.memory.schedule import BY_HOST

NBYTES, LAUNCHES, CALLS = 1 << 20, 5, 50


def cases(run: Run) -> None:
    run.case("the host is waited for", lambda: waited(run))
    run.case("the host fails", lambda: failing(run))


def _runtime(run: Run) -> Any:
    return run.place.device().runtime(2 * NBYTES, 4 * NBYTES)


def _step(runtime: Any, answer: Callable[[np.ndarray, np.ndarray], object]) -> tuple[Any, np.ndarray, np.ndarray]:
    """(a step that copies `sent` in and out, lets the host answer, copies that in and out to `got`; sent; got)"""
    word, back = runtime.arena[:NBYTES], runtime.arena[NBYTES:]
    sent, out, said, got = (runtime.host[k * NBYTES : (k + 1) * NBYTES] for k in range(4))
    step = [
        BoundCall(0, "in", runtime.copy(word, sent, "in")), BoundCall(1, "out", on=0),
        BoundCall(2, "out", runtime.copy(out, word, "out")), BoundCall(3, BY_HOST[0], on=2),
        BoundCall(4, BY_HOST[0], partial(answer, out, said)), BoundCall(5, "in", on=4),
        BoundCall(6, "in", runtime.copy(back, said, "in")), BoundCall(7, "out", on=6),
        BoundCall(8, "out", runtime.copy(got, back, "out")),
    ]  # fmt: skip
    return runtime.bind(step, outputs_after=8), sent, got


def _doubled(source: np.ndarray, to: np.ndarray) -> None:
    np.multiply(source, 2, out=to)


def waited(run: Run) -> dict[str, Any]:
    """Raises Wrong if the host has seen old bytes, or the device has."""
    stale, runtime = [], _runtime(run)
    try:
        prepared, sent, got = _step(runtime, _doubled)
        for k in range(1, LAUNCHES + 1):  # the first is not captured
            sent[:] = k
            runtime.launch(prepared)
            runtime.wait_for_outputs()
            if (got != 2 * k).any():
                stale.append(k)
        empty = [BoundCall(k, BY_HOST[0], lambda: None) for k in range(CALLS)]
        nap = 0.0 if run.place.small else 0.02
        asleep = [BoundCall(k, stream, lambda: time.sleep(nap)) for k, stream in enumerate(BY_HOST)]
        values = {
            "launches": LAUNCHES, "stale": stale, "call_seconds": _replayed(runtime, empty) / CALLS,
            "streams": len(BY_HOST), "nap_seconds": nap, "naps_seconds": _replayed(runtime, asleep),
        }  # fmt: skip
    finally:
        runtime.close()
    if stale:
        raise Wrong(f"in the launches {stale} a copy did not wait for the host, or the host for a copy", values)
    return values


def _replayed(runtime: Any, step: list[BoundCall]) -> float:
    """Seconds of a replay of a step, its launch included."""
    prepared = runtime.bind(step)
    for _ in range(3):
        began = time.perf_counter()
        runtime.run(prepared)
    return time.perf_counter() - began


class Planted(RuntimeError):
    pass


def failing(run: Run) -> dict[str, Any]:
    """Raises Wrong if an error of the host is lost, or spoils later runs."""
    runtime, fails, found = _runtime(run), False, []

    def answer(source: np.ndarray, to: np.ndarray) -> None:
        if fails:
            raise Planted
        _doubled(source, to)

    try:
        prepared, sent, got = _step(runtime, answer)
        for k in range(1, LAUNCHES + 1):
            sent[:], fails, before = k, k in (1, 4), len(found)  # called one by one, and in a replay
            try:
                runtime.run(prepared)
            except Planted:
                found.append(k)
            if len(found) == before and (got != 2 * k).any():
                raise Wrong(f"launch {k} is wrong, after errors in {found}", {"raised": found})
    finally:
        runtime.close()
    if found != [1, 4]:
        raise Wrong(f"the host failed in the launches 1 and 4, and the errors came in {found}", {"raised": found})
    return {"raised": found}
