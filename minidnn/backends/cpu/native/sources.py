"""The C files of this folder, and how they are compiled."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from pathlib import Path

from minidnn.compiled import NotCompiled, Sources

# The code says which products are fused with sums (`fused` in vector.h). The compiler fuses no others, so its choices
# change no bit, and updates leave the bits that they leave on a GPU.
OPTIONS = ("-O3", "-fopenmp", "-fno-math-errno", "-ffp-contract=off", "-fPIC")
# oneDNN's own variable leaves instructions of this CPU unused. Our kernels obey it, too: its value -> our option.
CEILING = "ONEDNN_MAX_CPU_ISA"
WITHOUT = {
    "SSE41": "-mno-avx", "AVX": "-mno-avx2",
    "AVX2": "-mno-avx512f", "AVX2_VNNI": "-mno-avx512f", "AVX2_VNNI_2": "-mno-avx512f",
}  # fmt: skip

# What a wheel brings, the best first: the level of x86-64 -> what it may be held to.
LEVELS = {"x86-64-v4": (None,), "x86-64-v3": (None, "-mno-avx512f")}


def options(level: str | None = None) -> tuple[str, ...]:
    """The compiler's options on this CPU, with this environment; or for a level of x86-64."""
    if level:
        return (*OPTIONS, f"-march={level}")
    without = _without()
    return (*OPTIONS, "-march=native", without) if without else (*OPTIONS, "-march=native")


def levels() -> list[str]:
    """The levels of x86-64 for which a wheel brings the kernels, and that the environment permits, the best first."""
    return [level for level, held in LEVELS.items() if _without() in held]


def _without() -> str | None:
    """The option that leaves out what oneDNN must not use."""
    return WITHOUT.get(os.environ.get(CEILING, "").upper())


def check(files: Sequence[Path], library: ctypes.CDLL) -> None:
    """Raise NotCompiled if the library lacks functions: each of our C files has one that MIRRORED makes."""
    for source in files:
        for struct in re.findall(r"^MIRRORED\((\w+),", source.read_text(encoding="utf-8"), re.MULTILINE):
            if not hasattr(library, f"mirrored_{struct}"):
                raise NotCompiled(f"what the C compiler made of {source.parent} lacks functions of {source.name}")


KERNELS = Sources(Path(__file__).parent, "the kernels for this CPU, once: some 10 s", options, levels, check)
