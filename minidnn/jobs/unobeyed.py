"""Fields of a file that minidnn reads and does not obey: one sentence names them, so that nothing is ignored
silently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pydantic import BaseModel

from minidnn.schema.message import Message
from minidnn.schema.table import fields
from minidnn.spoken import many, option

if TYPE_CHECKING:
    from minidnn.memory.execution.device import Device
    from minidnn.nets.net import Net
    from minidnn.schema import SolverParameter


def unobeyed(nets: Iterable[Net], solver: SolverParameter | None, device: str | Device | None) -> list[str]:
    """The sentence about the fields of these nets and this solver that change nothing on that device; none if there are
    none. device: None: a GPU that is simulated"""
    nets = list(dict.fromkeys(nets))
    layers = {id(layer): layer for net in nets for layer in net.layers}  # nets of several states share theirs
    given = Counter(name for layer in layers.values() for name in _given(layer))
    text = [f"{name} of {many(count, 'layer')}" for name, count in sorted(given.items())]
    if any(net.parameter.eltwise_mem_sharing for net in nets):
        text.append("eltwise_mem_sharing of the net (a policy decides)")
    if any(net.parameter.state.phase for net in nets):
        text.append("phase of the net's state (the command chooses)")
    name = "cuda, simulated" if device is None else device if isinstance(device, str) else device.name
    if solver is not None and solver.has("solver_mode") and (solver.solver_mode == "GPU") != name.startswith("cuda"):
        text.insert(0, f"solver_mode {solver.solver_mode} ({option('device')} chooses; this is {name})")
    if solver is not None and device is not None and solver.has("device_id") and f"cuda:{solver.device_id}" != name:
        text.append(f"device_id {solver.device_id} ({option('device')} chooses: cuda:{solver.device_id})")
    if solver is not None and solver.snapshot_format == "HDF5":
        text.append("snapshot_format HDF5 (snapshots are safetensors)")
    return [f"read, but not obeyed: {', '.join(text)}"] if text else []


def _given(message: BaseModel) -> set[str]:
    """The names of the fields in this message, and in those within it, that are given and change nothing."""
    known, result = fields(type(message)), set()
    for name in message.model_fields_set & known.keys():
        value = getattr(message, name)
        if not known[name].obeyed:
            result |= {name} if value != known[name].default else set()
        elif isinstance(value, Message):
            result |= _given(value)
    return result
