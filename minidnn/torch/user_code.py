"""Which code is the user's, and what it reads."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from minidnn.errors import of_package, of_python
from minidnn.torch.installed import torch_folder

PACKAGE = Path(__file__).parents[1]


def codes_of(code: CodeType) -> list[CodeType]:
    """A function's code, and that of the functions within it."""
    return [code, *(inner for x in code.co_consts if isinstance(x, CodeType) for inner in codes_of(x))]


def with_lines(code: CodeType) -> Iterator[tuple[dis.Instruction, int]]:
    """Its instructions, each with its line."""
    line = code.co_firstlineno
    starts = dict(dis.findlinestarts(code))
    for one in dis.get_instructions(code):
        line = starts.get(one.offset) or line
        yield one, line


@cache
def names_of(code: CodeType) -> tuple[str, ...]:
    """The names that a function reads, those of the functions within it, too."""
    return tuple(dict.fromkeys(name for one in codes_of(code) for name in one.co_names))


@cache
def is_users_file(file: str) -> bool:
    """Whether a file is neither PyTorch's, nor NumPy's, nor Python's own, nor minidnn's. What has no file, such as a
    notebook's cell, is the user's; and so are other packages."""
    if not file or file.startswith("<"):
        return bool(file)
    others = (torch_folder(), Path(np.__file__).parent, PACKAGE)
    return not of_python(file) and not any(Path(file).is_relative_to(folder) for folder in others)


def of_user(one: Any) -> bool:
    """Whether a class is the user's, or of a package that is none of these."""
    return _is_users(one.__module__)


@cache
def _is_users(module: str) -> bool:
    """Whether a module of Python is neither the standard library's, nor PyTorch's, NumPy's or minidnn's."""
    top = module.partition(".")[0]
    return (top not in ("torch", "numpy", "minidnn") and top not in sys.stdlib_module_names) or top == "__main__"


def watched(file: str) -> bool:
    """Whether what a file's functions read is watched. An installed package keeps caches and registries of its own,
    which are no part of a step; the attributes of its modules and of their classes are watched all the same."""
    return is_users_file(file) and not of_package(file)
