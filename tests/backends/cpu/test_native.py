"""Our C kernels are compiled once and kept; a machine without a compiler says so and does without."""

from __future__ import annotations

import pytest

from minidnn.backends.cpu import CpuDevice
from minidnn.backends.cpu.native import compiled, winograd
from minidnn.backends.cpu.native.binding import Native
from tests.support.convolutions import example
from tests.support.op_examples import Maker


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A file that is quickly compiled, in the place of ours."""
    try:
        compiled._compiler()
    except compiled.NotCompiled as reason:
        pytest.skip(str(reason))
    path = tmp_path / "quick.c"
    path.write_text("int quick(void) { return 7; }\n")
    monkeypatch.setattr(compiled, "SOURCES", tmp_path)
    return path


def test_is_compiled_once_and_then_read(source, tmp_path, monkeypatch):
    assert compiled.load(tmp_path).quick() == 7
    (kept,) = tmp_path.glob("*.so")
    with monkeypatch.context() as m:
        m.setattr(compiled, "_compile", lambda *_: pytest.fail("compiled again"))
        assert compiled.load(tmp_path).quick() == 7
    source.write_text("int quick(void) { return 8; }\n")
    assert compiled.load(tmp_path).quick() == 8, "another source is another file"
    assert set(tmp_path.glob("*.so")) > {kept}


def test_a_damaged_file_of_the_cache_is_made_anew(source, tmp_path):
    path = compiled._path(tmp_path)
    path.write_bytes(b"no machine code")
    assert compiled.load(tmp_path).quick() == 7
    assert path.read_bytes().startswith(b"\x7fELF")


def test_a_cache_that_cannot_be_written_is_done_without(source):
    assert compiled.load(source).quick() == 7  # a folder below a file


def test_without_a_compiler_it_is_not_offered_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(compiled, "_path", lambda _: tmp_path / "native.so")
    with pytest.raises(compiled.NotCompiled, match="no-such-compiler"):
        compiled.load()
    without = CpuDevice()
    if without.dnnl is None:
        pytest.skip(without.description)
    assert "none of our own kernels: needs a C compiler once (CC=no-such-compiler is not there)" in without.found
    assert without.description.endswith("; none of our own kernels")
    e = example(Maker(8), "forward", 1, 8, 8, 8, 8, (1, 1))
    names = [a.name for a in without.algorithms(e.op)]
    assert names and winograd.THREE.name not in names
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(compiled.NotCompiled, match="none of cc, gcc, clang"):
        compiled.load()


def test_what_a_compiler_says_is_told(source, tmp_path, monkeypatch):
    source.write_text("int broken(void) { return nothing; }\n")
    with pytest.raises(compiled.NotCompiled, match=r"does not compile .*\.c: .*nothing"):
        compiled.load(tmp_path)


class Wrong(dict):
    """A library whose structs have a byte each."""

    def __missing__(self, name):
        self[name] = lambda: 1
        return self[name]


def test_a_struct_that_c_spells_otherwise_is_refused():
    with pytest.raises(TypeError, match=r"native\.\w+\.\w+ has \d+ bytes, but '\w+' in C has 1: their fields differ"):
        Native(Wrong(), 1)
