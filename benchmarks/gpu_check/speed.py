"""(d) Seconds of an iteration and peak memory, compared with PyTorch's on the same card.

Both have the same batch in page-locked memory and the same TF32 setting (allowed). They are loaded at once and take
turns; medians count. Our float32 is compared with PyTorch's float32. Our bfloat16, with float32 weights, is compared
with torch.autocast, which PyTorch's users run (benchmarks/peer.py).

Net by net, the most important first, there are three cases:

    beside    the net under `liveness:p` with measured costs: seconds, and the card's bytes that each side takes. To say
              where the seconds go, there are those of each kind of op, with its bytes per second and what part that is
              of the rate of a copy within the card. Losses that are read while a step runs must be those of steps that
              are waited for.
    agrees    both sides compute the same: equal losses over a few updates, without dropout, TF32 forbidden.
    smallest  the leanest policy that is no slower than PyTorch, since its peak is the one to compare. All policies are
              planned and simulated with measured costs; those that can stop at a budget also under LEAN of PyTorch's
              memory. Of those that are predicted to be quick enough, the leanest is timed, then the next, until one is
              quick enough.

Then each net is trained on data, to see how much longer an iteration takes than a step whose batch is there (fed.py).
Last come the kernels in which PyTorch spends most of its step: its profiler stays with the process, and slows down all
that is timed later.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np

from benchmarks import nets
from benchmarks.gpu_check.fed import fed
from benchmarks.gpu_check.measure import Loaded, costs_of, summed
from benchmarks.gpu_check.run import Run, Wrong
from benchmarks.nets import AGREE, AGREE_LATER, COMPARED, GENTLE, RATE, TRAIN, apart, batch_of
from minidnn.costs import Costs, estimate
from minidnn.formats import usable
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import Compute, Schedule
from minidnn.nets.net import Net
from minidnn.programs.build import programs
from minidnn.results.counted import counted

COPY = "a copy within the card"
FASTEST = "liveness:p"
LIKELY = ("liveness", "sqrt_n", "recompute_cheap", "vdnn_conv:p", "superneurons", "layrub", "accudnn", "vdnn_all:p")
STOPPING = ("superneurons", "accudnn", "vdnn_pp")  # policies that do no more than a budget asks for
LEAN = 0.69  # of the memory that PyTorch reserved: a little less than the goal
PLANNING = 15.0  # seconds for the plans of one net
TRIED = 3  # the most policies that are loaded for one net
QUICK = 1.02  # a policy is tried if its predicted seconds are at most so many times PyTorch's
TURNS, TURN = 4, 0.5  # how often each side is timed, and for about how many seconds


def item(run: Run) -> None:
    try:
        import torch
    except ImportError as error:
        why = str(error)
        run.case("PyTorch", lambda: _missing(why, run.place.small))
        return
    run.place.settle(True)
    run.case(
        "PyTorch", lambda: {"there": True, "version": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}
    )
    small = run.place.small
    run.case("clocks before", lambda: {"clocks": run.place.clocks()})
    inner = run.case(COPY, lambda: copied(run))
    rate = inner and inner["bytes_per_second"]
    for (name, batch), form in product(run.place.speed, run.place.formats):
        title = f"{name}, {batch}, {form}"
        run.case(title, partial(beside, run, name, batch, form, rate), needs=3 if small else 15)
        agreeing = partial(agrees, run, name, form)
        run.case(f"{name} agrees, {form}", agreeing, needs=2 if small else 5)
        found = run.done.get(title, {}).get("values") or {}
        if found.get("torch_seconds"):
            lean = partial(smallest, run, name, batch, form, found)
            run.case(f"{title}, smallest peak", lean, needs=3 if small else 10)
    for (name, batch), form in product(run.place.speed, run.place.formats):
        if run.place.net(name, batch).tokens is not None:  # its batches are small: to be fed costs nothing
            continue
        work = partial(fed, run, name, batch, form, FASTEST)
        run.case(f"{name}, {batch}, {form}, fed", work, needs=3 if small else 10)
    run.case("clocks after", lambda: {"clocks": run.place.clocks()})
    for (name, batch), form in product(run.place.speed, run.place.formats):
        work = partial(profiled, run, name, batch, form)
        run.case(f"{name}, {batch}, {form}, PyTorch's kernels", work, needs=2 if small else 5)


def _missing(why: str, small: bool) -> dict[str, Any]:
    if not small:
        raise Wrong(f"there is nothing to compare with: {why}")
    return {"there": False, "why": why}


def copied(run: Run) -> dict[str, Any]:
    """Bytes per second, read and written, of a copy from one place of the card to another."""
    import torch

    cuda = run.place.torch == "cuda"
    a, b = (torch.ones(run.place.inner_bytes, dtype=torch.uint8, device=run.place.torch) for _ in range(2))

    def seconds(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            b.copy_(a)
        if cuda:
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / count

    seconds(3)
    return {"bytes": a.nbytes, "bytes_per_second": 2 * a.nbytes / median(seconds(20) for _ in range(3))}


def by_kind(schedule: Schedule, costs: Costs, rate: float | None) -> list[dict[str, Any]]:
    """Each kind of op of a schedule, the slowest first: measured seconds, and bytes per second if each tensor moved
    once. rate: bytes per second of a copy within the card."""
    found: dict[str, dict[str, Any]] = {}
    for x in schedule.instructions:
        if isinstance(x, Compute):
            row = found.setdefault(x.op.kind, {"kind": x.op.kind, "ops": 0, "seconds": 0.0, "bytes": 0})
            row["ops"] += 1
            row["seconds"] += costs.seconds(x.op, x.algorithm)
            row["bytes"] += x.op.nbytes
    for row in found.values():
        row["bytes_per_second"] = row["bytes"] / row["seconds"]
        row["of_a_copy"] = rate and row["bytes_per_second"] / rate
    return sorted(found.values(), key=lambda row: -row["seconds"])


def beside(run: Run, name: str, batch: int, form: str, rate: float | None = None) -> dict[str, Any]:
    """rate: as for `by_kind`"""
    from benchmarks.peer import Peer, Trainer, first_weights, forget

    device, net = run.place.device(), run.place.net(name, batch)
    costs = costs_of(run, device, list(programs(net, TRAIN, ("TRAIN",), format=form, fuses=device.fuses).values()))
    with Loaded(device, net, FASTEST, costs, format=form) as ours:
        trainer, loaded = None, device.api.free_memory()
        try:
            given = {t.name: value for t, value in ours.batch.items()}
            peer = Peer(net.graph("TRAIN"), first_weights(net), run.place.torch, format=form)
            trainer = Trainer(peer, given, TRAIN, RATE)
            mine, theirs = in_turn(run, ours, trainer)
            memory = {**trainer.memory(), "taken_by_torch_bytes": loaded - device.api.free_memory()}
            trace = ours.session.step("TRAIN", trace=True)
            assert trace is not None
            waited, launched = ours.both_ways()
            losses = {"losses": ours.losses, "torch_losses": trainer.losses, "waited": waited, "launched": launched}
        finally:
            peer = trainer = None
            forget()
        kernels, seconds = summed(ours.schedule, costs), median(mine)
        samples = counted(net.tokens)
        values = {
            "policy": FASTEST, "seconds": seconds, "torch_seconds": median(theirs), "ratio": seconds / median(theirs),
            "all_seconds": mine, "all_torch_seconds": theirs, "unit": samples.per_second,
            "speed": samples.speed(batch / seconds), **memory,
            "arena_bytes": ours.arrangement.arena, "taken_bytes": ours.taken,
            "taken_after_steps_bytes": ours.before - loaded,
            "kinds": by_kind(ours.schedule, costs, rate),
            "kernel_seconds": kernels, "stall_seconds": trace.stall_seconds, "traced_seconds": trace.seconds,
            "traced_compute_seconds": sum(s.end - s.start for s in trace.spans if s.stream == "compute"),
            "launch_gap": (seconds - kernels - trace.stall_seconds) / seconds, **losses,
        }  # fmt: skip
    if not np.array_equal(waited, launched, equal_nan=True):
        raise Wrong(f"losses {launched} are read while steps run, and {waited} from steps that are waited for", values)
    return values


def profiled(run: Run, name: str, batch: int, form: str) -> dict[str, Any]:
    """The kernels in which PyTorch spends most of a step."""
    from benchmarks.peer import Peer, Trainer, first_weights, forget

    net, trainer = run.place.net(name, batch), None
    try:
        given = {t.name: value for t, value in batch_of(programs(net, TRAIN, ("TRAIN",), format=form)["TRAIN"]).items()}
        peer = Peer(net.graph("TRAIN"), first_weights(net), run.place.torch, format=form)
        trainer = Trainer(peer, given, TRAIN, RATE)
        return {"torch_top": trainer.top()}
    finally:
        peer = trainer = None
        forget()


def in_turn(run: Run, ours: Loaded, trainer: Any) -> tuple[list[float], list[float]]:
    one = max(ours.seconds(1), trainer.seconds(1))
    count = 1 if run.place.small else int(np.clip(TURN / one, 2, 40))
    turns = 2 if run.place.small else TURNS
    pairs = [(ours.seconds(count), trainer.seconds(count)) for _ in range(turns)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def smallest(run: Run, name: str, batch: int, form: str, before: dict[str, Any]) -> dict[str, Any]:
    """The leanest policy that is no slower than PyTorch. before: the values that `beside` returned."""
    device, net, theirs = run.place.device(), run.place.net(name, batch), before["torch_seconds"]
    lowered = list(programs(net, TRAIN, ("TRAIN",), format=form, fuses=device.fuses).values())
    costs = costs_of(run, device, lowered)
    foreseen, until = [], time.monotonic() + min(run.within(PLANNING), run.left() / 3)
    peak = before["torch_reserved_bytes"]
    budgets: list[tuple[str, int | None]] = [(policy, int(LEAN * peak)) for policy in STOPPING if peak]
    for policy, budget in [*budgets, *((policy, None) for policy in run.place.policies(LIKELY))]:
        if time.monotonic() > until:
            break
        try:
            arranged = arrange(lowered, policy, costs, budget)
        except BudgetError as error:
            run.say(f"{name} {policy}: {error}"[:300])
            continue
        seconds = simulate(arranged.schedules["TRAIN"], costs).seconds
        row = {"policy": policy, "budget": budget, "foreseen_seconds": seconds, "arena_bytes": arranged.arena}
        foreseen.append(row)
    quick = [
        r for r in foreseen if r["foreseen_seconds"] <= QUICK * theirs and r["arena_bytes"] < before["arena_bytes"]
    ]
    rows: list[dict[str, Any]] = []
    best = {"policy": FASTEST, "seconds": before["seconds"], "arena_bytes": before["arena_bytes"]}
    shared = None
    for row in sorted(quick, key=lambda r: r["arena_bytes"])[:TRIED]:
        if run.left() < (1 if run.place.small else 6):
            break
        with Loaded(device, net, row["policy"], costs, shared, row["budget"], format=form) as ours:
            shared = ours.batch
            count = 1 if run.place.small else int(np.clip(TURN / ours.seconds(1), 2, 20))
            seconds = median(ours.seconds(count) for _ in range(3))
            rows.append({**row, "seconds": seconds, "host_bytes": ours.arrangement.host})
        if seconds <= theirs:
            best = rows[-1]
            break
    return {
        "policy": best["policy"], "seconds": best["seconds"], "over_torch": best["seconds"] / theirs,
        "no_slower": best["seconds"] <= theirs, "arena_bytes": best["arena_bytes"],
        "over_torch_reserved": best["arena_bytes"] / peak if peak else None, "tried": rows, "foreseen": foreseen,
    }  # fmt: skip


# ---- both sides compute the same


def agrees(run: Run, name: str, form: str) -> dict[str, Any]:
    """The losses of a few updates from the same weights, without dropout, TF32 forbidden. Raises Wrong if they differ.

    In bfloat16 the two round at different places (autocast computes LRN and more in float32). So a difference of a few
    hundredths is allowed, which still finds a wrong sign."""
    from benchmarks.peer import forget

    device, net = run.place.device(tf32=False), run.place.net(name, 4)
    run.place.settle(False)
    try:
        mine, theirs = losses(nets.without_dropout(net), device, run.place.torch, form)
    finally:
        run.place.settle(True)
        forget()
    first, later = apart(mine, theirs)
    values = {"losses": mine, "torch_losses": theirs, "first": first, "later": later}
    if not (first <= AGREE[form] and later <= AGREE_LATER[form]):
        raise Wrong(f"losses {mine}, and PyTorch's {theirs}", values)
    return values


def losses(net: Net, device: Any, torch_device: str, form: str = "float32") -> tuple[list[float], list[float]]:
    """Our losses on a device, and PyTorch's, of the same updates."""
    from benchmarks.peer import Peer, Trainer, first_weights

    usable(form)
    batch = batch_of(programs(net, TRAIN, ("TRAIN",), format=form)["TRAIN"], GENTLE)
    with Loaded(device, net, "liveness:m", estimate(device), batch, warm=COMPARED, format=form) as ours:
        given: Mapping[str, np.ndarray] = {t.name: value for t, value in batch.items()}
        peer = Peer(net.graph("TRAIN"), first_weights(net), torch_device, format=form)
        return ours.losses, Trainer(peer, given, TRAIN, GENTLE, warm=COMPARED).losses
