"""The code that NVRTC makes of a kernel, as text."""

from __future__ import annotations

from minidnn.backends.cuda import compile as c
from minidnn.backends.cuda.nvrtc import Nvrtc

VIRTUAL = ("--gpu-architecture=compute_90", "--std=c++17")  # of several architectures the last one counts


def ptx(nvrtc: Nvrtc, source: str, storage: str) -> dict[str, str]:
    """{kernel: its code for a virtual architecture, as text}"""
    ends = {"ProgramLog": "ProgramLog", "CUBIN": "PTX"}
    read = nvrtc._bytes
    nvrtc._bytes = lambda program, what: read(program, ends[what])
    try:
        text, _ = nvrtc.cubin("x.cu", c.text_of(source), c.headers(), 90, (*VIRTUAL, *c.storage_options(storage)))
    finally:
        del nvrtc._bytes
    return {part[: part.index("(")]: part for part in text.decode().split(".visible .entry ")[1:]}
