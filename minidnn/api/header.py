"""What every document says of the job that it is about: the net, what it was planned for or run on, and its costs."""

from __future__ import annotations

from typing import Any

from minidnn import sizes
from minidnn.backends import open_device
from minidnn.costs import GPU, Costs
from minidnn.jobs.gpus import gpu
from minidnn.jobs.job import Job


def title(job: Job) -> str:
    """The net, its batch, its number format if that is another than float32, and its phase if that is not TRAIN."""
    batch, format = job.batch, job.setting.format
    parts = (
        job.name, f"batch {batch}" if batch else "", format if format != "float32" else "",
        "phase TEST" if job.forward else "",
    )  # fmt: skip
    return ", ".join(filter(None, parts))


def of_plan(job: Job, costs: Costs) -> dict[str, Any]:
    """The fields of a NetDocument of results, of a job that was planned with these costs."""
    device = {"device": costs.device} if costs.origin == "profile" else _device(job)
    link = {} if job.setting.ranks is None else {"link": job.network(costs).title}
    return {**_net(job), **device, **link, "origin": costs.origin}


def of_run(job: Job) -> dict[str, Any]:
    """The fields of a NetDocument of results, of a job that its device ran."""
    return {**_net(job), **_device(job), "origin": "run"}


def device_of(job: Job) -> str:
    """The device's name and description: libraries, threads, whether TF32 is allowed. The results depend on these."""
    device = open_device(job.setting.device)
    return f"{device.name}: {device.description}"


def notes(job: Job, costs: Costs) -> str:
    """Where the seconds of `costs` come from, what links ranks, and how much of the host plans may use, in a few
    sentences."""
    return f"{_of_costs(job, costs)}{_of_ranks(job, costs)}"


def _net(job: Job) -> dict[str, Any]:
    setting, phase = job.setting, "TEST" if job.forward else "TRAIN"
    return {
        "net": job.name, "batch": job.batch, "phase": phase, "format": setting.format, "ranks": setting.ranks,
        "host_budget_bytes": setting.host_budget,
    }  # fmt: skip


def _device(job: Job) -> dict[str, Any]:
    device = open_device(job.setting.device)
    return {"device": device.name, "description": device.description}


def _of_costs(job: Job, costs: Costs) -> str:
    if costs.origin == "profile":
        card, format, more = gpu(costs.device), job.setting.format, ""
        if format != "float32" and getattr(card, f"{format}_flops") is None:
            more = f" It has no rates of {format}: arithmetic takes as long as in float32."
        elif format == "float32" and card.tf32_flops is not None:
            more = f" TF32 is {'allowed (--gpu NAME:fp32 forbids it)' if card.tf32 else 'forbidden'}."
        return f"Simulated on {card.title} from the profile {costs.device}.{more}{_of_host(job, card)}"
    how = {"measured": "measured costs of", "estimated": "estimated costs of"}[costs.origin]
    more = "" if costs.origin == "measured" else " `minidnn profile` measures them, and --costs measured takes those."
    return f"Simulated with {how} this machine ({costs.device}).{more}"


def _of_ranks(job: Job, costs: Costs) -> str:
    ranks = job.setting.ranks
    if ranks is None:
        return ""
    link = "" if ranks == 1 else f" Ranks are linked by {job.network(costs).title}."
    alone = " A net without a solver is updated by SGD with momentum." if job.solver is None else ""
    return f"{link}{alone}"


def _of_host(job: Job, card: GPU) -> str:
    if not job.host_assumed:
        return ""
    allowed = sizes.text(job.setting.host_budget or 0)
    if card.host_memory is not None:
        return f" Its memory is the host's: plans may keep {allowed} of it there (--host-budget)."
    return f" Assumed: {allowed} of the host (--host-budget)."
