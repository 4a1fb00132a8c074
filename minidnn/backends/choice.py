"""Finds a backend's recipe for the algorithm that a plan chose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from minidnn.program import Algorithm, Op


class Recipe(Protocol):
    @property
    def algorithm(self) -> Algorithm: ...


R = TypeVar("R", bound=Recipe)


def choose(recipes: Sequence[R], op: Op, algorithm: Algorithm, workspace: int, device: str) -> R:
    """The recipe for `op` by that algorithm. Raises ValueError if no recipe has this algorithm (name and workspace), or
    if the algorithm needs more than the `workspace` bytes given."""
    for recipe in recipes:
        if recipe.algorithm == algorithm:
            break
    else:
        offered = ", ".join(f"{r.algorithm.name} ({r.algorithm.workspace} B)" for r in recipes)
        raise ValueError(
            f"{op.name}: no algorithm {algorithm.name} with {algorithm.workspace} B of workspace; "
            f"{device} offers {offered}"
        )
    if workspace < algorithm.workspace:
        raise ValueError(f"{op.name}: {algorithm.name} needs {algorithm.workspace} B of workspace, given {workspace} B")
    return recipe
