"""What mappings, lists, closures and arrays held, and whether they still do."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidnn.torch.installed import torch_module

PLAIN = (bool, int, float, complex, str, bytes, type(None))
MISSING = object()


class Facts:
    """What has been found: holders with what they held.

    entries:   (mapping, key, value)
    sizes:     (mapping, its keys)
    sequences: (list, set or deque, its elements)
    cells:     (cell of a closure, value)
    arrays:    (array, its bytes)
    names:     of holders, by their identity
    """

    def __init__(self) -> None:
        self.entries: list[tuple[Any, Any, Any]] = []
        self.sizes: list[tuple[Any, tuple[Any, ...]]] = []
        self.sequences: list[tuple[Any, tuple[Any, ...]]] = []
        self.cells: list[tuple[Any, Any]] = []
        self.arrays: list[tuple[np.ndarray, bytes]] = []
        self.names: dict[int, str] = {}
        self.torch = torch_module()

    def same(self) -> bool:
        """Whether all is as it was."""
        for held, key, value in self.entries:
            now = get(held, key)
            if now is not value and not _equal(now, value):
                return False
        return (
            all(len(held) == len(keys) for held, keys in self.sizes)
            and all(_as_it_was(held, was) for held, was in self.sequences)
            and all(content(cell) is value or _equal(content(cell), value) for cell, value in self.cells)
            and all(array.tobytes() == was for array, was in self.arrays)
        )

    def differences(self) -> list[str]:
        """The names of what is not as it was."""
        result = [
            self.join(self.names.get(id(held), ""), key) for held, key, value in self.entries
            if (now := get(held, key)) is not value and not _equal(now, value)
        ]  # fmt: skip
        for held, keys in self.sizes:
            result += [self.join(self.names.get(id(held), ""), key) for key in held if key not in keys]
        changed = [held for held, was in self.sequences if not _as_it_was(held, was)]
        changed += [c for c, value in self.cells if content(c) is not value and not _equal(content(c), value)]
        changed += [array for array, was in self.arrays if array.tobytes() != was]
        return [*result, *(self.names[id(x)] for x in changed)]

    def restore(self) -> None:
        """Let all that can be changed be as it was."""
        for held, keys in self.sizes:
            for key in [key for key in held if key not in keys]:
                if isinstance(held, dict):
                    del held[key]
        for held, key, value in self.entries:
            if isinstance(held, dict) and get(held, key) is not value:
                held[key] = value
        for held, was in self.sequences:
            if isinstance(held, list) and not _as_it_was(held, was):
                held[:] = was
            elif isinstance(held, set) and not _as_it_was(held, was):
                held.clear()
                held.update(was)
        for cell, value in self.cells:
            if content(cell) is not value and value is not MISSING:
                cell.cell_contents = value

    def values(self) -> tuple[Any, ...]:
        """All values, as a key: what has no value of its own by its identity."""
        return (
            tuple((key, self._token(held, value)) for held, key, value in self.entries),
            tuple(len(keys) for _, keys in self.sizes),
            tuple(tuple(self._token(None, x) for x in was) for _, was in self.sequences),
            tuple(self._token(None, value) for _, value in self.cells),
            tuple(was for _, was in self.arrays),
        )

    def _token(self, held: Any, value: Any) -> Any:
        if isinstance(value, PLAIN):
            return type(value), value
        if isinstance(value, self.torch.nn.Module):
            return type(value)
        if isinstance(value, self.torch.Tensor) and self.names.get(id(held), "").endswith(("parameters", "buffers")):
            return "tensor"  # its geometry is looked at in each step
        if isinstance(value, dict | list | tuple | set):
            return type(value), len(value)
        return id(value)

    @staticmethod
    def join(name: str, key: Any) -> str:
        """The name of what a holder of this name holds."""
        base, _, last = name.rpartition(".")
        if last in ("parameters", "buffers", "children", "hooks"):
            name = base
        return ".".join(part for part in (name, str(key)) if part)


def get(held: Any, key: Any) -> Any:
    """What is there, also in dictionaries of a class that makes something of it (`ACT2FN` of transformers)."""
    return dict.get(held, key, MISSING) if isinstance(held, dict) else held.get(key, MISSING)


def content(cell: Any) -> Any:
    """What a cell of a closure holds; MISSING: nothing yet."""
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return MISSING


def _equal(now: Any, was: Any) -> bool:
    if type(now) is not type(was):
        return False
    if isinstance(was, tuple):
        return len(now) == len(was) and all(a is b or _equal(a, b) for a, b in zip(now, was, strict=True))
    return isinstance(was, PLAIN) and bool(now == was)


def _as_it_was(held: Any, was: tuple[Any, ...]) -> bool:
    """Whether a sequence or a set has what it had. A set may have got classes: so libraries note what they have done
    for a class, once."""
    if isinstance(held, set) and held.issuperset(was):
        return all(isinstance(x, type) for x in held.difference(was))
    return len(held) == len(was) and _alike(held, was)


def _alike(held: Any, was: tuple[Any, ...]) -> bool:
    return not was or was[0] is MISSING or all(a is b or _equal(a, b) for a, b in zip(held, was, strict=False))
