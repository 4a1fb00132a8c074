"""(u) A large net whose weights the host updates (`zero_offload`), as a replayed graph, in float32.

It must have the losses of the same net where the card updates them, with the same algorithms. Its seconds are compared
with those.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

from benchmarks.gpu_check.measure import Loaded
from benchmarks.gpu_check.policies import same_algorithms
from benchmarks.gpu_check.run import Run, Wrong
from minidnn.costs import estimate

HOSTED, HERE = "zero_offload", "liveness:p"


def item(run: Run) -> None:
    for name, batch in run.place.hosted:
        run.case(f"{name}, {batch}", partial(updated, run, name, batch), needs=1 if run.place.small else 8)


def updated(run: Run, name: str, batch: int) -> dict[str, Any]:
    """Raises Wrong if the host runs no update, or if losses differ."""
    device, net = run.place.device(), run.place.net(name, batch)
    costs, turns = estimate(device), 1 if run.place.small else 5
    with Loaded(device, net, HOSTED, costs) as hosted:
        waited, launched = hosted.both_ways()
        seconds, arranged, given = median(hosted.seconds(1) for _ in range(turns)), hosted.arrangement, hosted.batch
    with Loaded(device, net, HERE, same_algorithms(costs, arranged), given) as here:
        want, _ = here.both_ways()
        on_card, arena = median(here.seconds(1) for _ in range(turns)), here.arrangement.arena
    by_host = len(arranged.schedules["TRAIN"].plan.host_ops)
    values = {
        "updates_by_host": by_host, "seconds": seconds, "over_card": seconds / on_card, "arena_bytes": arranged.arena,
        "arena_on_card_bytes": arena, "host_bytes": arranged.host, "losses": want, "waited": waited,
        "launched": launched,
    }  # fmt: skip
    if not by_host:
        raise Wrong("the host runs no update", values)
    if not waited == launched == want:
        raise Wrong(f"losses {waited}, launched {launched}, and {want} where the card runs all updates", values)
    return values
