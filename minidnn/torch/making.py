"""FILE.py:FUNCTION: a user's function that makes a module with the arguments of a step, its loss and its optimizer.

    def make(batch=8):                          # batch may be left out
        module = GPT(...)
        x = torch.zeros(batch, 1024, dtype=torch.long)
        return module, (x, x), loss, torch.optim.AdamW(module.parameters())

The function runs on the device "meta", so that nothing is allocated. If that fails, since it computes with numbers, it
runs as it is, and a line says so.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from minidnn.errors import BadInput, InvalidInput, near
from minidnn.spoken import either, option
from minidnn.torch.example import Example
from minidnn.torch.installed import torch_module
from minidnn.zoo.files import parts
from minidnn.zoo.python_file import importing, run, theirs

MAKE = "make"  # the function, if none is named
FIELDS = ("module", "args", "loss", "optimizer")
FORMS = "(module, args), (module, args, loss), (module, args, loss, optimizer), or a dict of these names"
NUMBERS = '{} does not work on the device "meta", so it has allocated what it makes'
Tell = Callable[[str], object]


def made(source: str, batch: int | None = None, tell: Tell = lambda sentence: None) -> Example:
    """What the function of FILE.py:FUNCTION returns.

    batch: of the arguments; None: the function's own
    tell:  gets a sentence if something is allocated

    Raises NoTorch, and InvalidInput, which names the file and the function."""
    torch_module()
    path, name = parts(source)
    if path.suffix != ".py":
        what = either("with --torch, FILE names", "expected")
        raise InvalidInput(f"{source}: {what} a Python file and a function in it, FILE.py:{MAKE}")
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file")
    name = name or MAKE
    with importing(path.parent), contextlib.redirect_stdout(sys.stderr):
        file = run(path, "module")
        function = _function(file, path, name)
    return _Maker(path, name, function, tell).example(batch)


def _function(file: ModuleType, path: Path, name: str) -> Callable[..., Any]:
    function = getattr(file, name, None)
    own = [k for k, v in vars(file).items() if inspect.isfunction(v) and v.__module__ == file.__name__]
    if function is None:
        there = f"; it has {', '.join(own)}" if own else ""
        what = f"{path}: there is no function {name!r}{near(name, own)}{there}"
        raise InvalidInput(f"{what}; expected one that returns {FORMS}")
    if isinstance(function, type) or not callable(function):
        raise InvalidInput(f"{path}:{name} is not a function; expected a function that returns {FORMS}")
    lacking = [
        p.name for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "batch"
    ]  # fmt: skip
    if lacking:
        raise InvalidInput(f"{path}:{name} takes {', '.join(lacking)}: give defaults; it may take batch alone")
    return function  # type: ignore[no-any-return]


class _Maker:
    """A function, and what it makes."""

    def __init__(self, path: Path, name: str, function: Callable[..., Any], tell: Tell) -> None:
        self.path, self.name, self.function, self.tell = path, name, function, tell
        self.source = f"{path}:{name}"
        self.takes = inspect.signature(function).parameters.get("batch")
        self.allocates = False

    def example(self, batch: int | None) -> Example:
        """The example at this batch."""
        given = {} if batch is None or self.takes is None else {"batch": batch}
        if self.takes is not None and not given and self.takes.default is inspect.Parameter.empty:
            raise InvalidInput(
                f"{self.source} takes batch without a default: give one, or name it ({option('batch', 'N')})"
            )
        result = self._called(given)
        if self.takes is None:
            return result if batch is None else result.at_batch(batch)
        return replace(result, again=self.example, own=self._own(result) if batch is None else batch)

    def _own(self, result: Example) -> int | None:
        """The batch that the function has if nobody asks for one."""
        assert self.takes is not None
        return self.takes.default if isinstance(self.takes.default, int) else result.batch

    def _called(self, given: Mapping[str, Any]) -> Example:
        if not self.allocates:
            with contextlib.suppress(BadInput):
                with torch_module().device("meta"):
                    result = self._result(given)
                return replace(result, plain=partial(self._result, given))
        result = self._result(given)
        if not self.allocates:
            self.allocates = True
            self.tell(NUMBERS.format(self.source))
        return result

    def _result(self, given: Mapping[str, Any]) -> Example:
        with _quiet(self.path), theirs(self.path, "module"):
            result = self.function(**given)
        return Example.of(**self._fields(result), source=self.source)

    def _fields(self, result: Any) -> dict[str, Any]:
        """The values by name, in whatever form."""
        if hasattr(result, "_asdict"):
            result = result._asdict()
        if isinstance(result, tuple | list) and 2 <= len(result) <= len(FIELDS):
            result = dict(zip(FIELDS, result, strict=False))
        if not isinstance(result, Mapping):
            got = f"{len(result)} values" if isinstance(result, tuple | list) else type(result).__name__
            raise InvalidInput(f"{self.source} returned {got}; expected {FORMS}")
        if other := [str(key) for key in result if key not in FIELDS]:
            raise InvalidInput(
                f"{self.source} returned {other[0]!r}{near(other[0], FIELDS)}; expected {', '.join(FIELDS)}"
            )
        if lacking := [key for key in FIELDS[:2] if key not in result]:
            raise InvalidInput(f"{self.source} returned no {lacking[0]!r}; expected {FORMS}")
        return dict(result)


@contextlib.contextmanager
def _quiet(path: Path) -> Iterator[None]:
    """What a user's function prints goes to standard error, since results go to standard output."""
    with importing(path.parent), contextlib.redirect_stdout(sys.stderr):
        yield
