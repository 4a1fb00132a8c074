"""Every kernel compiles by NVRTC for every architecture, without warnings; what is compiled is kept, and kept well."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

import pytest

from minidnn.backends.cuda import compile as c
from minidnn.backends.cuda import packages
from minidnn.backends.cuda.device import KINDS
from minidnn.backends.cuda.nvrtc import CompileError, Nvrtc
from minidnn.files import cache
from minidnn.programs.build import programs
from minidnn.zoo import load
from tests.support.cuda.code import ptx
from tests.support.paths import ROOT

KEPT = ROOT / ".pytest_cache" / "cuda_cubin"  # all of them take a minute
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
OLD = (50, 52, 60, 61, 70)  # Maxwell to Volta, which CUDA 13 has dropped
DEPRECATED = (
    "nvrtc: warning: Architectures prior to '<compute/sm>_75' are deprecated and may be removed in a future release"
)


@functools.cache
def kernels_of(source: str) -> list[str]:
    """By the host's preprocessor where there is one, else those that no macro writes."""
    from tests.support.cuda import host as cuda_host

    if cuda_host.COMPILER:
        return cuda_host.kernel_names(c.SOURCES / f"{source}.cu")
    return re.findall(r'extern "C" __global__ void (?:__launch_bounds__\(\w+\) )?(\w+)\(', c.text_of(source))


def compiled(nvrtc: Nvrtc, source: str, arch: int, storage: str) -> bytes:
    """Without a warning, now or since anything that goes into it changed."""
    path = c._path(nvrtc, source, arch, storage, KEPT)
    code = cache.kept(path)
    if code is None:
        code, log = c.compile_source(nvrtc, source, arch, storage)
        assert log == (DEPRECATED if arch in OLD else "")
        cache.keep(path, code, "kernels are compiled again at each start")
    return code


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("source", c.source_names())
def test_every_kernel_compiles_without_warnings(nvrtc, source, arch, record_property):
    code = compiled(nvrtc, source, arch, "float")
    names = kernels_of(source)
    assert names and all(b"\0.text." + name.encode() + b"\0" in code for name in names)
    record_property(f"kernels compiled for sm_{arch}", len(names))


@pytest.mark.parametrize("storage", ["bf16", "fp16"])
@pytest.mark.parametrize("source", c.source_names())
def test_every_kernel_compiles_for_values_of_16_bits(nvrtc, source, storage):
    for arch in (75, 90, 120):  # without instructions for bf16, and with
        compiled(nvrtc, source, arch, storage)


@pytest.mark.parametrize("source", c.source_names())
def test_every_kernel_compiles_for_the_cards_that_only_cuda_12_knows(nvrtc, source, record_property):
    if nvrtc.version[0] > 12:
        pytest.skip("NVRTC 13 compiles for sm_75 and later only (CUDA=12 compiles for the older ones)")
    names = kernels_of(source)
    for arch in OLD:
        code = compiled(nvrtc, source, arch, "float")
        assert names and all(b"\0.text." + name.encode() + b"\0" in code for name in names)
        record_property(f"kernels compiled for sm_{arch}", len(names))
    for storage in ("bf16", "fp16"):
        for arch in (min(OLD), max(OLD)):
            compiled(nvrtc, source, arch, storage)


BY_FOURS = {  # source -> its kernels that move four values at once, but for those that cannot
    "activation": "",
    "relu": "",
    "elementwise": "",
    "pooling": "",
    "join": "",
    "dropout": "",
    "sums": "^add_slices$",
    "normalization": "^scale_",
}


@pytest.mark.parametrize("source", BY_FOURS)
@pytest.mark.parametrize("storage", ["float", "bf16"])
def test_four_values_move_at_once(nvrtc, source, storage):
    scalar = re.compile("_1$|^transpose$|^reshape$|^dropout_channels$")  # kernels that cannot
    kernels = {name: text for name, text in ptx(nvrtc, source, storage).items() if re.search(BY_FOURS[source], name)}
    assert kernels
    for name, text in kernels.items():
        moved = "st.global.v4." in text
        assert bool(moved) != bool(scalar.search(name)), name


@pytest.mark.parametrize(
    ("source", "names"),
    [("normalization", "^(normalize|inference|backward|moments).*_8$"), ("elementwise", "^(sum|product)_")],
)
def test_values_of_16_bits_move_by_16_bytes(nvrtc, source, names):
    """Whatever is read and written alone: what is read again from a chunk's floats is not."""
    kernels = {name: text for name, text in ptx(nvrtc, source, "bf16").items() if re.search(names, name)}
    assert len(kernels) > 5
    for name, text in kernels.items():
        assert re.search(r"ld\.global(\.nc)?\.v4\.(b32|u32)|ld\.global(\.nc)?\.v2\.(b64|u64)", text), name
        if not name.startswith(("moments", "backward_sums")):
            assert re.search(r"st\.global\.v4\.(b32|u32)|st\.global\.v2\.(b64|u64)", text), name


def test_a_relu_is_compiled_without_the_other_functions():
    """They take ten times as long, and most nets need none of them."""
    ops = [op for op in programs(load("vgg16"), None, ("TRAIN",))["TRAIN"].ops if op.kind.startswith("relu")]
    assert ops and {step.source for op in ops for recipe in KINDS[op.kind](op) for step in recipe.steps} == {"relu"}
    assert "functions" not in c.text_of("relu")


@pytest.mark.parametrize("source", ["tensor_matmul", "tensor_attention"])
@pytest.mark.parametrize(
    ("storage", "product"), [("float", "m16n8k8.row.col.f32.tf32.tf32"), ("bf16", "m16n8k16.row.col.f32.bf16.bf16")]
)
def test_products_are_on_tensor_cores(nvrtc, source, storage, product):
    """And their operands come from copies beside the arithmetic, by 16 bytes."""
    for name, text in ptx(nvrtc, source, storage).items():
        if name != "attention_delta":
            assert f"mma.sync.aligned.{product}.f32" in text and "cp.async.ca.shared.global" in text, name


@pytest.mark.parametrize("source", c.source_names())
@pytest.mark.parametrize("storage", ["float", "bf16"])
def test_no_kernel_keeps_an_array_in_memory(nvrtc, source, storage):
    assert [name for name, text in ptx(nvrtc, source, storage).items() if ".local" in text] == []


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Sources of our own in place of the package's."""
    monkeypatch.setattr(c, "SOURCES", tmp_path / "kernels")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "common.cuh").write_text("#pragma once\nusing T = STORAGE;\n")
    c.headers.cache_clear()
    yield tmp_path / "kernels"
    c.headers.cache_clear()


GOOD = '#include "common.cuh"\nextern "C" __global__ void f(T* y) { y[threadIdx.x] = 1; }\n'


@pytest.fixture
def counted(nvrtc, monkeypatch):
    """How often the compiler was called."""
    calls = []
    real = nvrtc.cubin
    monkeypatch.setattr(nvrtc, "cubin", lambda *a: calls.append(a) or real(*a))
    return calls


def test_several_are_compiled_at_once_and_kept_as_if_one_by_one(nvrtc, tree, tmp_path, counted, monkeypatch):
    for name in ("one", "two", "three"):
        (tree / f"{name}.cu").write_text(GOOD)
    (tree / "bad.cu").write_text(GOOD.replace("y[", "z["))
    wanted = [(name, storage) for name in ("one", "two", "bad") for storage in ("float", "double")]
    assert c.together(nvrtc, wanted, 90, tmp_path / "all") == wanted and not counted
    assert len(list((tmp_path / "all").iterdir())) == 4
    for name, storage in wanted[:4]:
        one = c.cubin(nvrtc, name, 90, storage, tmp_path / "alone")
        assert c.cubin(nvrtc, name, 90, storage, tmp_path / "all") == one
    assert len(counted) == 4, "none of those that were compiled together is compiled again"
    with pytest.raises(CompileError, match=r'"z" is undefined'):
        c.cubin(nvrtc, "bad", 90, "float", tmp_path / "all")
    assert c.together(nvrtc, [*wanted[:4], ("three", "float")], 90, tmp_path / "all") == [], "one is left to cubin"
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert c.together(nvrtc, wanted, 80, tmp_path / "other") == wanted, "no process can be started"
    assert not (tmp_path / "other").exists() and c.cubin(nvrtc, "one", 80, "float", tmp_path / "other")


def test_the_compiler_as_a_program_finds_the_standard_library():
    """Its folder comes first on the path of modules."""
    assert not {path.stem for path in Path(packages.__file__).parent.glob("*.py")} & sys.stdlib_module_names


def test_what_is_compiled_is_kept(nvrtc, tree, tmp_path, counted):
    (tree / "mine.cu").write_text(GOOD)
    kept = tmp_path / "cache"
    first = c.cubin(nvrtc, "mine", 90, cache_dir=kept)
    assert first.startswith(b"\x7fELF") and c.cubin(nvrtc, "mine", 90, cache_dir=kept) == first
    assert len(counted) == 1 and len(list(kept.iterdir())) == 1

    c.cubin(nvrtc, "mine", 80, cache_dir=kept)
    c.cubin(nvrtc, "mine", 90, storage="double", cache_dir=kept)
    (tree / "mine.cu").write_text(GOOD.replace("= 1", "= 2"))
    changed = c.cubin(nvrtc, "mine", 90, cache_dir=kept)
    (tree / "common.cuh").write_text("#pragma once\nusing T = double;\n")
    c.headers.cache_clear()
    c.cubin(nvrtc, "mine", 90, cache_dir=kept)
    assert changed != first and len(counted) == 5, "the source, a header, the architecture and the format all count"


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:50] + b"\0\1" + b[52:], lambda b: b"x" + b]
)
def test_a_damaged_file_is_compiled_anew(nvrtc, tree, tmp_path, counted, damage):
    (tree / "mine.cu").write_text(GOOD)
    first = c.cubin(nvrtc, "mine", 90, cache_dir=tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert c.cubin(nvrtc, "mine", 90, cache_dir=tmp_path / "cache") == first and len(counted) == 2
    assert c.cubin(nvrtc, "mine", 90, cache_dir=tmp_path / "cache") == first and len(counted) == 2


def test_a_cache_that_cannot_be_written_is_done_without(nvrtc, tree, tmp_path, counted):
    (tree / "mine.cu").write_text(GOOD)
    (tmp_path / "cache").write_text("a file, no folder")
    for _ in range(2):
        assert c.cubin(nvrtc, "mine", 90, cache_dir=tmp_path / "cache").startswith(b"\x7fELF")
    assert len(counted) == 2


def test_an_error_shows_the_log_with_our_names(nvrtc, tree):
    (tree / "mine.cu").write_text(GOOD + "int f(;\n")
    with pytest.raises(CompileError, match=r"kernels/mine\.cu does not compile for sm_90[\s\S]*mine\.cu\(3\): error"):
        c.compile_source(nvrtc, "mine", 90)
    (tree / "mine.cu").write_text(GOOD)
    (tree / "common.cuh").write_text("nonesuch\n")
    c.headers.cache_clear()
    with pytest.raises(CompileError, match=r"common\.cuh\(1\): error"):
        c.compile_source(nvrtc, "mine", 90)


def test_an_architecture_that_it_does_not_know(nvrtc, tree):
    (tree / "mine.cu").write_text(GOOD)
    with pytest.raises(CompileError, match="not for sm_20: that GPU needs CUDA 12"):
        c.compile_source(nvrtc, "mine", 20)
    with pytest.raises(CompileError, match="not for sm_990: that GPU needs a newer CUDA"):
        c.compile_source(nvrtc, "mine", 990)
