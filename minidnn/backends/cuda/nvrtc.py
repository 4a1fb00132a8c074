"""NVIDIA's run-time compiler, by its C interface: CUDA C++ to machine code, for any GPU, without a GPU.

The library comes with CuPy's [ctk] extra, with PyTorch, or with a CUDA toolkit; cuda-pathfinder (a dependency of CuPy)
knows all these places. Its companion libnvrtc-builtins must be loaded before the first compilation: from a wheel's
folder the library does not find it by itself.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

VERSIONS = (13, 12)  # of CUDA, newest first
COMMAND = "pip install 'minidnn[cuda13]' (or [cuda12], for drivers before 580)"


class NvrtcMissing(Exception):
    """No NVRTC that can be loaded."""


class CompileError(Exception):
    """The compiler's refusal, with its log."""


class Nvrtc:
    def __init__(self, path: str | None = None) -> None:
        """`path`: of the library; by default where CuPy would find it."""
        self.path = path or _find()
        try:
            self._lib = ctypes.CDLL(self.path)
        except OSError as error:
            raise NvrtcMissing(f"NVRTC cannot be loaded: {error}; {COMMAND}") from error
        self._preload_builtins()
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
        self.version = (major.value, minor.value)

    def _preload_builtins(self) -> None:
        folder = Path(self.path).parent
        for builtins in sorted(folder.glob("libnvrtc-builtins.so.*")):  # (not .alt., of older drivers)
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)

    def _check(self, status: int, what: str) -> None:
        if status:
            raise CompileError(f"{what}: {self._lib.nvrtcGetErrorString(status).decode()}")

    def architectures(self) -> tuple[int, ...]:
        """What it compiles for: 75 is sm_75."""
        count = ctypes.c_int()
        self._check(self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
        found = (ctypes.c_int * count.value)()
        self._check(self._lib.nvrtcGetSupportedArchs(found), "nvrtcGetSupportedArchs")
        return tuple(found)

    def cubin(
        self, name: str, source: str, headers: Mapping[str, str], arch: int, options: Sequence[str] = ()
    ) -> tuple[bytes, str]:
        """(machine code, the log: warnings). `name` and the headers' names are what the log calls them."""
        program = ctypes.c_void_p()
        texts = (ctypes.c_char_p * max(1, len(headers)))(*(t.encode() for t in headers.values()))
        names = (ctypes.c_char_p * max(1, len(headers)))(*(n.encode() for n in headers))
        create = self._lib.nvrtcCreateProgram
        self._check(
            create(ctypes.byref(program), source.encode(), name.encode(), len(headers), texts, names),
            "nvrtcCreateProgram",
        )
        try:
            words = [o.encode() for o in (f"--gpu-architecture=sm_{arch}", *options)]
            status = self._lib.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
            log = self._bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            if status:
                reason = self._lib.nvrtcGetErrorString(status).decode()
                raise CompileError(f"{name} does not compile for sm_{arch} ({reason}):\n{log}")
            return self._bytes(program, "CUBIN"), log
        finally:
            self._lib.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
        out = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._lib, f"nvrtcGet{what}")(program, out), what)
        return out.raw[: size.value]


def _find() -> str:
    """The library's full path, or the name by which the system's loader finds it."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        return _search()
    try:
        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except DynamicLibNotFoundError:
        return _search()
    return path or _search()


def _search() -> str:
    """Wheels' folders (nvidia/cu13/lib; for CUDA 12 nvidia/cuda_nvrtc/lib), then the loader's own ways."""
    for version in VERSIONS:
        for entry in sys.path:
            for folder in (f"cu{version}", "cuda_nvrtc"):
                path = Path(entry or ".") / "nvidia" / folder / "lib" / f"libnvrtc.so.{version}"
                if path.exists():
                    return str(path)
    for version in VERSIONS:
        try:
            ctypes.CDLL(f"libnvrtc.so.{version}")
        except OSError:
            continue
        return f"libnvrtc.so.{version}"
    raise NvrtcMissing(f"NVRTC (libnvrtc.so.{' or .'.join(map(str, VERSIONS))}) is not found; {COMMAND}")
