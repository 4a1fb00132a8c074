"""NVRTC, NVIDIA's run-time compiler, through its C interface: CUDA C++ to machine code for any GPU, without a GPU.

packages.py finds the library, and also loads libnvrtc-builtins, without which nothing compiles.

As a program this file compiles one source: arguments come as JSON on stdin, machine code goes to stdout.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from minidnn.errors import Failed


class CompileError(Failed):
    """The compiler refused; the message has its log."""

    several = True


class Nvrtc:
    def __init__(self, path: str) -> None:
        """`path`: packages.load().paths["nvrtc"]"""
        self.path = path
        self._lib = ctypes.CDLL(path)
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
        self.version = (major.value, minor.value)

    def _check(self, status: int, what: str) -> None:
        if status:
            raise CompileError(f"{what}: {self._lib.nvrtcGetErrorString(status).decode()}")

    def architectures(self) -> tuple[int, ...]:
        """The architectures that it compiles for: 75 is sm_75."""
        count = ctypes.c_int()
        self._check(self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
        result = (ctypes.c_int * count.value)()
        self._check(self._lib.nvrtcGetSupportedArchs(result), "nvrtcGetSupportedArchs")
        return tuple(result)

    def cubin(
        self, name: str, source: str, headers: Mapping[str, str], arch: int, options: Sequence[str] = ()
    ) -> tuple[bytes, str]:
        """(machine code, the log with its warnings). The log uses `name` and the headers' names. Raises CompileError if
        the source does not compile."""
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

    def elsewhere(
        self, name: str, source: str, headers: Mapping[str, str], arch: int, options: Sequence[str] = ()
    ) -> bytes | None:
        """The machine code, by a process of its own: NVRTC compiles one source at a time for all threads of a process.
        None if that fails; `cubin` says why."""
        given = {"path": self.path, "arguments": [name, source, dict(headers), arch, list(options)]}
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(place or os.getcwd() for place in sys.path)}
        command = [sys.executable or "python3", __file__]
        try:
            done = subprocess.run(
                command, input=json.dumps(given).encode(), capture_output=True, env=environment, check=False
            )
        except OSError:  # no process can be started
            return None
        return None if done.returncode else done.stdout

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
        out = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._lib, f"nvrtcGet{what}")(program, out), what)
        return out.raw[: size.value]


def main() -> None:
    given = json.load(sys.stdin)
    nvrtc = Nvrtc(given["path"])
    major, minor = nvrtc.version
    builtins = os.path.join(os.path.dirname(given["path"]), f"libnvrtc-builtins.so.{major}.{minor}")
    ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
    code, _ = nvrtc.cubin(*given["arguments"])
    sys.stdout.buffer.write(code)


if __name__ == "__main__":
    main()
