"""Facts of the vDNN paper that are tried in place of ours, one net at a time.

The profile's workspaces and its efficiency of implicit GEMM are each one number for all nets. The paper gives both for
each net: Figure 4 the largest workspace, Figure 14 the speed of baseline (m) relative to (p). And it says with which
plan the trials of vDNN_dyn ended.
"""

from __future__ import annotations

from dataclasses import replace

from minidnn.costs import GPU, Costs, gpu
from minidnn.costs.roofline import Number
from minidnn.jobs.compare import Result
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import complete
from minidnn.memory.policies.papers.vdnn import every, feature_extraction, greedy, vdnn_conv
from minidnn.memory.schedule import Arrangement
from minidnn.program import Program
from minidnn_papers.row import MIB
from minidnn_papers.vdnn_counted import Counted, count

FOUND = 40  # halvings of the efficiency's interval
SOURCE = "tried"


def measured(p: Program, card: str, slowness: float, workspace: float | None = None) -> tuple[GPU, float]:
    """The profile of `card` with this net's numbers, and its efficiency of implicit GEMM.

    slowness:  the speed of baseline (m) relative to (p)
    workspace: the largest of the net, MiB; None: the profile's
    """
    profile = gpu(card)
    if workspace is not None:
        largest = max(c.algorithm.workspace for op in p.ops for c in profile.choices(op))
        times = workspace * MIB / largest
        profile = replace(
            profile,
            workspace_maps=Number(profile.workspace_maps.value * times, SOURCE),
            workspace_filters=Number(profile.workspace_filters.value * times, SOURCE),
        )
    low, high = 0.05, 1.0
    for _ in range(FOUND):
        middle = (low + high) / 2
        low, high = (middle, high) if speed(p, _with(profile, middle)) < slowness else (low, middle)
    return _with(profile, low), low


def _with(profile: GPU, efficiency: float) -> GPU:
    return replace(profile, implicit_gemm=Number(efficiency, SOURCE))


def speed(p: Program, profile: GPU) -> float:
    """The speed of the leanest algorithms relative to the fastest, in the feature extraction, without copies."""
    features = {layer.name for layer in feature_extraction(p)}
    choices = [profile.choices(op) for op in p.ops if op.layer in features]
    return sum(min(c.seconds for c in some) for some in choices) / sum(some[0].seconds for some in choices)


def ended(p: Program, costs: Costs, with_: str) -> Counted | None:
    """vDNN_dyn's plan if its trials end with `with_`: conv with the fastest algorithms, or all with those that fit the
    card. None if none of the latter fits."""
    plan = vdnn_conv(p, costs, costs.memory, "p") if with_ == "vdnn_conv" else greedy(p, costs, costs.memory, every)
    if plan is None:
        return None
    schedule = place(lower(p, complete(p, costs, plan)))
    arrangement = Arrangement.of("vdnn_dyn", {p.name: schedule}, costs.memory)
    return count(Result("vdnn_dyn", arrangement, costs))
