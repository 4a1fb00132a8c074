"""The compiled library as its families of kernels see it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from minidnn.backends.cpu.recipe import Call, Recipe
from minidnn.program import Op

NAME = "native"  # of an algorithm that is offered alone: better, and of no larger workspace to speak of


class Mirrored(ctypes.Structure):
    """A struct that functions of C are given. Both languages spell its fields, in the same order."""

    twin: ClassVar[str]  # its name in C: MIRRORED(twin, ...) of mirrored.h


class Native:
    """The compiled functions, and the number of threads they run with."""

    def __init__(self, cdll: ctypes.CDLL, threads: int) -> None:
        self.cdll, self.threads = cdll, threads
        for struct in Mirrored.__subclasses__():
            self._compare(struct)

    def function(self, name: str) -> Callable[..., None]:
        found = self.cdll[name]  # an object of its own
        found.restype = None
        return found

    def bytes(self, name: str, geometry: ctypes.Structure) -> int:
        """What a function of C says of a workspace, which so has one home."""
        found = self.cdll[name]
        found.restype = ctypes.c_int64
        return int(found(ctypes.byref(geometry)))

    def _compare(self, struct: type[Mirrored]) -> None:
        """Raises TypeError where a struct has another size in C: then its fields differ."""
        size = self.cdll[f"mirrored_{struct.twin}"]
        size.restype = ctypes.c_int64
        if (theirs := size()) != (ours := ctypes.sizeof(struct)):
            where = f"{struct.__module__}.{struct.__qualname__}"
            raise TypeError(f"{where} has {ours} bytes, but {struct.twin!r} in C has {theirs}: their fields differ")


def bound(function: Callable[..., None], geometry: ctypes.Structure, *addresses: int) -> Call:
    """A call of f(const Geometry *, pointers...); 0 is the null pointer."""
    return partial(function, ctypes.byref(geometry), *(ctypes.c_void_p(a) for a in addresses))


Recipes = Callable[[Native, Op], list[Recipe]]
