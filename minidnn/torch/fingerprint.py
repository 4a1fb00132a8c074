"""What a trace of a module takes as given: its structure, its hooks, its plain attributes, and what its functions read.

A trace runs the module's Python once; a plan repeats what it did. So whatever Python read must be as it was. From the
module, and from the loss, this walks to all that may be read: attributes, what they hold in turn (lists, dicts, objects
of the user's classes), hooks, and the globals, closures and defaults of the functions. Functions of PyTorch and of
Python's own library are taken as they are.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from minidnn.torch.installed import torch_folder, torch_module

if TYPE_CHECKING:
    import torch

PLAIN = (bool, int, float, complex, str, bytes, type(None))
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
MOST = 1000  # of a larger container its length alone is compared
_MISSING = object()


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
        codes = [code for f in self._walk.known.values() if isinstance(f, FunctionType) for code in _codes(f.__code__)]
        found = [
            (not one.opname.startswith("STORE"), code.co_filename, line) for code in codes if code.co_name != "__init__"
            for one, line in _with_lines(code) if one.argval == key and one.opname.startswith(("STORE_", "LOAD_"))
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


class _Walk:
    """Everything that has been found, as holders with what they held.

    entries:   (mapping, key, value)
    sizes:     (mapping, its keys)
    sequences: (list, set or deque, its elements)
    cells:     (cell of a closure, value)
    arrays:    (array, its bytes)
    """

    def __init__(self) -> None:
        self.entries: list[tuple[Any, Any, Any]] = []
        self.sizes: list[tuple[Any, tuple[Any, ...]]] = []
        self.sequences: list[tuple[Any, tuple[Any, ...]]] = []
        self.cells: list[tuple[Any, Any]] = []
        self.arrays: list[tuple[np.ndarray, bytes]] = []
        self.names: dict[int, str] = {}
        self.known: dict[int, Any] = {}  # all that was visited, by identity
        self.torch = torch_module()
        self.base = frozenset(self.torch.nn.Module().__dict__) - {"training", *HOOKS}

    # ---- comparing

    def same(self) -> bool:
        for held, key, value in self.entries:
            now = _get(held, key)
            if now is not value and not _equal(now, value):
                return False
        return (
            all(len(held) == len(keys) for held, keys in self.sizes)
            and all(_as_it_was(held, was) for held, was in self.sequences)
            and all(_content(cell) is value or _equal(_content(cell), value) for cell, value in self.cells)
            and all(array.tobytes() == was for array, was in self.arrays)
        )

    def differences(self) -> list[str]:
        """The names of what is not as it was."""
        result = [
            self._join(self.names.get(id(held), ""), key) for held, key, value in self.entries
            if (now := _get(held, key)) is not value and not _equal(now, value)
        ]  # fmt: skip
        for held, keys in self.sizes:
            result += [self._join(self.names.get(id(held), ""), key) for key in held if key not in keys]
        changed = [held for held, was in self.sequences if not _as_it_was(held, was)]
        changed += [c for c, value in self.cells if _content(c) is not value and not _equal(_content(c), value)]
        changed += [array for array, was in self.arrays if array.tobytes() != was]
        return [*result, *(self.names[id(x)] for x in changed)]

    def restore(self) -> None:
        for held, keys in self.sizes:
            for key in [key for key in held if key not in keys]:
                if isinstance(held, dict):
                    del held[key]
        for held, key, value in self.entries:
            if isinstance(held, dict) and _get(held, key) is not value:
                held[key] = value
        for held, was in self.sequences:
            if isinstance(held, list) and not _as_it_was(held, was):
                held[:] = was
            elif isinstance(held, set) and not _as_it_was(held, was):
                held.clear()
                held.update(was)
        for cell, value in self.cells:
            if _content(cell) is not value and value is not _MISSING:
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
    def _join(name: str, key: Any) -> str:
        base, _, last = name.rpartition(".")
        if last in ("parameters", "buffers", "children", "hooks"):
            name = base
        return ".".join(part for part in (name, str(key)) if part)

    # ---- finding

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
            return self._function if _watched(value.__code__.co_filename) else None
        if isinstance(value, MethodType | partial | staticmethod | classmethod | property):
            return self._wrapped
        if isinstance(value, np.ndarray):
            return self._array
        if isinstance(value, type):
            return self._class if _of_user(value) else None
        return self._object if _of_user(type(value)) and hasattr(value, "__dict__") else None

    def _module(self, m: Any, name: str) -> None:
        own = m.__dict__
        foreign = _of_user(type(m))
        for held, kind in ((m._parameters, "parameters"), (m._buffers, "buffers"), (m._modules, "children")):
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
        for key, child in m._modules.items():
            self.visit(child, f"{name}.{key}" if name else key)
        for key, value in list(own.items()):
            if key not in skipped and key not in HOOKS:
                self.visit(value, self._join(name, key))
        self.visit(type(m), type(m).__name__)

    def _entries(self, held: Any, name: str, keys: list[Any]) -> None:
        self.names[id(held)] = name
        self.sizes.append((held, tuple(held)))
        self.entries += [(held, key, _get(held, key)) for key in keys]
        if name.endswith("hooks"):
            for key in keys:
                self.visit(_get(held, key), name)

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
            self.sequences.append((value, tuple(value) if len(value) <= MOST else (_MISSING,) * len(value)))
        if len(value) <= MOST:
            for i, x in enumerate(value):
                self.visit(x, f"{name}[{i}]")

    def _function(self, f: Any, name: str) -> None:
        names = _names(f.__code__)
        modules = []
        for key in names:
            if key in f.__globals__:
                self._global(f.__globals__, key)
                if isinstance(f.__globals__[key], ModuleType):
                    modules.append(f.__globals__[key])
        for module in modules:
            if _users(getattr(module, "__file__", None) or ""):
                for key in names:
                    if key in module.__dict__:
                        self._global(module.__dict__, key)
        for key, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            self.names[id(cell)] = key
            self.known[id(cell)] = cell
            self.cells.append((cell, _content(cell)))
            self.visit(_content(cell), key)
        self.visit(f.__defaults__, f"{name}.__defaults__")
        self.visit(f.__kwdefaults__, f"{name}.__kwdefaults__")

    def _global(self, held: dict[str, Any], key: str) -> None:
        if (id(held), key) not in self.known:
            self.known[id(held), key] = held  # type: ignore[index]
            self.names.setdefault(id(held), "")
            self.entries.append((held, key, _get(held, key)))
            self.visit(_get(held, key), key)

    def _wrapped(self, value: Any, name: str) -> None:
        for key in ("__func__", "__self__", "func", "args", "keywords", "fget"):
            self.visit(getattr(value, key, None), name)

    def _class(self, value: type, name: str) -> None:
        for one in value.__mro__:
            if _of_user(one):
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
            self.visit(x, self._join(name, key))
        self.visit(type(value), type(value).__name__)


def _equal(now: Any, was: Any) -> bool:
    if type(now) is not type(was):
        return False
    if isinstance(was, tuple):
        return len(now) == len(was) and all(a is b or _equal(a, b) for a, b in zip(now, was, strict=True))
    return isinstance(was, PLAIN) and bool(now == was)


def _watched(file: str) -> bool:
    """Whether what a file's functions read is watched. An installed package keeps caches and registries of its own,
    which are no part of a step; the attributes of its modules and of their classes are watched all the same."""
    return _users(file) and "site-packages" not in file and "dist-packages" not in file


def _get(held: Any, key: Any) -> Any:
    """What is there, also in dictionaries of a class that makes something of it (`ACT2FN` of transformers)."""
    return dict.get(held, key, _MISSING) if isinstance(held, dict) else held.get(key, _MISSING)


def _as_it_was(held: Any, was: tuple[Any, ...]) -> bool:
    """Whether a sequence or a set has what it had. A set may have got classes: so libraries note what they have done
    for a class, once."""
    if isinstance(held, set) and held.issuperset(was):
        return all(isinstance(x, type) for x in held.difference(was))
    return len(held) == len(was) and _alike(held, was)


def _alike(held: Any, was: tuple[Any, ...]) -> bool:
    return not was or was[0] is _MISSING or all(a is b or _equal(a, b) for a, b in zip(held, was, strict=False))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return _MISSING


def _codes(code: CodeType) -> list[CodeType]:
    """A function's code, and that of the functions within it."""
    return [code, *(inner for x in code.co_consts if isinstance(x, CodeType) for inner in _codes(x))]


def _with_lines(code: CodeType) -> Iterator[tuple[dis.Instruction, int]]:
    line = code.co_firstlineno
    starts = dict(dis.findlinestarts(code))
    for one in dis.get_instructions(code):
        line = starts.get(one.offset) or line
        yield one, line


@cache
def _names(code: CodeType) -> tuple[str, ...]:
    """The names that a function reads, those of the functions within it, too."""
    return tuple(dict.fromkeys(name for one in _codes(code) for name in one.co_names))


@cache
def _users(file: str) -> bool:
    """Whether a file is neither PyTorch's, nor NumPy's, nor Python's own, nor minidnn's."""
    if not file or file.startswith("<"):
        return bool(file)
    if "site-packages" not in file and file.startswith(sysconfig.get_paths()["stdlib"]):
        return False
    return not file.startswith((torch_folder(), str(Path(np.__file__).parent), str(Path(__file__).parents[1])))


def _of_user(one: Any) -> bool:
    return _is_users(one.__module__)


@cache
def _is_users(module: str) -> bool:
    """Whether a module of Python is neither the standard library's, nor PyTorch's, NumPy's or minidnn's."""
    top = module.partition(".")[0]
    return (top not in ("torch", "numpy", "minidnn") and top not in sys.stdlib_module_names) or top == "__main__"
