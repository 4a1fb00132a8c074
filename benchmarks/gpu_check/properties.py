"""(h) The card's real properties, and whether cuDNN finds the same plans from them alone as on the card.

The properties are saved as properties.json for the offline tests, in the form that cuDNN takes on a machine without the
card. Plans are compared by name and workspace, in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.gpu_check.journal import whole
from benchmarks.gpu_check.run import Run, Wrong
from minidnn.backends.cuda.cudnn import Convolution
from minidnn.backends.cuda.device import OF_CUDNN
from minidnn.program import Op
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec

BATCH = 64


def item(run: Run) -> None:
    found: dict[str, Any] = {}

    def save() -> dict[str, Any]:
        found.update(run.place.properties())
        whole(run.folder / "properties.json", json.dumps(found, indent=1) + "\n")
        return {"properties": found, "cuda": run.place.device().description}

    if "properties" in run.done:
        found = run.done["properties"].get("values", {}).get("properties", {})
    run.case("properties", save)
    if not found:
        return
    without = run.place.deviceless(found)
    here = run.place.device().cudnn
    plans: dict[str, Any] = {}
    for name in run.place.planned:
        run.case(f"plans of {name}", lambda n=name: compare(run, n, here, without, plans), needs=2)
    if plans:
        path = run.folder / "plans.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        whole(path, json.dumps(before | plans, indent=0, sort_keys=True) + "\n")


def compare(run: Run, name: str, here: Any, without: Any, plans: dict[str, Any]) -> dict[str, Any]:
    """How many lists of plans, one per convolution and product of a net, are equal, equal but for order, or different.

    Adds the card's lists to `plans`."""
    net = run.place.net(name, None if run.place.small else BATCH)
    counts = {"equal": 0, "same_members": 0, "different": 0, "left_out": 0}
    listed, differences, best = 0, [], 0
    for problem in problems(net):
        if run.left() < 1:
            counts["left_out"] += 1
            continue
        lists = [[[p.name, p.workspace] for p in of.plans(problem)] for of in (here, without)]
        plans[str(problem)] = lists[0]
        listed += len(lists[0])
        best += lists[0][0] == lists[1][0]
        if lists[0] == lists[1]:
            counts["equal"] += 1
        elif sorted(lists[0]) == sorted(lists[1]):
            counts["same_members"] += 1
        else:
            counts["different"] += 1
            differences.append({"problem": str(problem), "card": lists[0][:6], "properties": lists[1][:6]})
    values = {**counts, "same_best": best, "plans": listed, "differences": differences[:10]}
    if not listed:
        raise Wrong("no plan was compared", values)
    return values


def problems(net: Any) -> Iterator[Convolution]:
    """The convolutions and products that cuDNN is asked for, each once, in the order of the net's ops."""
    seen: dict[Convolution, None] = {}

    class Listing:
        """Stands in for a Cudnn: notes each problem that plans are asked for, and returns none."""

        def plans(self, problem: Convolution) -> tuple:
            seen.setdefault(problem)
            return ()

    for op in programs(net, TrainSpec(), ("TRAIN",))["TRAIN"].ops:
        if op.kind in OF_CUDNN:
            _asked(OF_CUDNN[op.kind], Listing(), op)
    return iter(seen)


def _asked(recipes: Callable[[Any, Op], list], listing: Any, op: Op) -> None:
    try:
        recipes(listing, op)
    except IndexError:  # backends/cuda/inner_product.py looks at the first plan, and Listing returns none
        return
