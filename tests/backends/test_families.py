"""Every kind of op belongs to one family, and each backend has its kernels for a family in the file of that name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib import import_module

import pytest

from minidnn.backends import cuda
from minidnn.backends.cpu import native, onednn, uncompiled
from minidnn.backends.cuda.device import OF_CUDNN
from minidnn.backends.families import FAMILIES
from minidnn.backends.reference import KERNELS
from minidnn.programs import fusion

FAMILY = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}
TABLES = {  # package -> the tables of its family files
    "reference": ("KINDS",),
    "cpu.onednn": ("KINDS",),
    "cpu.uncompiled": ("KINDS",),
    "cpu.native": ("FIRST", "MORE"),
    "cuda": ("KINDS",),
}


def modules(package: str):
    """(family, its module in the package), of those that the package has."""
    for family in FAMILIES:
        name = f"minidnn.backends.{package}.{family}"
        try:
            yield family, import_module(name)
        except ModuleNotFoundError as error:
            assert error.name == name, f"{name} imports {error.name}"


def tables(package: str):
    """(family, table) of each family file."""
    for family, module in modules(package):
        found = [getattr(module, name) for name in TABLES[package] if hasattr(module, name)]
        assert found, f"{module.__name__} has none of the tables {TABLES[package]}"
        yield from ((family, table) for table in found)


def test_a_kind_belongs_to_one_family():
    assert not [kind for kind, count in Counter(k for kinds in FAMILIES.values() for k in kinds).items() if count > 1]
    assert set(FAMILY) >= fusion.KINDS


def test_every_kind_of_the_reference_is_in_the_list():
    ours = {kind for kind, kernel in KERNELS.items() if kernel.__module__.startswith("minidnn.")}
    assert ours == set(FAMILY)


@pytest.mark.parametrize("package", TABLES)
def test_a_kind_s_kernel_is_in_the_file_of_its_family(package):
    for family, table in tables(package):
        assert table, f"{package}/{family}.py: an empty table"
        for kind, made in table.items():
            assert FAMILY.get(kind) == family, f"{package}/{family}.py has {kind}, a kind of {FAMILY.get(kind)}"
            where = made.__module__.removeprefix(f"minidnn.backends.{package}.")
            assert where == family, f"{package}: {kind} is made in {where}.py, and listed in {family}.py"


def whole(package: str) -> Mapping[str, object]:
    """The package's tables as its device sees them."""
    return {
        "reference": KERNELS,
        "cpu.onednn": onednn.KINDS,
        "cpu.uncompiled": uncompiled.KINDS,
        "cpu.native": {**native.FIRST, **native.MORE},
        "cuda": {**cuda.KINDS, **OF_CUDNN},
    }[package]


@pytest.mark.parametrize("package", TABLES)
def test_the_device_has_the_kinds_of_all_families(package):
    listed = {kind for _, table in tables(package) for kind in table}
    assert listed == {kind for kind in whole(package) if kind in FAMILY}
