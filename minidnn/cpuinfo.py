"""The instruction sets of this CPU, from Linux's /proc/cpuinfo."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

# A level of x86-64, as compilers name it -> the flags that it has and the one before it lacks (x86-64 psABI, 3.1.1).
ADDED = {
    "x86-64": "lm",
    "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
OF_NATIVE = ("vendor_id", "cpu family", "model\t", "flags", "Features", "CPU part")


def native() -> str:
    """The facts on which a compiler's -march=native depends. (Different machines may share a home directory.)"""
    lines = _cpuinfo()
    return "\n".join(line for line in lines if line.startswith(OF_NATIVE)) if lines else platform.processor()


def runs(level: str) -> bool:
    """Whether this CPU runs code compiled for a level of x86-64. Not where /proc/cpuinfo does not say so."""
    flags = {flag for line in _cpuinfo() if line.startswith("flags") for flag in line.split()}
    names = list(ADDED)
    return all(flags.issuperset(ADDED[name].split()) for name in names[: names.index(level) + 1])


@cache
def _cpuinfo() -> tuple[str, ...]:
    """The different lines of /proc/cpuinfo; none where it cannot be read."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(dict.fromkeys(text.splitlines()))
