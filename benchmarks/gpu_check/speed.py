"""(d) Seconds of an iteration and peak memory, compared with PyTorch's on the same card.

Both have the same batch in page-locked memory and the same TF32 setting (allowed). They are loaded at once and take
turns; medians count. Our float32 is compared with PyTorch's float32. Our bfloat16, with float32 weights, is compared
with torch.autocast, which PyTorch's users run (benchmarks/peer.py).

First every net runs under `liveness:p` with measured costs. Then the leanest policy that is no slower than PyTorch is
looked for, since its peak is the one to compare. All policies are planned and simulated with measured costs. Of those
that are predicted to be quick enough, the leanest is timed, then the next, until one is quick enough. Last, both must
compute the same: equal losses over a few updates, without dropout, TF32 forbidden. Then each net is trained on data, to
see how much longer an iteration takes than a step whose batch is there (fed.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np

from benchmarks import nets
from benchmarks.gpu_check.fed import fed
from benchmarks.gpu_check.measure import Loaded, costs_of, summed
from benchmarks.gpu_check.run import Run, Wrong
from benchmarks.nets import AGREE, AGREE_LATER, COMPARED, GENTLE, RATE, TRAIN, apart, batch_of
from minidnn.costs import estimate
from minidnn.formats import usable
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.nets.net import Net
from minidnn.programs.build import programs

FASTEST = "liveness:p"
LIKELY = ("liveness", "vdnn_conv:p", "superneurons", "sqrt_n", "layrub", "accudnn", "vdnn_all:p", "vdnn_pp")
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
    small, both = run.place.small, run.place.formats
    nets = [(name, batch, form, f"{name}, {batch}, {form}") for name, batch in run.place.speed for form in both]
    for name, batch, form, title in nets:
        run.case(title, lambda n=name, b=batch, f=form: beside(run, n, b, f), needs=3 if small else 12)
    for name, batch, form, title in nets:
        found = run.done.get(title, {}).get("values") or {}
        if found.get("torch_seconds"):
            work = lambda n=name, b=batch, f=form, v=found: smallest(run, n, b, f, v)  # noqa: E731
            run.case(f"{title}, smallest peak", work, needs=3 if small else 10)
    for name, _, form, _ in nets:
        case = f"{name} agrees, {form}"
        run.case(case, lambda n=name, f=form: agrees(run, run.place.net(n, 4), f), needs=2 if small else 5)
    for name, batch, form, title in nets:
        work = lambda n=name, b=batch, f=form: fed(run, n, b, f, FASTEST)  # noqa: E731
        run.case(f"{title}, fed", work, needs=3 if small else 10)


def _missing(why: str, small: bool) -> dict[str, Any]:
    if not small:
        raise Wrong(f"there is nothing to compare with: {why}")
    return {"there": False, "why": why}


def beside(run: Run, name: str, batch: int, form: str) -> dict[str, Any]:
    from benchmarks.peer import Peer, Trainer, first_weights, forget

    device, net = run.place.device(), run.place.net(name, batch)
    costs = costs_of(run, device, list(programs(net, TRAIN, ("TRAIN",), format=form, fuses=device.fuses).values()))
    with Loaded(device, net, FASTEST, costs, format=form) as ours:
        trainer = None
        try:
            given = {t.name: value for t, value in ours.batch.items()}
            peer = Peer(net.graph("TRAIN"), first_weights(net), run.place.torch, format=form)
            trainer = Trainer(peer, given, TRAIN, RATE)
            mine, theirs = in_turn(run, ours, trainer)
            trace = ours.session.step("TRAIN", trace=True)
            assert trace is not None
            memory = trainer.memory()
            losses = {"losses": ours.losses, "torch_losses": trainer.losses}
        finally:
            peer = trainer = None
            forget()
        kernels, seconds = summed(ours.schedule, costs), median(mine)
        return {
            "policy": FASTEST, "seconds": seconds, "torch_seconds": median(theirs), "ratio": seconds / median(theirs),
            "all_seconds": mine, "all_torch_seconds": theirs, "images_per_second": batch / seconds,
            "arena_bytes": ours.arrangement.arena, "taken_bytes": ours.taken, **memory,
            "kernel_seconds": kernels, "stall_seconds": trace.stall_seconds, "traced_seconds": trace.seconds,
            "traced_compute_seconds": sum(s.end - s.start for s in trace.spans if s.stream == "compute"),
            "launch_gap": (seconds - kernels - trace.stall_seconds) / seconds, **losses,
        }  # fmt: skip


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
    for policy in run.place.policies(LIKELY):
        if time.monotonic() > until:
            break
        try:
            arranged = arrange(lowered, policy, costs)
        except BudgetError as error:
            run.say(f"{name} {policy}: {error}"[:300])
            continue
        seconds = simulate(arranged.schedules["TRAIN"], costs).seconds
        foreseen.append({"policy": policy, "foreseen_seconds": seconds, "arena_bytes": arranged.arena})
    quick = [
        r for r in foreseen if r["foreseen_seconds"] <= QUICK * theirs and r["arena_bytes"] < before["arena_bytes"]
    ]
    rows: list[dict[str, Any]] = []
    best = {"policy": FASTEST, "seconds": before["seconds"], "arena_bytes": before["arena_bytes"]}
    shared = None
    for row in sorted(quick, key=lambda r: r["arena_bytes"])[:TRIED]:
        if run.left() < (1 if run.place.small else 6):
            break
        with Loaded(device, net, row["policy"], costs, shared, format=form) as ours:
            shared = ours.batch
            count = 1 if run.place.small else int(np.clip(TURN / ours.seconds(1), 2, 20))
            seconds = median(ours.seconds(count) for _ in range(3))
            rows.append({**row, "seconds": seconds, "host_bytes": ours.arrangement.host})
        if seconds <= theirs:
            best = rows[-1]
            break
    peak = before["torch_reserved_bytes"]
    return {
        "policy": best["policy"], "seconds": best["seconds"], "over_torch": best["seconds"] / theirs,
        "no_slower": best["seconds"] <= theirs, "arena_bytes": best["arena_bytes"],
        "over_torch_reserved": best["arena_bytes"] / peak if peak else None, "tried": rows, "foreseen": foreseen,
    }  # fmt: skip


# ---- both sides compute the same


def agrees(run: Run, net: Net, form: str) -> dict[str, Any]:
    """The losses of a few updates from the same weights, without dropout, TF32 forbidden. Raises Wrong if they differ.

    In bfloat16 the two round at different places (autocast computes LRN and more in float32). So a difference of a few
    hundredths is allowed, which still finds a wrong sign."""
    from benchmarks.peer import forget

    device = run.place.device(tf32=False)
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
