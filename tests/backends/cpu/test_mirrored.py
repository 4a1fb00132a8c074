"""Each struct that C and Python both have has the same fields in both: names, types and order."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from minidnn.backends.cpu import native
from minidnn.backends.cpu.native import copy  # the one Mirrored struct of no family
from minidnn.backends.cpu.native.binding import Mirrored

FOLDER = Path(native.__file__).parent
STRUCTS = {struct.twin: struct for struct in Mirrored.__subclasses__() if struct.__module__.startswith("minidnn.")}
Field = tuple[object, ...]  # name, type, lengths of an array


def text(path: Path) -> str:
    """The source without comments, behind the headers of ours that it includes."""
    source = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    return "".join(text(FOLDER / name) for name in re.findall(r'#include "(\w+\.h)"', source)) + source


def in_c(source: str, struct: str) -> Iterator[Field]:
    (body,) = re.findall(rf"typedef struct \{{([^}}]*)\}} {struct};", source)
    for line in body.split(";")[:-1]:
        kind, names = line.split(maxsplit=1)
        if (of := getattr(ctypes, "c_" + kind.removesuffix("_t"), None)) is None:
            yield from in_c(source, kind)
            continue
        for name, *lengths in (re.findall(r"\w+", declared) for declared in names.split(",")):
            yield name, of, *(int(re.sub(r"[A-Z]+", lambda m: constant(source, m[0]), length)) for length in lengths)


def constant(source: str, name: str) -> str:
    return re.findall(rf"(?:#define {name} |\b{name} = )(\d+)", source)[0]


def in_python(struct: type[ctypes.Structure]) -> Iterator[Field]:
    for name, of, *_ in struct._fields_:
        lengths = []
        while issubclass(of, ctypes.Array):
            lengths.append(of._length_)
            of = of._type_
        if issubclass(of, ctypes.Structure):
            yield from in_python(of)
        else:
            yield name.rstrip("_"), of, *lengths


MARKED = {
    twin: (path, struct)
    for path in sorted(FOLDER.glob("*.c"))
    for twin, struct in re.findall(r"^MIRRORED\((\w+), (\w+)\)", path.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("twin", sorted(STRUCTS))
def test_a_struct_has_the_same_fields_in_c_and_in_python(twin):
    path, struct = MARKED[twin]
    assert list(in_c(text(path), struct)) == list(in_python(STRUCTS[twin]))


def test_every_struct_of_python_is_compared():
    assert len(STRUCTS) > 30 and copy.Copied in STRUCTS.values()
