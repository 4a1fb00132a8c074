"""Finds and loads oneDNN: named by an environment variable, in the system, or in the wheel `onednn-cpu-gomp`.

They are tried in that order. A library that would not work (another major version, a SYCL build) is refused with the
reason.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

VARIABLE = "MINIDNN_ONEDNN"  # the file to load; "none" asks for the plain fallback
OPENMP = "libgomp.so.1"  # GCC's OpenMP, which oneDNN and our kernels need
RUNTIMES = {1: "sequential", 2: "OpenMP", 4: "TBB"}  # dnnl_cpu_runtime values that execute in the caller's thread


class Unavailable(Exception):
    """No oneDNN can be used; the message is one line that says which were tried."""


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


@dataclass(frozen=True, eq=False)
class Loaded:
    """A loaded oneDNN that can be used."""

    cdll: ctypes.CDLL
    path: str
    source: str  # how it was found: "MINIDNN_ONEDNN", "system", "environment"
    version: str
    runtime: str


def candidates() -> Iterator[tuple[str, str]]:
    """(source, path or soname), in the order of search."""
    wanted = os.environ.get(VARIABLE)
    if wanted:
        yield VARIABLE, wanted
        return  # an explicit wish is not silently replaced by another library
    yield "system", "libdnnl.so.3"  # wherever the dynamic loader looks
    for folder in ("/usr/local/lib", "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib"):
        for name in _newest_first(folder):  # Debian's soname is libdnnl.so.3.6: the name above does not find it
            yield "system", name
    for name in _newest_first(os.path.join(sys.prefix, "lib")):  # the wheel and conda put it there
        yield "environment", name


def _newest_first(folder: str) -> list[str]:
    files = glob.glob(os.path.join(folder, "libdnnl.so.3*"))
    return sorted(files, key=lambda f: [int(n) for n in re.findall(r"\d+", os.path.basename(f))], reverse=True)


def load() -> Loaded:
    """The first oneDNN that can be used. Raises Unavailable with the reason for each one that was refused."""
    if os.environ.get(VARIABLE) == "none":
        raise Unavailable(f"{VARIABLE}=none asks for the plain fallback")
    reasons = []
    for source, name in candidates():
        try:
            return _open(source, name)
        except OSError as e:
            if source == VARIABLE or os.path.sep in name:  # that a bare soname is not installed needs no mention
                reasons.append(str(e))
        except Unavailable as e:
            reasons.append(str(e))
    looked = "; ".join(dict.fromkeys(reasons)) or "no libdnnl.so.3 in the system or the environment"
    if OPENMP in looked:  # small systems lack it: no package of Python's brings it
        raise Unavailable(f"{looked}; the system's package of it is libgomp1 (apt install libgomp1) or libgomp")
    raise Unavailable(f"{looked}; `pip install onednn-cpu-gomp==2023.2.0` provides it, {VARIABLE} names a file")


def _open(source: str, name: str) -> Loaded:
    cdll = ctypes.CDLL(name)
    try:
        cdll.dnnl_version.restype = ctypes.POINTER(_Version)
        v = cdll.dnnl_version().contents
    except AttributeError:
        raise Unavailable(f"{name} is not oneDNN (it has no dnnl_version)") from None
    version = f"{v.major}.{v.minor}.{v.patch}"
    if v.major != 3:
        raise Unavailable(f"{name} is oneDNN {version}; version 3 is needed")
    if v.cpu_runtime not in RUNTIMES:
        raise Unavailable(
            f"{name} is a oneDNN {version} with CPU runtime {v.cpu_runtime} (SYCL or a thread pool); "
            f"an {', '.join(RUNTIMES.values())} build is needed"
        )
    return Loaded(cdll, _real_path(name), source, version, RUNTIMES[v.cpu_runtime])


def _real_path(name: str) -> str:
    """The file that this process has mapped for a soname; the name itself if that cannot be found."""
    if os.path.sep in name:
        return name
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            return next((line.split()[-1] for line in maps if "/libdnnl.so" in line), name)
    except OSError:
        return name
