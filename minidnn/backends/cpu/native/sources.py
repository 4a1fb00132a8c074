"""The C files of this folder, and how they are compiled."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from pathlib import Path

from minidnn.compiled import NotCompiled, Sources

OPTIONS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fPIC")
# oneDNN's own variable leaves instructions of this CPU unused. Our kernels obey it, too: its value -> our option.
CEILING = "ONEDNN_MAX_CPU_ISA"
WITHOUT = {
    "SSE41": "-mno-avx", "AVX": "-mno-avx2",
    "AVX2": "-mno-avx512f", "AVX2_VNNI": "-mno-avx512f", "AVX2_VNNI_2": "-mno-avx512f",
}  # fmt: skip


def options() -> tuple[str, ...]:
    """The compiler's options on this CPU, with this environment."""
    without = WITHOUT.get(os.environ.get(CEILING, "").upper())
    return (*OPTIONS, without) if without else OPTIONS


def check(files: Sequence[Path], library: ctypes.CDLL) -> None:
    """Raise NotCompiled if the library lacks functions: each of our C files has one that MIRRORED makes."""
    for source in files:
        for struct in re.findall(r"^MIRRORED\((\w+),", source.read_text(encoding="utf-8"), re.MULTILINE):
            if not hasattr(library, f"mirrored_{struct}"):
                raise NotCompiled(f"what the C compiler made of {source.parent} lacks functions of {source.name}")


KERNELS = Sources(Path(__file__).parent, "the kernels for this CPU, once: some 10 s", options, check)
