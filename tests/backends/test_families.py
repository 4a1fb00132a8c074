"""Every kind of op belongs to one family, and each backend has its kernels for a family in the file of that name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

import minidnn.backends
from minidnn.backends import cuda
from minidnn.backends.cpu import native, onednn
from minidnn.backends.cuda.device import OF_CUDNN, ON_TENSOR_CORES
from minidnn.backends.families import FAMILIES
from minidnn.backends.reference import KERNELS
from minidnn.costs import host
from minidnn.optimizers import RULES
from minidnn.programs import fusion

BACKENDS = Path(minidnn.backends.__file__).parent
FAMILY = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}
WHOLE: dict[str, Mapping[str, object]] = {  # package -> kind -> what its device sees
    "reference": KERNELS,
    "cpu.onednn": onednn.KINDS,
    "cpu.native": {**native.FIRST, **native.MORE},
    "cuda": {**ON_TENSOR_CORES, **cuda.KINDS, **OF_CUDNN},
}
TABLES = dict.fromkeys(WHOLE, ("KINDS",)) | {
    "cpu.native": ("FIRST", "MORE"),
    "cuda": ("KINDS", "ON_TENSOR_CORES", "OF_CUDNN"),
}
HOSTS = {"samples": "the host itself transforms samples for a device in its memory"}
OURS = dict.fromkeys(
    (
        "bias", "pooling", "activation", "dropout", "join", "move", "gather", "rules", "distance", "broadcast",
        "resize", "inner_product", "matmul", "attention", "rotary", "recurrent", "linear_loss", "row_norm",
        "group_norm", "summary", "sums", "norms", "update",
    ),
    "native/ has all of it; without a library of it the reference's kernels run",
)  # fmt: skip
LACKS = {  # package -> family -> why it has no file
    "cpu.onednn": HOSTS | OURS,
    "cpu.native": HOSTS,
}
OTHERS = {  # folder -> its files that are no family's
    "reference": {"channels", "device", "multi_tensor", "kernels", "products", "squares"},
    "cpu": {"device", "forks", "layout", "recipe", "waits"},
    "cpu.onednn": {"dnnl", "library"},
    "cpu.native": {"binding", "convert", "copy", "sources", "depthwise", "gemm", "implicit_gemm", "winograd"},
    "cuda": {
        "api",
        "at_hand",
        "by_host",
        "columns",
        "compile",
        "cudnn",
        "device",
        "multi_tensor",
        "nan",
        "nvrtc",
        "packages",
        "recipe",
        "reduction",
        "rows",
        "runtime",
        "slices",
        "tensor_cores",
    },
}
SOURCES = {  # pattern of sources -> families without one, and those of other names
    "cpu/native/*.c": (
        {"samples", "convolution"},
        {"convert", "copy", "depthwise", "depthwise_filter", "implicit_gemm", "winograd3", "winograd5"},
    ),
    "cuda/kernels/*.cu": (
        {"convolution", "inner_product", "bias", "linear_loss"},
        {"reduction", "relu", "tensor_matmul", "tensor_attention"},
    ),  # by cuDNN, and in others' files
}


def named(pattern: str) -> set[str]:
    return {path.stem for path in BACKENDS.glob(pattern)} - {"__init__"}


def tables(package: str):
    """(family, table) of each family file."""
    for family in FAMILIES:
        if family not in LACKS.get(package, {}):
            module = import_module(f"minidnn.backends.{package}.{family}")
            found = [getattr(module, name) for name in TABLES[package] if hasattr(module, name)]
            assert found, f"{module.__name__} has none of the tables {TABLES[package]}"
            yield from ((family, table) for table in found)


def test_a_kind_belongs_to_one_family():
    assert not [kind for kind, count in Counter(k for kinds in FAMILIES.values() for k in kinds).items() if count > 1]
    assert set(FAMILY) >= fusion.KINDS


def test_every_kind_of_the_reference_is_in_the_list():
    ours = {kind for kind, kernel in KERNELS.items() if kernel.__module__.startswith("minidnn.")}
    assert ours == set(FAMILY)


@pytest.mark.parametrize("package", OTHERS)
def test_a_backend_has_the_files_of_the_list(package):
    families = set(FAMILIES) - set(LACKS.get(package, {})) if package in WHOLE else set()
    assert named(f"{package.replace('.', '/')}/*.py") == families | OTHERS[package]


@pytest.mark.parametrize("pattern", SOURCES)
def test_sources_have_the_names_of_families(pattern):
    without, others = SOURCES[pattern]
    assert named(pattern) == set(FAMILIES) - without | others


@pytest.mark.parametrize("package", WHOLE)
def test_a_kind_s_kernel_is_in_the_file_of_its_family(package):
    for family, table in tables(package):
        assert table, f"{package}/{family}.py: an empty table"
        for kind, made in table.items():
            assert FAMILY.get(kind) == family, f"{package}/{family}.py has {kind}, a kind of {FAMILY.get(kind)}"
            where = made.__module__.removeprefix(f"minidnn.backends.{package}.")
            assert where == family, f"{package}: {kind} is made in {where}.py, and listed in {family}.py"


@pytest.mark.parametrize("package", WHOLE)
def test_the_device_has_the_kinds_of_all_families(package):
    listed = {kind for _, table in tables(package) for kind in table}
    assert listed == {kind for kind in WHOLE[package] if kind in FAMILY}


@pytest.mark.parametrize(("source", "lacks"), [("cpu/native/rules.c", {"lamb"}), ("cuda/kernels/rules.cu", set())])
def test_sources_number_the_rules_of_optimizers_in_their_order(source, lacks):
    """LAMB's kernels in C are functions of their own."""
    (names,) = re.findall(r"enum(?: Rule)? \{ (NESTEROV, .*) \};", (BACKENDS / source).read_text())
    assert names.lower().split(", ") == [rule for rule in RULES if rule not in lacks]


def test_the_host_runs_all_rules_but_lamb_s():
    assert set(host.RULES) == {"sgd", *RULES} - {"lamb"}
