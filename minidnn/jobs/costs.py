"""The costs that a net is planned with: one rule for what predicts (`plan`, `compare`, ...) and for what runs.

A GPU that is simulated has those of its profile. A device has estimates, which are the same on every machine: so are
the plans, and the algorithms that numbers depend on. Costs that were measured on this machine (`minidnn profile`) are
taken where a user asks for them, and by comparisons that run on the host (jobs/profile.py). Gradient buckets are sized
before the ops are known, so never by measured costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from minidnn.costs import Costs, disks, estimate, measured, measurements
from minidnn.costs.parts import PART_COPIES
from minidnn.errors import InvalidInput, few
from minidnn.jobs.gpus import gpu
from minidnn.jobs.setting import Setting
from minidnn.memory.execution.device import Device
from minidnn.program import Program
from minidnn.spoken import option


def device_costs(device: Device, programs: Sequence[Program], setting: Setting, warn: Callable[[str], object]) -> Costs:
    """The costs of the device for these programs, as the setting says.

    warn: called with a sentence if the kept measurements cannot be used

    Raises InvalidInput if measured costs are asked for and an op was not measured, or if ranks that train together have
    measured different ones: they must plan alike."""
    if not setting.measured:
        return estimate(device)
    known = measurements(device)
    if known.problem:
        warn(known.problem)
    if lacking := known.lacking([*PART_COPIES.values(), *(op for p in programs for op in p.ops)], device.algorithms):
        what = f"costs measured: there are no measurements of {few(lacking, 2)} on {device.name}"
        raise InvalidInput(f"{what}; run `minidnn profile` with the same FILE and options first")
    if setting.engine is not None and len(set(setting.engine.share(known.digest))) > 1:
        raise InvalidInput(
            "costs measured: the ranks have different measurements, but must plan alike; use estimated costs"
        )
    return measured(device, known, programs)


def told(costs: Costs, format: str) -> str:
    """Where the seconds of the costs come from, in sentences. format: the number format that is computed in"""
    if costs.origin == "profile":
        card, more = gpu(costs.device), ""
        if format != "float32" and getattr(card, f"{format}_flops") is None:
            more = f" It has no rates for {format}, so arithmetic is assumed to be as fast as in float32."
        elif format == "float32" and card.tf32_flops is not None:
            allowed = f"allowed ({option('gpu', 'NAME:fp32')} forbids it)"
            more = f" TF32 is {allowed if card.tf32 else 'forbidden'}."
        return f"Simulated on {card.title} from the profile {costs.device}.{more}"
    how = {"measured": "measured costs of", "estimated": "estimated costs of"}[costs.origin]
    more = (
        ""
        if costs.origin == "measured"
        else f" `minidnn profile` measures them, and {option('costs', 'measured')} uses the measurements."
    )
    return f"Simulated with {how} this machine ({costs.device}).{more}"


def staged(costs: Costs, setting: Setting) -> Costs:
    """The costs with the setting's placement, peers and staging, and the speed of its disk if that was measured.

    Raises InvalidInput for peers of a device at hand."""
    if setting.peers and costs.origin in ("measured", "estimated"):
        raise InvalidInput(f"a peer is simulated: name a card's profile, too ({option('gpu', 'NAME')})")
    staging = setting.staging
    if staging is not None and staging.disk is not None and setting.disk is not None:
        staging = replace(staging, disk=disks.measured(staging.disk, setting.disk))
    return replace(
        costs,
        staging=staging or costs.staging,
        placement=setting.placement or costs.placement,
        peers=setting.peers or costs.peers,
    )
