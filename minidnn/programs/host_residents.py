"""Which tensors live on the host because a user wants it: none, the optimizer's state, or all that lives from step to
step. A plan may send more there (Plan.host_resident)."""

from __future__ import annotations

from collections.abc import Iterable

from minidnn.program import Pass, Program, Role, Tensor

STATES = "device", "host", "all"  # what `state` may be


def host_residents(programs: Iterable[Program], state: str) -> frozenset[Tensor]:
    """The tensors of a net's programs that live on the host.

    state: one of STATES; "host" means the optimizer's state, which only updates use"""
    programs = list(programs)
    if state == "device":
        return frozenset()
    movable = frozenset(t for p in programs for t in p.movable)
    if state == "all":
        return movable
    used = {t for p in programs for op in p.ops if op.during is not Pass.UPDATE for t in op.tensors}
    return frozenset(t for t in movable if t.role is Role.STATE and t not in used)


def with_host_residents(programs: dict[str, Program], state: str) -> dict[str, Program]:
    """The same programs, with these tensors on the host."""
    moved = host_residents(programs.values(), state)
    return {name: program.with_host_resident(moved) for name, program in programs.items()}
