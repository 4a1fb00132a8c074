"""What every document says of the job that it is about: the net, what it was planned for or run on, and its costs."""

from __future__ import annotations

from typing import Any

from minidnn import sizes
from minidnn.costs import Costs
from minidnn.jobs.gpus import gpu
from minidnn.jobs.plannable import Plannable
from minidnn.memory.execution.device import Device
from minidnn.spoken import option


def title(job: Plannable) -> str:
    """The net, its batch, its number format if that is another than float32, and its phase if that is not TRAIN."""
    batch, format = job.batch, job.format
    parts = (
        job.name, f"batch {batch}" if batch else "", format if format != "float32" else "",
        "phase TEST" if job.forward else "",
    )  # fmt: skip
    return ", ".join(filter(None, parts))


def of_plan(job: Plannable, costs: Costs) -> dict[str, Any]:
    """The fields of a NetDocument of results, of a job that was planned with these costs."""
    here = None if costs.origin == "profile" else job.here
    device = {"device": costs.device} if here is None else _device(here)
    link = {} if job.ranked is None else {"link": job.ranked.network(costs).title}
    return {**_net(job), **device, **link, "origin": costs.origin}


def of_run(job: Plannable, device: Device) -> dict[str, Any]:
    """The fields of a NetDocument of results, of a job that this device ran."""
    return {**_net(job), **_device(device), "origin": "run"}


def device_of(device: Device) -> str:
    """The device's name and description: libraries, threads, whether TF32 is allowed. The results depend on these."""
    return f"{device.name}: {device.description}"


def notes(job: Plannable, costs: Costs) -> str:
    """Where the seconds of `costs` come from, what links ranks, and how much of the host plans may use, in a few
    sentences."""
    return f"{job.told(costs)}{_of_host(job, costs)}{_of_ranks(job, costs)}"


def _net(job: Plannable) -> dict[str, Any]:
    setting, phase = job.setting, "TEST" if job.forward else "TRAIN"
    return {
        "net": job.name, "batch": job.batch, "tokens": job.tokens, "phase": phase, "format": job.format,
        "ranks": setting.ranks, "host_budget_bytes": setting.host_budget,
    }  # fmt: skip


def _device(device: Device) -> dict[str, Any]:
    return {"device": device.name, "description": device.description}


def _of_ranks(job: Plannable, costs: Costs) -> str:
    if (ranked := job.ranked) is None:
        return ""
    link = "" if job.setting.ranks == 1 else f" Ranks are linked by {ranked.network(costs).title}."
    return f"{link}{ranked.remarks}"


def _of_host(job: Plannable, costs: Costs) -> str:
    if not job.host_assumed or costs.origin != "profile":
        return ""
    allowed = sizes.text(job.setting.host_budget or 0)
    if gpu(costs.device).host_memory is not None:
        shared = f"It shares the host's memory, of which plans may take {allowed} for the host's part"
        return f" {shared} ({option('host_budget')})."
    return f" Assumed: {allowed} of host memory ({option('host_budget')})."
