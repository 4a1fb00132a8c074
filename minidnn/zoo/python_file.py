"""A Python file of the user's own: it is run anew, and what it raises is told with its place."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from minidnn.errors import BadInput, InvalidInput, origin


@contextlib.contextmanager
def importing(folder: Path) -> Iterator[None]:
    """Let a file of this folder import those beside it."""
    place = str(folder.resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)


def run(path: Path, what: str) -> ModuleType:
    """The module of a file, which is run anew: it may have changed. It has a name of its own, whatever the file's.

    what: the thing that the file is run for, in errors. Raises InvalidInput."""
    name = f"{what} of {path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for what annotations name
    with theirs(path, what):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def theirs(path: Path, what: str) -> Iterator[None]:
    """Turn what a user's own code raises into InvalidInput, with its place. BadInput, as of a mistake in a net, stays.

    what: as of `run`"""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BadInput as error:
        if str(path) not in str(error):
            error.args = (f"{path}: {error.args[0]}", *error.args[1:])
        raise
    except SystemExit as error:
        raise InvalidInput(f"{path}: it ends Python before there is a {what} (SystemExit: {error.code})") from error
    except BaseException as error:  # whatever the user's own code raises
        place = "" if isinstance(error, SyntaxError) else origin(error)
        text = f"{type(error).__name__}{f': {error}' if str(error) else ''}{f' ({place})' if place else ''}"
        raise InvalidInput(f"{path}: {text}") from error
