"""What a trace of a module takes as given: its structure, its hooks, its plain attributes, and what its functions read.

A trace runs the module's Python once; a plan repeats what it did. So whatever Python read must be as it was. From the
module, and from the loss, this walks to all that may be read: attributes, what they hold in turn (lists, dicts, objects
of the user's classes), hooks, and the globals, closures and defaults of the functions. Functions of PyTorch and of
Python's own library are taken as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from minidnn.torch.experimental import HOOKS, dicts_of
from minidnn.torch.facts import MISSING, PLAIN, Facts, content, get
from minidnn.torch.user_code import codes_of, is_users_file, names_of, of_user, watched, with_lines

if TYPE_CHECKING:
    import torch

MOST = 1000  # of a larger container its length alone is compared


class Fingerprint:
    """What may be read from these roots, and a number for each set of its values.

    state: the number of the present values
    """

    def __init__(self, module: torch.nn.Module, *more: Any) -> None:
        self.module, self.more = module, more
        self._states: dict[Any, int] = {}
        self._alive: list[Any] = []  # what a state knows by its identity, which must not become another's
        self._reasons: list[str] = []
        self._walk, self.state = self._read()

    def changed(self) -> bool:
        """Whether anything has changed since the last call; then `state` may be another."""
        if self._walk.same():
            return False
        self._reasons += self._walk.differences()[:1]
        self._walk, self.state = self._read()
        return True

    def differences(self) -> list[str]:
        """The names of what has changed since the last call of `changed`."""
        return self._walk.differences()

    def line(self, name: str) -> tuple[str, int]:
        """The file and the line where a function that may run sets what has this name, or else where one reads it."""
        key = name.partition("[")[0].rpartition(".")[2]
        codes = [
            code for f in self._walk.known.values() if isinstance(f, FunctionType) for code in codes_of(f.__code__)
        ]
        found = [
            (not one.opname.startswith("STORE"), code.co_filename, line) for code in codes if code.co_name != "__init__"
            for one, line in with_lines(code) if one.argval == key and one.opname.startswith(("STORE_", "LOAD_"))
        ]  # fmt: skip
        return min(found, key=lambda x: x[0])[1:] if found else ("", 0)

    def restore(self) -> None:
        """Give attributes and containers the values that they had at the last call of `changed`."""
        self._walk.restore()

    def reason(self) -> str:
        """What has changed most recently, for an error."""
        return f"{self._reasons[-1]} has changed" if self._reasons else "shapes or plain arguments differ each time"

    def _read(self) -> tuple[_Walk, int]:
        walk = _Walk()
        walk.visit(self.module, "")
        for root in self.more:
            walk.visit(root, getattr(root, "__name__", type(root).__name__))
        known = len(self._states)
        state = self._states.setdefault(walk.values(), known)
        if state == known:
            self._alive.append(walk.known)
        return walk, state


class _Walk(Facts):
    """Everything that has been found.

    known: all that was visited, by identity
    """

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, Any] = {}
        self.base = frozenset(self.torch.nn.Module().__dict__) - {"training", *HOOKS}

    def visit(self, value: Any, name: str) -> None:
        if isinstance(value, PLAIN) or id(value) in self.known:
            return
        if finder := self._finder(value):
            self.known[id(value)] = value
            finder(value, name)
        elif not isinstance(value, self.torch.Tensor):
            self.known[id(value)] = value

    def _finder(self, value: Any) -> Callable[[Any, str], None] | None:
        torch = self.torch
        if isinstance(value, torch.Tensor | torch.jit.ScriptModule | ModuleType):
            return None
        if isinstance(value, torch.nn.Module):
            return self._module
        if isinstance(value, dict):
            return self._mapping
        if isinstance(value, list | tuple | set | frozenset | deque):
            return self._sequence
        if isinstance(value, FunctionType):
            return self._function if watched(value.__code__.co_filename) else None
        if isinstance(value, MethodType | partial | staticmethod | classmethod | property):
            return self._wrapped
        if isinstance(value, np.ndarray):
            return self._array
        if isinstance(value, type):
            return self._class if of_user(value) else None
        return self._object if of_user(type(value)) and hasattr(value, "__dict__") else None

    def _module(self, m: Any, name: str) -> None:
        own = m.__dict__
        foreign = of_user(type(m))
        for held, kind in zip(dicts_of(m), ("parameters", "buffers", "children"), strict=True):
            self._entries(held, f"{name}.{kind}" if name else kind, list(held))
        skipped = {key for key in own if key in self.base or (not foreign and key.startswith("_") and key not in HOOKS)}
        if hasattr(own.get("forward"), "planned_by"):
            skipped.add("forward")
        if foreign:
            self._entries(own, name, [key for key in own if key not in skipped])
        else:
            self.names[id(own)] = name
            self.sizes.append((own, tuple(own)))
            keys = [key for key in own if key not in skipped and not isinstance(own[key], self.torch.Tensor)]
            self.entries += [(own, key, own[key]) for key in keys]
        for key in HOOKS:
            self._entries(own[key], f"{name}.hooks" if name else "hooks", list(own[key]))
        for key, child in dicts_of(m)[2].items():
            self.visit(child, f"{name}.{key}" if name else key)
        for key, value in list(own.items()):
            if key not in skipped and key not in HOOKS:
                self.visit(value, self.join(name, key))
        self.visit(type(m), type(m).__name__)

    def _entries(self, held: Any, name: str, keys: list[Any]) -> None:
        self.names[id(held)] = name
        self.sizes.append((held, tuple(held)))
        self.entries += [(held, key, get(held, key)) for key in keys]
        if name.endswith("hooks"):
            for key in keys:
                self.visit(get(held, key), name)

    def _mapping(self, value: Any, name: str) -> None:
        if len(value) > MOST:
            self.names[id(value)] = name
            self.sizes.append((value, tuple(value)))
            return
        self._entries(value, name, list(value))
        for key, x in list(value.items()):
            self.visit(x, f"{name}[{key!r}]")

    def _sequence(self, value: Any, name: str) -> None:
        self.names[id(value)] = name
        if not isinstance(value, tuple | frozenset):
            self.sequences.append((value, tuple(value) if len(value) <= MOST else (MISSING,) * len(value)))
        if len(value) <= MOST:
            for i, x in enumerate(value):
                self.visit(x, f"{name}[{i}]")

    def _function(self, f: Any, name: str) -> None:
        names = names_of(f.__code__)
        modules = []
        for key in names:
            if key in f.__globals__:
                self._global(f.__globals__, key)
                if isinstance(f.__globals__[key], ModuleType):
                    modules.append(f.__globals__[key])
        for module in modules:
            if is_users_file(getattr(module, "__file__", None) or ""):
                for key in names:
                    if key in module.__dict__:
                        self._global(module.__dict__, key)
        for key, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            self.names[id(cell)] = key
            self.known[id(cell)] = cell
            self.cells.append((cell, content(cell)))
            self.visit(content(cell), key)
        self.visit(f.__defaults__, f"{name}.__defaults__")
        self.visit(f.__kwdefaults__, f"{name}.__kwdefaults__")

    def _global(self, held: dict[str, Any], key: str) -> None:
        if (id(held), key) not in self.known:
            self.known[id(held), key] = held  # type: ignore[index]
            self.names.setdefault(id(held), "")
            self.entries.append((held, key, get(held, key)))
            self.visit(get(held, key), key)

    def _wrapped(self, value: Any, name: str) -> None:
        for key in ("__func__", "__self__", "func", "args", "keywords", "fget"):
            self.visit(getattr(value, key, None), name)

    def _class(self, value: type, name: str) -> None:
        for one in value.__mro__:
            if of_user(one):
                own = one.__dict__
                self.known[id(own)] = own
                self.names[id(own)] = one.__name__
                for key, x in own.items():
                    if key.startswith("__") and not isinstance(x, FunctionType):
                        continue
                    self.entries.append((own, key, x))
                    self.visit(x, f"{one.__name__}.{key}")

    def _array(self, value: np.ndarray, name: str) -> None:
        if value.nbytes <= 1 << 16 and value.dtype != object:
            self.names[id(value)] = name
            self.arrays.append((value, value.tobytes()))

    def _object(self, value: Any, name: str) -> None:
        own = vars(value)
        self.known[id(own)] = own
        self._entries(own, name, list(own))
        for key, x in list(own.items()):
            self.visit(x, self.join(name, key))
        self.visit(type(value), type(value).__name__)
