"""Our C kernels are compiled once and kept; a machine without a compiler says so and does without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidnn import compiled, cpuinfo, visible
from minidnn.backends.cpu import CpuDevice
from minidnn.backends.cpu.native import winograd
from minidnn.backends.cpu.native.binding import Native
from minidnn.backends.cpu.native.sources import KERNELS, OPTIONS, options
from minidnn.compiled import NotCompiled, Sources
from tests.support.convolutions import example
from tests.support.op_examples import Maker


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A file that is quickly compiled, in the place of ours."""
    try:
        compiled.find_compiler()
    except NotCompiled as reason:
        pytest.skip(str(reason))
    path = tmp_path / "quick.c"
    path.write_text("int quick(void) { return 7; }\n")
    monkeypatch.setattr(compiled, "_loaded", {})
    return path


@pytest.fixture
def sources(source):
    return replace(KERNELS, folder=source.parent)


def load_anew(sources, folder):
    """As a new process loads it."""
    compiled._loaded.clear()
    return sources.load(folder)


def test_is_compiled_once_and_then_read(source, sources, tmp_path, monkeypatch):
    assert sources.load(tmp_path).quick() == 7
    (kept,) = tmp_path.glob("*.so")
    with monkeypatch.context() as m:
        m.setattr(Sources, "_compile", lambda *_: pytest.fail("compiled again"))
        assert load_anew(sources, tmp_path).quick() == 7
        assert sources.load(tmp_path) is sources.load(tmp_path), "a process loads it once"
    source.write_text("int quick(void) { return 8; }\n")
    assert load_anew(sources, tmp_path).quick() == 8, "another source is another file"
    assert set(tmp_path.glob("*.so")) > {kept}


def test_a_folder_may_have_cpp_and_libraries_of_its_own(source, tmp_path):
    more = source.with_suffix(".cpp")
    more.write_text('#include <string>\nextern "C" int quick() { return std::string(9, \'x\').append("y").size(); }\n')
    cpp = Sources(source.parent, "a file", lambda level: ("-fPIC",), lambda: (), ends=".cpp", libraries=("-lstdc++",))
    assert cpp.files == [more] and cpp.load(tmp_path).quick() == 10
    before = cpp.path(tmp_path)
    more.write_text(more.read_text().replace("9", "10"))
    assert cpp.path(tmp_path) != before and load_anew(cpp, tmp_path).quick() == 11


# Bytes that cannot be loaded, a file that loads and dies of SIGBUS, and one that does something else.
@pytest.mark.parametrize("damage", ["no machine code", "cut", "another library", "written by others"])
def test_a_file_of_the_cache_that_may_not_be_ours_is_made_anew(source, sources, tmp_path, damage):
    path = sources.path(tmp_path)
    source.write_text("int quick(void) { return 666; }\n")
    load_anew(sources, tmp_path)
    (other,) = tmp_path.glob("*.so")
    source.write_text("int quick(void) { return 7; }\n")
    load_anew(sources, tmp_path)
    whole = path.read_bytes()
    if damage == "no machine code":
        path.write_bytes(b"no machine code")
    elif damage == "cut":
        path.write_bytes(whole[:4096])
    elif damage == "another library":
        path.write_bytes(other.read_bytes())
    else:
        path.chmod(0o666)
    before = path.stat().st_ino
    assert load_anew(sources, tmp_path).quick() == 7
    assert path.stat().st_ino != before and path.read_bytes() == whole and path.stat().st_mode & 0o777 == 0o600


def test_what_holds_onednn_to_fewer_instructions_holds_our_kernels(sources, tmp_path, monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    all_of_them = sources.path(tmp_path)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx2")
    assert options()[-1] == "-mno-avx512f" and sources.path(tmp_path) != all_of_them
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "DEFAULT")
    assert options() == (*OPTIONS, "-march=native") and sources.path(tmp_path) == all_of_them


FLAGS = "fpu lm cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
AVX2 = f"{FLAGS} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
AVX512 = f"{AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"


def pretend(monkeypatch, flags: str) -> None:
    monkeypatch.setattr(cpuinfo, "_cpuinfo", lambda: (f"flags\t\t: {flags}",))


@pytest.mark.parametrize(
    "flags, best",
    [(AVX512, "x86-64-v4"), (AVX512.replace("avx512dq", ""), "x86-64-v3"), (AVX2, "x86-64-v3"), (FLAGS, "x86-64-v2"),
     (AVX512.replace("ssse3", ""), "x86-64"), ("fp asimd", None)],
)  # fmt: skip
def test_a_cpu_runs_the_levels_whose_flags_it_has_all(monkeypatch, flags, best):
    pretend(monkeypatch, flags)
    levels = list(cpuinfo.ADDED)
    assert [level for level in levels if cpuinfo.runs(level)] == levels[: levels.index(best) + 1 if best else 0]


@pytest.mark.parametrize(
    "ceiling, permitted",
    [("", ["x86-64-v4", "x86-64-v3"]), ("avx512_core", ["x86-64-v4", "x86-64-v3"]), ("AVX2", ["x86-64-v3"]),
     ("AVX", []), ("SSE41", [])],
)  # fmt: skip
def test_what_holds_onednn_holds_what_a_wheel_brought(monkeypatch, ceiling, permitted):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", ceiling)
    assert KERNELS.levels() == permitted


def test_a_wheel_s_library_is_loaded_without_a_compiler(source, sources, monkeypatch):
    """The best one that the CPU runs, as long as it was made of these sources."""
    brought = replace(sources, options=lambda level: (f"-DLEVEL={(level or '0')[-1]}", "-fPIC"))
    source.write_text("int quick(void) { return LEVEL; }\n")
    brought.ship("x86-64-v3")
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    for flags in (AVX2, AVX512):
        pretend(monkeypatch, flags)
        assert load_anew(brought, None).quick() == 3
    brought.shipped("x86-64-v4").write_bytes(b"no machine code")
    with pytest.raises(NotCompiled, match=r"x86-64-v4-\w+\.so cannot be loaded"):
        load_anew(brought, None)
    for flags in (FLAGS, AVX512):
        pretend(monkeypatch, flags)
        source.write_text(source.read_text() + "\n")
        assert brought.brought() is None
        with pytest.raises(NotCompiled, match="needs a C compiler once"):
            load_anew(brought, source.parent / "cache")


def test_a_cache_that_cannot_be_written_is_done_without_and_told(source, sources, capsys):
    visible.say_once.cache_clear()
    for _ in range(2):
        assert load_anew(sources, source).quick() == 7  # a folder below a file
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("minidnn: kernels are compiled again at each start") and "Not a directory" in line


def test_a_library_that_lacks_functions_is_not_kept(source, sources, tmp_path):
    source.write_text("#define MIRRORED(name, type)\nMIRRORED(lost, int)\nint quick(void) { return 7; }\n")
    with pytest.raises(NotCompiled, match=r"lacks functions of quick\.c"):
        sources.load(tmp_path)
    assert not list(tmp_path.glob("*.so"))


def test_without_a_compiler_it_is_not_offered_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(Sources, "path", lambda *_: tmp_path / "native.so")
    monkeypatch.setattr(compiled, "_loaded", {})
    with pytest.raises(NotCompiled, match="no-such-compiler"):
        KERNELS.load()
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
    with pytest.raises(NotCompiled, match="none of cc, gcc, clang"):
        KERNELS.load()


def test_what_a_compiler_says_is_told(source, sources, tmp_path):
    source.write_text("int broken(void) { return nothing; }\n")
    with pytest.raises(NotCompiled, match=r"does not compile .*\.c: .*nothing"):
        sources.load(tmp_path)


class Wrong(dict):
    """A library whose structs have a byte each."""

    def __missing__(self, name):
        self[name] = lambda: 1
        return self[name]


def test_a_struct_that_c_spells_otherwise_is_refused():
    with pytest.raises(TypeError, match=r"native\.\w+\.\w+ has \d+ bytes, but '\w+' in C has 1: their fields differ"):
        Native(Wrong(), 1)
