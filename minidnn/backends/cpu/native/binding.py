"""The compiled library, as the families' modules use it: functions, workspaces, structs, bound calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from minidnn.backends.cpu.recipe import Call, Recipe
from minidnn.program import Op

NAME = "native"  # an algorithm of FIRST that replaces oneDNN's and NumPy's: better, with hardly more workspace


class Mirrored(ctypes.Structure):
    """A struct that C functions take. Python and C each list its fields, in the same order."""

    twin: ClassVar[str]  # its name in C, as in MIRRORED(twin, ...) of mirrored.h


class Native:
    """The compiled functions, and the number of threads they run with. Raises TypeError if a Mirrored struct has
    another size in C."""

    def __init__(self, cdll: ctypes.CDLL, threads: int) -> None:
        self.cdll, self.threads = cdll, threads
        for struct in Mirrored.__subclasses__():
            self._compare(struct)

    def function(self, name: str) -> Callable[..., None]:
        result = self.cdll[name]  # a new object each time, so its restype can be set
        result.restype = None
        return result

    def bytes(self, name: str, geometry: ctypes.Structure) -> int:
        """The workspace in bytes for a geometry, by the C function of that name: only the C file computes it."""
        result = self.cdll[name]
        result.restype = ctypes.c_int64
        return int(result(ctypes.byref(geometry)))

    def _compare(self, struct: type[Mirrored]) -> None:
        """Raises TypeError if the struct has another size in C, for then its fields differ."""
        size = self.cdll[f"mirrored_{struct.twin}"]
        size.restype = ctypes.c_int64
        if (theirs := size()) != (ours := ctypes.sizeof(struct)):
            where = f"{struct.__module__}.{struct.__qualname__}"
            raise TypeError(f"{where} has {ours} bytes, but {struct.twin!r} in C has {theirs}: their fields differ")


def bound(function: Callable[..., None], geometry: ctypes.Structure, *addresses: int) -> Call:
    """A call of the C function f(const Geometry *, pointers...); address 0 is the null pointer."""
    return partial(function, ctypes.byref(geometry), *(ctypes.c_void_p(a) for a in addresses))


Recipes = Callable[[Native, Op], list[Recipe]]
