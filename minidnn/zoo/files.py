"""The net of a file, whatever its form: the one place that says how each suffix is read.

    .onnx                  the graph of an ONNX model, with its weights (minidnn/onnx)
    .py, .py:CLASS         a class of a Python file, which is run for that
    .caffemodel, all others  layers as text or bytes (schema/files.py)

A Python file's own classes count, and of a class and those that inherit from it the last ones. Where several are left,
the name behind the colon says which; it may also name a class that the file imports, or a Net that it has made.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from minidnn.errors import InvalidInput, near
from minidnn.layers.base import Shape
from minidnn.nets.net import Net
from minidnn.spoken import either, option
from minidnn.zoo.python_file import importing, run, theirs

ONNX, PYTHON = ".onnx", ".py"
LOSS = "SoftmaxWithLoss"


def parts(path: str | Path) -> tuple[Path, str | None]:
    """The file that a path means, and the class that it names behind a colon: (net.py, "Big") of net.py:Big. None: it
    names none."""
    path = Path(path)
    match = None if path.is_file() else re.fullmatch(r"(.*\.py):([^:/\\]*)", str(path), re.DOTALL)
    return (Path(match[1]), match[2]) if match else (path, None)


def there(path: str | Path) -> bool:
    """Whether there is such a file, with or without the name of a class."""
    return parts(path)[0].is_file()


def only_net(path: str | Path) -> bool:
    """Whether files of this form hold nothing but a net, never a solver."""
    return parts(path)[0].suffix in (ONNX, PYTHON)


def read(
    path: str | Path,
    batch: int | None = None,
    dropped: list[str] | None = None,
    loss: bool = False,
    shapes: Mapping[str, Shape] = MappingProxyType({}),
) -> Net:
    """The net of a file. The net of an ONNX model begins with the model's weights.

    batch:   the batch size to use instead of the file's
    dropped: gets the places of unknown fields, which then are ignored; None: they are errors
    loss:    whether an ONNX model, which has none, gets labels and a loss behind its first output, and a note of that
    shapes:  of an ONNX model's inputs, by name, where it leaves lengths free

    Raises InvalidFile, InvalidInput, NoOnnx, InvalidModel, and OSError for a file that cannot be read."""
    file, name = parts(path)
    if file.suffix == PYTHON:
        return _of_python(file, name, batch)
    if file.suffix == ONNX:
        return _of_onnx(file, batch, loss, shapes)
    return Net.from_file(file, batch, dropped)


def _of_onnx(path: Path, batch: int | None, loss: bool, shapes: Mapping[str, Shape]) -> Net:
    from minidnn import onnx

    notes: list[str] = []
    net, weights = onnx.read(path, batch, loss, shapes=shapes, notes=notes)
    notes += [f"{path} has no loss: labels and a {LOSS} are added after its first output"] if loss else []
    return net.with_weights(weights, str(path), notes)


# -- Python ----------------------------------------------------------------------------------------------------


def _of_python(path: Path, name: str | None, batch: int | None) -> Net:
    """The net of a Python file. What the file prints goes to standard error, since results go to standard output."""
    with importing(path.parent), contextlib.redirect_stdout(sys.stderr):
        chosen = _chosen(path, run(path, "net"), name)
        if isinstance(chosen, Net):
            return chosen if batch is None else chosen.with_batch(batch)
        return _made(path, chosen, batch)


def _chosen(path: Path, module: ModuleType, name: str | None) -> type[Net] | Net:
    """The class of that name, or the net; without a name, the only one that there is."""
    known = {key: value for key, value in vars(module).items() if isinstance(value, Net) or _is_class(value)}
    if name is not None:
        if name in known:
            return known[name]  # type: ignore[no-any-return]
        if name in vars(module):
            own = vars(module)[name]
            made = either("needs --torch", "is for minidnn.from_torch")
            hint = f": a function that returns a PyTorch module {made}" if inspect.isfunction(own) else ""
            raise InvalidInput(f"{path}:{name} is a {type(own).__name__}, not a minidnn.Net{hint}")
        what = f"; it has {', '.join(known)}" if known else ""
        raise InvalidInput(f"{path}: there is no net {name!r}{near(name, known)}{what}")
    own = {key: value for key, value in known.items() if _is_class(value) and value.__module__ == module.__name__}
    last = {value: key for key, value in own.items() if not any(value in other.__mro__[1:] for other in own.values())}
    choice: dict[Any, str] = last or {value: key for key, value in known.items() if isinstance(value, Net)}
    if len(choice) == 1:
        return next(iter(choice))  # type: ignore[no-any-return]
    got = ", ".join(choice.values()) or "none"
    if choice:
        hint = f": name one, as in {path}:{next(reversed(choice.values()))}"
    else:
        hint = f"; to take one that is imported, name it: {path}:{next(iter(known))}" if known else ""
    raise InvalidInput(f"{path}: expected one class that is a minidnn.Net, got {got}{hint}")


def _is_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Net) and value is not Net


def _made(path: Path, kind: type[Net], batch: int | None) -> Net:
    """The net of a class, at this batch size if one is given."""
    init: Any = kind.__init__
    own = init is not Net.__init__
    define = init if own else getattr(kind, "define", None)
    if define is None:
        raise InvalidInput(f"{path}: class {kind.__name__} has no method `define`, which makes a net's layers")
    with theirs(path, "net"):
        known = list(inspect.signature(define).parameters.values())[1:]  # without self
        given = {"batch": batch} if batch is not None and (not own or "batch" in (p.name for p in known)) else {}
        _check(path, kind, [p for p in known if p.name not in given])
        net = kind(**given)
        if not hasattr(net, "layers"):
            raise InvalidInput(f"{path}: class {kind.__name__} has an __init__ that does not call super().__init__()")
        return net if batch is None or given else net.with_batch(batch)


def _check(path: Path, kind: type[Net], left: list[inspect.Parameter]) -> None:
    """Raise InvalidInput if one of the arguments that are left has no default."""
    lacking = [p.name for p in left if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if lacking:
        other = (
            f"name it by {option('batch')}" if lacking == ["batch"] else "write a class that inherits and does without"
        )
        what = f"class {kind.__name__} takes {', '.join(lacking)} without a default"
        raise InvalidInput(f"{path}: {what}: give one, or {other}")
