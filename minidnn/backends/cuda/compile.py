"""Compiles our CUDA sources for a GPU by NVRTC, once, and keeps the machine code in the user's cache directory.

The name of a cache file has a hash of all that goes into it: source, headers, options, architecture, NVRTC's version.
So the file is never stale. It is written whole or not at all, and compiled again if it is damaged.
"""

from __future__ import annotations

import contextlib
import hashlib
from functools import cache
from pathlib import Path

from minidnn.backends.cuda.nvrtc import CompileError, Nvrtc
from minidnn.files import replacing

SOURCES = Path(__file__).parent / "kernels"
OPTIONS = ("--std=c++17", "-lineinfo")
MAGIC = b"\x7fELF"  # a cubin is an ELF file; in the cache its checksum follows it
CHECKSUM = 32  # bytes


def source_names() -> tuple[str, ...]:
    """The names of the files in kernels/ that end in .cu, without that ending."""
    return tuple(sorted(p.stem for p in SOURCES.glob("*.cu")))


def text_of(source: str) -> str:
    return (SOURCES / f"{source}.cu").read_text(encoding="utf-8")


@cache
def headers() -> dict[str, str]:
    return {p.name: p.read_text(encoding="utf-8") for p in sorted(SOURCES.glob("*.cuh"))}


def cubin(nvrtc: Nvrtc, source: str, arch: int, storage: str = "float", cache_dir: Path | None = None) -> bytes:
    """The machine code of kernels/<source>.cu for sm_<arch> and values stored as `storage`, from the cache or compiled
    now. Raises nvrtc.CompileError."""
    path = _path(nvrtc, source, arch, storage, cache_dir)
    kept = _read(path)
    if kept is None:
        kept, _ = compile_source(nvrtc, source, arch, storage)
        with contextlib.suppress(OSError):  # if the cache cannot be written, the next start compiles again
            _write(path, kept)
    return kept


def compile_source(nvrtc: Nvrtc, source: str, arch: int, storage: str = "float") -> tuple[bytes, str]:
    """(machine code, the compiler's warnings), without the cache. Raises nvrtc.CompileError, also for an unknown
    architecture."""
    if arch not in (known := nvrtc.architectures()):
        major, minor = nvrtc.version
        raise CompileError(
            f"NVRTC {major}.{minor} compiles for sm_{known[0]} to sm_{known[-1]}, not for sm_{arch}"
            + (": that GPU needs CUDA 12, minidnn[cuda12]" if arch < known[0] else ": that GPU needs a newer CUDA")
        )
    return nvrtc.cubin(f"kernels/{source}.cu", text_of(source), headers(), arch, _options(storage))


def _options(storage: str) -> tuple[str, ...]:
    return (*OPTIONS, f"-DSTORAGE={storage}")


def _path(nvrtc: Nvrtc, source: str, arch: int, storage: str, cache_dir: Path | None) -> Path:
    if cache_dir is None:
        import platformdirs

        cache_dir = Path(platformdirs.user_cache_dir("minidnn")) / "cubin"
    parts = [text_of(source), *headers().values(), *_options(storage), f"sm_{arch}", str(nvrtc.version)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return cache_dir / f"{source}-sm{arch}-{key}.cubin"


def _read(path: Path) -> bytes | None:
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    code, checksum = whole[:-CHECKSUM], whole[-CHECKSUM:]
    return code if code.startswith(MAGIC) and hashlib.sha256(code).digest() == checksum else None


def _write(path: Path, code: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "wb") as file:
        file.write(code + hashlib.sha256(code).digest())
