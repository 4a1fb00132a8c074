"""The host's memory as planning sees it: the bytes that every plan of a program takes there, and the room left for
offloaded tensors.

The exact number is known after the lowering (Arrangement.off_device), and never exceeds the count made here. Without a
ring that is a pinned place for each offloaded tensor; with one, the whole ring, and a place in the store for each
tensor. Where bytes are pinned on demand, each tensor counts with its pinned bytes and with those in the store. With a
disk behind the store any number of tensors may leave once there is room for pinned bytes; else the store limits them.
`best` plans within this room; the papers' policies are refused if they exceed it.
"""

from __future__ import annotations

from collections.abc import Sequence

from minidnn.costs import Costs
from minidnn.memory.lowering.placement import persistent_layout
from minidnn.memory.lowering.staging import STAGING_SLOTS
from minidnn.memory.schedule import BLOCK, aligned, stored_bound
from minidnn.program import Program, Tensor


def fixed(program: Program) -> int:
    """Bytes of the host that every plan of the program takes: host-resident tensors, outputs, and two places for each
    input."""
    return _fixed_bytes(program, frozenset())


def fixed_together(programs: Sequence[Program]) -> int:
    """`fixed` of all programs of a net, which share the persistent layout."""
    return persistent_layout(*programs).host_bytes + sum(
        fixed(program) - persistent_layout(program).host_bytes for program in programs
    )


def place(t: Tensor, costs: Costs) -> int:
    """Bytes that a tensor takes on the host if it travels."""
    staging = costs.staging
    if staging is None:
        return aligned(t.nbytes)
    stored = aligned(stored_bound(t, staging.compress))
    if not staging.on_demand:
        return stored
    return aligned(t.nbytes, BLOCK) + (stored if staging.disk is None else 0)


def host_room(program: Program, costs: Costs, free: frozenset[Tensor] = frozenset()) -> int | None:
    """Bytes of the host's budget that are left for what may travel; below 0 if even less than `fixed` may be taken.
    None: there is no budget, or all of the program has room.

    free: host-resident tensors that may live on the device instead: they count as such that may travel
    """
    if costs.host is None:
        return None
    left = costs.host - _fixed_bytes(program, free)
    lasting = frozenset((*program.inputs, *program.persistent, *program.outputs, *program.host_resident)) - free
    may = [t for t in program.tensors if t not in lasting]
    if costs.staging is not None and not costs.staging.on_demand and may:
        ring = costs.staging.ring or STAGING_SLOTS * max(aligned(t.nbytes, BLOCK) for t in may)
        left -= aligned(ring, BLOCK)
        if costs.staging.disk is not None and left >= BLOCK:
            return None
    return None if sum(place(t, costs) for t in may) <= left else left


def may_lack_room(program: Program, costs: Costs) -> bool:
    """Whether the host has too little room for all that might be there, persistent tensors among it."""
    return host_room(program.with_host_resident(program.movable), costs, program.movable) is not None


def _fixed_bytes(program: Program, free: frozenset[Tensor]) -> int:
    """`fixed`, without host bytes of `free` tensors."""
    there = dict.fromkeys((*program.host_resident, *program.inputs, *program.outputs))
    return sum(aligned(t.nbytes) * (2 if t in program.inputs else 1) for t in there if t not in free)
