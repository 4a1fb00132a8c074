"""(d) Seconds of an iteration and peak memory, beside PyTorch on the same card with the same batch in page-locked
memory and the same TF32 setting (allowed). Both are loaded at once and take turns; medians.

First every net under `liveness:p` with measured costs. Then other policies: of those no slower than PyTorch, the one
of the smallest peak is what counts for memory. And the two compute the same: equal losses over a few updates, dropout
left out, TF32 forbidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np

from benchmarks.gpu_check.measure import RATE, TRAIN, Loaded, batch_of, costs_of, summed
from benchmarks.gpu_check.run import Run, Wrong
from minidnn.costs import estimate
from minidnn.memory.arrange import BudgetError
from minidnn.net import Net
from minidnn.session import programs

FASTEST = "liveness:p"
POLICIES = ("vdnn_conv:p", "vdnn_all:p", "liveness:m")
TURNS, TURN = 5, 0.6  # how often each is timed, and for about how many seconds
COMPARED, GENTLE = 3, 1e-5  # updates that are compared, and their learning rate
# Of the loss before any update, and behind one. (Few images through many layers of BatchNorm, and steps that halve the
# loss, make much of the last bits: resnet50's third loss moves by 2e-3 at ten times this rate.)
AGREE, AGREE_LATER = 2e-4, 5e-3


def item(run: Run) -> None:
    try:
        import torch
    except ImportError as error:
        why = str(error)
        run.case("PyTorch", lambda: _missing(why, run.place.small))
        return
    from benchmarks.gpu_check import peer

    peer.settle(True)
    run.case(
        "PyTorch", lambda: {"there": True, "version": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}
    )
    for form in run.place.formats:
        for name, batch in run.place.speed:
            needs = 3 if run.place.small else 12
            run.case(f"{name}, {batch}, {form}", lambda n=name, b=batch: beside(run, n, b), needs=needs)
    for name, _ in run.place.speed:
        run.case(f"{name} agrees", lambda n=name: agrees(run, run.place.net(n, 4)), needs=2 if run.place.small else 5)
    for form in run.place.formats:
        for name, batch in run.place.speed:
            before = run.done.get(f"{name}, {batch}, {form}", {}).get("values", {}).get("torch_seconds")
            case = f"{name}, {batch}, {form}, other policies"
            run.case(case, lambda n=name, b=batch, s=before: others(run, n, b, s), needs=3 if run.place.small else 20)


def _missing(why: str, small: bool) -> dict[str, Any]:
    if not small:
        raise Wrong(f"there is nothing to compare with: {why}")
    return {"there": False, "why": why}


def beside(run: Run, name: str, batch: int) -> dict[str, Any]:
    from benchmarks.gpu_check.peer import Peer, Trainer, forget

    device, net = run.place.device(), run.place.net(name, batch)
    costs = costs_of(run, device, list(programs(net, TRAIN, ("TRAIN",)).values()))
    with Loaded(device, net, FASTEST, costs) as ours:
        trainer = None
        try:
            given = {t.name: value for t, value in ours.batch.items()}
            peer = Peer(net.graph("TRAIN"), ours.weights, run.place.torch)
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


def others(run: Run, name: str, batch: int, torch_seconds: float | None) -> dict[str, Any]:
    device, net = run.place.device(), run.place.net(name, batch)
    costs = costs_of(run, device, list(programs(net, TRAIN, ("TRAIN",)).values()))
    rows, shared = [], None
    for policy in POLICIES:
        if run.left() < (1 if run.place.small else 8):
            break
        try:
            with Loaded(device, net, policy, costs, shared) as ours:
                shared = ours.batch
                count = 1 if run.place.small else int(np.clip(TURN / ours.seconds(1), 2, 20))
                rows.append({
                    "policy": policy, "seconds": median(ours.seconds(count) for _ in range(3)),
                    "arena_bytes": ours.arrangement.arena, "host_bytes": ours.arrangement.host,
                })  # fmt: skip
        except (BudgetError, MemoryError) as error:
            run.say(f"{name} {policy}: {error}"[:300])
    values: dict[str, Any] = {"policies": rows, "torch_seconds_before": torch_seconds}
    fast = [r for r in rows if torch_seconds and r["seconds"] <= torch_seconds]
    if fast:
        values["smallest"] = min(fast, key=lambda r: r["arena_bytes"])
    return values


# ---- the same thing is computed


def agrees(run: Run, net: Net) -> dict[str, Any]:
    """Losses of a few updates from the same weights, without dropout, TF32 forbidden."""
    from benchmarks.gpu_check.peer import forget, settle

    device = run.place.device(tf32=False)
    settle(False)
    try:
        mine, theirs = losses(without_dropout(net), device, run.place.torch)
    finally:
        settle(True)
        forget()
    first, *later = (abs(a - b) / max(1.0, abs(b)) for a, b in zip(mine, theirs, strict=True))
    values = {"losses": mine, "torch_losses": theirs, "first": first, "later": max(later)}
    if not (first <= AGREE and max(later) <= AGREE_LATER):
        raise Wrong(f"losses {mine}, and PyTorch's {theirs}", values)
    return values


def losses(net: Net, device: Any, torch_device: str) -> tuple[list[float], list[float]]:
    """Ours on a device, and PyTorch's, of the same updates."""
    from benchmarks.gpu_check.peer import Peer, Trainer

    batch = batch_of(programs(net, TRAIN, ("TRAIN",))["TRAIN"], GENTLE)
    with Loaded(device, net, "liveness:m", estimate(device), batch, warm=COMPARED) as ours:
        given: Mapping[str, np.ndarray] = {t.name: value for t, value in batch.items()}
        trainer = Trainer(Peer(net.graph("TRAIN"), ours.weights, torch_device), given, TRAIN, GENTLE, warm=COMPARED)
        return ours.losses, trainer.losses


def without_dropout(net: Net) -> Net:
    layers = [
        layer.model_copy(update={"dropout_param": layer.dropout_param.model_copy(update={"dropout_ratio": 0.0})})
        if layer.type == "Dropout"
        else layer
        for layer in net.parameter.layer
    ]
    return Net.from_parameter(net.parameter.model_copy(update={"layer": tuple(layers)}))
