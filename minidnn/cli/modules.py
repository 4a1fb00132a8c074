"""Modules of the user's own, which `--import` names: their layers, policies, optimizers and sources are then known."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from minidnn.errors import BadInput, described


class NotImported(BadInput):
    """A module of --import is not there, or it fails; the message names its file and line."""


def load(word: str) -> ModuleType:
    """Import a module: a name as in Python's `import`, also of the working folder, or the path of a .py file.

    A file is imported under its name, once, and may import modules from its own folder. Raises NotImported.
    """
    path = Path(word)
    file = path.suffix == ".py"
    if file and not path.is_file():
        raise NotImported(f"--import {word}: there is no such file")
    if not file and not all(part.isidentifier() for part in word.split(".")):
        raise NotImported(f"--import {word}: neither a module's name nor a path that ends in .py")
    folder, name = (path.parent, path.stem) if file else (Path(), word)
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name in _parents(name):
            raise NotImported(f"--import {word}: there is no module {name} (a file's path ends in .py)") from error
        raise NotImported(f"--import {word}: {described(error)}") from error
    result = getattr(module, "__file__", None)
    if file and (result is None or not path.samefile(result)):
        raise NotImported(f"--import {word}: there is another module {name}, of {result or 'Python'}: rename the file")
    return module


def _parents(name: str) -> set[str]:
    """The name of a module, and the names of the packages that it is in."""
    parts = name.split(".")
    return {".".join(parts[: i + 1]) for i in range(len(parts))}
