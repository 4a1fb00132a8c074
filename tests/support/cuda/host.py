"""The cuda backend's own kernels on this machine's CPU, compiled by g++ with tests/support/cuda/shim.h before them.

`HostCuda` is a device for `place` and `run` of tests/support/op_examples. It uses the same recipes as the GPU, and
calls the same kernels with the same grid, block, shared memory and arguments. Before it binds a launch, it compares the
recipe's arguments with the kernel's parameter types. So it finds arguments of a wrong width, and reads that a kernel
could write.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from minidnn import cpuinfo
from minidnn.backends import cuda, layout
from minidnn.backends.cuda import tensor_cores
from minidnn.backends.cuda.compile import storage_options
from minidnn.backends.cuda.device import KINDS, ON_TENSOR_CORES
from minidnn.backends.cuda.recipe import Launch, Pointer, Read, Recipe, Space, Table, Write, storage
from minidnn.program import Algorithm, Op, Tensor
from tests.support.paths import ROOT

HERE = Path(__file__).parent
SHIM = HERE / "shim.h"
KERNELS = Path(cuda.__file__).parent / "kernels"
BUILT = ROOT / ".pytest_cache" / "cuda_host"
COMPILER = shutil.which("g++")
TOLERANCE = 2e-5  # of the largest value: sums of a few thousand products in float32, in another order
TF32 = 2e-3  # where tensor cores multiply floats: of 10 bits, once or twice after another
# Two sources may have structs of one name. Without -fno-gnu-unique the second library would take the first one's size.
FLAGS = [
    *("-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-gnu-unique"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-sign-compare"),
    *("-Wno-unused-function", "-Wno-unused-variable"),
    *(["-mfma"] if cpuinfo.runs("x86-64-v3") else []),  # __fmaf_rn is one instruction, and no call of a function
]
SANITIZE = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]

# `extern __shared__ float x[];` does not exist in C++. It is replaced by a pointer to the launch's bytes.
DYNAMIC = re.compile(r"\bextern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w ]+?)\s*\b(\w+)\s*\[\s*\]\s*;")
GLOBAL = re.compile(r"\bSHIM_GLOBAL\s+(?:SHIM_GLOBAL\s+)*void\s+(\w+)\s*\(")


class KernelError(Exception):
    """A kernel or a launch would fail on a GPU."""


def sources() -> list[str]:
    """The names of backends/cuda/kernels/*.cu, without the ending."""
    return sorted(p.stem for p in KERNELS.glob("*.cu"))


def kinds() -> dict[str, Callable[[Op], list[Recipe]]]:
    """The recipes of kinds that our own kernels compute, on tensor cores and without; cuDNN's kinds are left out."""
    both = {kind: lambda op, kind=kind: [*ON_TENSOR_CORES[kind](op), *KINDS[kind](op)] for kind in ON_TENSOR_CORES}
    return {**KINDS, **both}


def kernel_names(path: Path, options: tuple[str, ...] = ()) -> list[str]:
    """The names of all __global__ functions after the preprocessor, so also of those that macros define."""
    marks = ["-D__global__=SHIM_GLOBAL", "-D__launch_bounds__(...)="]
    command = [COMPILER, "-E", "-P", "-x", "c++", "-std=c++17", *marks, *options, f"-I{KERNELS}", "-"]
    done = subprocess.run(command, input=path.read_text(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelError(done.stderr)
    return GLOBAL.findall(done.stdout)


def build(path: Path, sanitize: bool = False, options: tuple[str, ...] = ()) -> Path:
    """The path of a shared library of the source's kernels, cached by a hash of all its sources and flags."""
    flags = [*FLAGS, *(SANITIZE if sanitize else []), *options]
    parts = [path.read_text(), SHIM.read_text(), *(p.read_text() for p in sorted(KERNELS.glob("*.cuh")))]
    key = hashlib.sha256("\0".join([*parts, *flags, path.name, _compiler_version()]).encode()).hexdigest()[:24]
    library = BUILT / f"{path.stem}-{key}.so"
    if library.exists():
        return library
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / f"{library.stem}.lock").open("w") as lock:  # the tests of two processes need the same few libraries
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(path, parts[0], flags, options, library)
    return library


def _compile(path: Path, source: str, flags: list[str], options: tuple[str, ...], library: Path) -> None:
    text = DYNAMIC.sub(r"SHIM_DYNAMIC(\1, \2);", source)
    entries = "".join(f"SHIM_KERNEL({name}), " for name in kernel_names(path, options))
    whole = f'#include "{SHIM}"\n#line 1 "{path}"\n{text}\nSHIM_LIBRARY({entries})\n'
    with tempfile.TemporaryDirectory(dir=BUILT) as folder:
        made = Path(folder) / "made.so"
        command = [COMPILER, *flags, f"-I{KERNELS}", "-x", "c++", "-", "-o", str(made)]
        done = subprocess.run(command, input=whole, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KernelError(f"g++ on {path.name}:\n{done.stderr}")
        os.replace(made, library)


@cache
def _compiler_version() -> str:
    return subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout


class Library:
    """The kernels of one source: their signatures, and how to run them."""

    def __init__(self, path: Path) -> None:
        self.lib = ctypes.CDLL(str(path))
        for f in (self.lib.shim_name, self.lib.shim_signature, self.lib.shim_run):
            f.restype = ctypes.c_char_p
        self.signatures: dict[str, list[str]] = {}
        while name := self.lib.shim_name(len(self.signatures)):
            self.signatures[name.decode()] = self.lib.shim_signature(len(self.signatures)).decode().split()
        self.index = {name: i for i, name in enumerate(self.signatures)}

    def bind(self, name: str, values: list[np.generic | int], grid: int, block: int, shared: int, falling: bool):
        """A function that runs the kernel with these arguments: an int is an address, other numbers are NumPy's."""
        cells = [np.array(v, np.uint64 if isinstance(v, int) else v.dtype) for v in values]
        pointers = (ctypes.c_void_p * max(1, len(cells)))(*(c.ctypes.data for c in cells))
        launch = (self.index[name], pointers, grid, block, shared, falling)

        def call(_keep=cells) -> None:
            if error := self.lib.shim_run(*launch):
                raise KernelError(f"{name}: {error.decode()}")

        return call


@cache
def library(source: str, sanitize: bool = False, storage: str = "float") -> Library:
    """The Library of the source of that name."""
    return Library(build(KERNELS / f"{source}.cu", sanitize, storage_options(storage)))


class HostCuda:
    """A device that runs the cuda backend's own kernels on the CPU.

    falling: threads and blocks run in the opposite order; if that changes a byte, there is a race.
    storage: "float", "fp16" (tensors of float16) or "bf16" (of uint16, its bits); "": as the op's tensors say.
    blocks: the most blocks of a launch, so that loops over the grid repeat, as they do for large tensors."""

    def __init__(self, sanitize: bool = False, falling: bool = False, storage: str = "", blocks: int = 1 << 30) -> None:
        self.sanitize, self.falling, self.storage, self.blocks = sanitize, falling, storage, blocks
        self.kinds = kinds()

    def recipes(self, op: Op) -> list[Recipe]:
        return self.kinds[op.kind](op)

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]:
        return tuple(r.algorithm for r in self.recipes(op))

    def array(self, buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
        return layout.view(buffer, tensor)

    def prepare(
        self, op: Op, algorithm: Algorithm, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray
    ) -> Callable[[], None]:
        (recipe,) = (r for r in self.recipes(op) if r.algorithm == algorithm)
        assert workspace.nbytes == algorithm.workspace
        calls = []
        for step in recipe.steps:
            if not isinstance(step, Launch):
                raise KernelError(f"{op.kind}: a plan of cuDNN does not run on the CPU")
            lib = library(step.source, self.sanitize, self.storage or storage(op))
            if wrong := list(mismatches(op, recipe, step, lib.signatures)):
                raise KernelError("; ".join(wrong))
            values = step.values(lambda p: _address(p, op, views, workspace))
            grid = min(step.grid, self.blocks)
            calls.append(lib.bind(step.kernel, values, grid, step.block, step.shared, self.falling))

        def call() -> None:
            for each in calls:
                each()

        return call


def tolerance(algorithm: Algorithm) -> float:
    """How far float32 results may be from the reference's, in parts of the largest."""
    return TF32 if algorithm.name == tensor_cores.NAME else TOLERANCE


def _address(p: Pointer, op: Op, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray) -> int:
    if isinstance(p, Space):
        return workspace.ctypes.data + p.offset
    tensor = _of(op, p)[p.index]
    return views[tensor].__array_interface__["data"][0] + p.offset


def _of(op: Op, pointer: Read | Write) -> tuple[Tensor, ...]:
    return op.reads if isinstance(pointer, Read) else op.writes


def mismatches(op: Op, recipe: Recipe, launch: Launch, signatures: Mapping[str, list[str]]) -> Iterator[str]:
    """A sentence for each disagreement of a launch with its kernel, its op or its workspace."""
    where = f"{op.kind}, {recipe.algorithm}, {launch.source}.{launch.kernel}"
    if launch.kernel not in signatures:
        yield f"{where}: {launch.source}.cu has no such kernel"
        return
    wanted = signatures[launch.kernel]
    if len(wanted) != len(launch.arguments):
        yield f"{where}: {len(launch.arguments)} arguments for {len(wanted)} parameters"
        return
    for i, (argument, want) in enumerate(zip(launch.arguments, wanted, strict=True)):
        if isinstance(argument, Table):
            got = f"V{argument.packed(lambda a: a if isinstance(a, np.generic) else np.uint64(0)).nbytes}"
            if got != want:
                yield f"{where}: argument {i} is a struct {got}, the parameter {want}"
            if any(not isinstance(p, Space) and p.index >= len(_of(op, p)) for p in argument.pointers):
                yield f"{where}: argument {i} points to a tensor that the op does not have"
        elif isinstance(argument, Space):
            if "*" not in want:
                yield f"{where}: argument {i} is an address, the parameter {want}"
            if argument.offset + argument.nbytes > recipe.algorithm.workspace:
                yield f"{where}: argument {i} goes beyond the workspace"
        elif isinstance(argument, Pointer):
            reads, tensors = isinstance(argument, Read), _of(op, argument)
            if argument.index >= len(tensors):
                yield f"{where}: argument {i} is {argument}, of {len(tensors)}"
                continue
            tensor = tensors[argument.index]
            got = np.dtype(tensor.dtype).str[1:]
            got = {"f2": "V2", "u2": "V2"}.get(got, got)  # the kernel sees structs of two bytes
            got = "f4" if all(t.dtype == "int32" for t in op.tensors) else got  # labels that move, as any four bytes do
            if want not in (f"*{got}", f"c*{got}", "*v", "c*v"):
                yield f"{where}: argument {i} points to {got} ({tensor}), the parameter is {want}"
            if reads and not want.startswith("c") and tensor not in op.writes:
                yield f"{where}: argument {i} ({tensor}) is only read, but the parameter may write it"
            if not 0 <= argument.offset < max(1, tensor.nbytes):
                yield f"{where}: argument {i} begins beyond {tensor}"
        else:
            got = argument.dtype.str[1:]
            if got != want:
                yield f"{where}: argument {i} is {got}, the parameter {want}"
