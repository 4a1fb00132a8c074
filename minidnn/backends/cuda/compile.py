"""Compiles our CUDA sources for a GPU by NVRTC, once, and keeps the machine code in the user's cache directory.

The name of a cache file has a hash of all that goes into it: source, headers, options, architecture, NVRTC's version.
So the file is never stale. If it is damaged, or if others may have written it, it is compiled again (files/cache.py).
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from minidnn.backends.cuda.nvrtc import CompileError, Nvrtc
from minidnn.files import cache

SOURCES = Path(__file__).parent / "kernels"
# The sources say which products are fused with sums (__fmaf_rn), as the cpu's do (backends/cpu/native/sources.py). So
# no bit depends on the copy of the code that runs, and updates leave the bits that they leave on the cpu.
OPTIONS = ("--std=c++17", "--fmad=false", "-lineinfo")
KEPT = "kernels are compiled again at each start"  # where they cannot be kept


def source_names() -> tuple[str, ...]:
    """The names of the files in kernels/ that end in .cu, without that ending."""
    return tuple(sorted(p.stem for p in SOURCES.glob("*.cu")))


def text_of(source: str) -> str:
    return (SOURCES / f"{source}.cu").read_text(encoding="utf-8")


@functools.cache
def headers() -> dict[str, str]:
    return {p.name: p.read_text(encoding="utf-8") for p in sorted(SOURCES.glob("*.cuh"))}


def cubin(nvrtc: Nvrtc, source: str, arch: int, storage: str = "float", cache_dir: Path | None = None) -> bytes:
    """The machine code of kernels/<source>.cu for sm_<arch> and values stored as `storage`, from the cache or compiled
    now. Raises nvrtc.CompileError."""
    path = _path(nvrtc, source, arch, storage, cache_dir)
    code = cache.kept(path)
    if code is None:
        code, _ = compile_source(nvrtc, source, arch, storage)
        cache.keep(path, code, KEPT)
    return code


def together(
    nvrtc: Nvrtc, wanted: Iterable[tuple[str, str]], arch: int, cache_dir: Path | None = None
) -> list[tuple[str, str]]:
    """Compile those of these (source, storage) that the cache lacks into it, several at once. Returns them.

    A single one is left to `cubin`, and so is one that does not compile: `cubin` says why."""
    paths = {one: _path(nvrtc, one[0], arch, one[1], cache_dir) for one in dict.fromkeys(wanted)}
    missing = [one for one, path in paths.items() if cache.kept(path) is None]
    if len(missing) < 2 or arch not in nvrtc.architectures():
        return []
    with ThreadPoolExecutor(min(len(missing), len(os.sched_getaffinity(0)))) as pool:
        codes = pool.map(lambda one: nvrtc.elsewhere(*_arguments(one[0], one[1], arch)), missing)
        for one, code in zip(missing, codes, strict=True):
            if code is not None:
                cache.keep(paths[one], code, KEPT)
    return missing


def compile_source(nvrtc: Nvrtc, source: str, arch: int, storage: str = "float") -> tuple[bytes, str]:
    """(machine code, the compiler's warnings), without the cache. Raises nvrtc.CompileError, also for an unknown
    architecture."""
    if arch not in (known := nvrtc.architectures()):
        major, minor = nvrtc.version
        raise CompileError(
            f"NVRTC {major}.{minor} compiles for sm_{known[0]} to sm_{known[-1]}, not for sm_{arch}"
            + (": that GPU needs CUDA 12, minidnn[cuda12]" if arch < known[0] else ": that GPU needs a newer CUDA")
        )
    return nvrtc.cubin(*_arguments(source, storage, arch))


def _arguments(source: str, storage: str, arch: int) -> tuple[str, str, dict[str, str], int, tuple[str, ...]]:
    """Those of Nvrtc.cubin."""
    return f"kernels/{source}.cu", text_of(source), headers(), arch, _options(source, storage)


def _options(source: str, storage: str) -> tuple[str, ...]:
    return (*OPTIONS, *storage_options(storage))


def storage_options(storage: str) -> tuple[str, ...]:
    """The macros of kernels for values stored as `storage`: "float", "bf16" or "fp16"."""
    return (f"-DSTORAGE={storage}", *(() if storage == "float" else ("-DSIXTEEN_BITS",)))


def _path(nvrtc: Nvrtc, source: str, arch: int, storage: str, cache_dir: Path | None) -> Path:
    if cache_dir is None:
        cache_dir = cache.home() / "cubin"
    parts = [text_of(source), *headers().values(), *_options(source, storage), f"sm_{arch}", str(nvrtc.version)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return cache_dir / f"{source}-sm{arch}-{key}.cubin"
