"""The CPU as a device: lists the kernels that an op may use, and binds calls to the addresses of a plan.

With oneDNN, tensors are NHWC, each kind has its recipes, and workspaces are part of the plan. Without oneDNN, the
reference's kernels run on NCHW tensors; they are slow and allocate memory, and `description` says so. They also run
where there is oneDNN and no library of our own kernels, for all kinds that oneDNN does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from minidnn.backends import layout, parts, reference
from minidnn.backends.choice import choose
from minidnn.backends.cpu import forks, half, native, onednn, waits
from minidnn.backends.cpu.native import activation, convert, copy
from minidnn.backends.cpu.native.sources import KERNELS
from minidnn.backends.cpu.onednn.dnnl import Dnnl, DnnlError, NotOffered
from minidnn.backends.cpu.onednn.library import Unavailable, load
from minidnn.backends.cpu.recipe import Call, Recipe, chained, plain
from minidnn.compiled import NotCompiled
from minidnn.memory.execution.device import Device
from minidnn.memory.execution.host import physical_memory
from minidnn.memory.execution.runtime import Runtime
from minidnn.memory.execution.threads import Threads, copying
from minidnn.memory.parts.whole import rows_of_parts
from minidnn.program import Algorithm, Op, Tensor
from minidnn.spoken import option

REFERENCE = "reference"  # the name of the algorithm that runs the reference's kernel
LAST = "nhwc.ref"  # many times slower: offered if there is no other recipe
RECTIFIED = {  # the kind of a forward fused with its ReLU -> the kind of the forward alone
    "convolution.forward_relu": "convolution.forward",
    "inner_product.forward_relu": "inner_product.forward",
}


class CpuDevice(Device):
    """The CPU. `threads`: of oneDNN's kernels and ours; default: OpenMP's number, one per core. Raises ValueError if
    `threads` is below 1, or given for a oneDNN that is not built for OpenMP.

    Ops are fused (programs/fusion/) only if our own kernels are compiled. Our own products apply a fused ReLU while
    they store their result. After a product of oneDNN's, our ReLU runs in place. oneDNN's fused ReLU and its clip are
    not used. In all but oneDNN's slow reference kernels they turn NaN into 0, which hides that a run has diverged."""

    name = "cpu"

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads={threads}: at least 1")
        self.memory = physical_memory()
        self._recipes: dict[tuple, list[Recipe]] = {}
        self.dnnl: Dnnl | None = None
        self.native: native.Native | None = None
        try:
            with waits.briefly():
                loaded = load()
        except Unavailable as reason:
            self.description = self._numerics = "NumPy (the plain fallback, slow)"
            self.found = str(reason)
            return
        forks.end_threads_before(loaded.cdll)
        self.dnnl = Dnnl(loaded, threads)
        self.found = f"oneDNN is {loaded.path} ({loaded.source})"
        try:
            with waits.briefly():
                library = KERNELS.load()
            forks.end_threads_before(library)
            self.native = native.Native(library, self.dnnl.threads)
            # Measured costs belong to a description: other kernels with the same names must not share them.
            kernels = f"our kernels {Path(library._name).stem[-8:]}"
            self.found += (
                f"; our kernels {'came with the package' if KERNELS.brought() else 'are compiled for this CPU'}"
            )
        except NotCompiled as reason:
            kernels = "none of our own kernels"
            self.found += f"; {kernels}: {reason}"
        counted = f"{self.dnnl.threads} thread{'' if self.dnnl.threads == 1 else 's'}"
        with_threads, without = (
            f"oneDNN {loaded.version} ({', '.join(filter(None, about))}); {kernels}"
            for about in ((loaded.runtime, counted, self.dnnl.instructions), (loaded.runtime, self.dnnl.instructions))
        )
        self.description, self._numerics = with_threads, without if self.native else with_threads

    @property
    def threads(self) -> int | None:
        """The number of OpenMP's threads; None if the device has none."""
        return None if self.dnnl is None or self.dnnl.use_threads is None else self.dnnl.threads

    @property
    def numerics(self) -> str:
        """The description without the number of threads: no bit depends on it, with our own kernels."""
        return self._numerics

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]:
        """The deterministic ways to compute an op, the default first."""
        return tuple(r.algorithm for r in self.recipes(op))

    def array(self, buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
        """The tensor's elements in logical order, a view of its bytes in the arena."""
        if self.dnnl is None:
            return buffer[: tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)
        return layout.view(buffer, tensor)

    def prepare(self, op: Op, algorithm: Algorithm, views: Mapping[Tensor, np.ndarray], workspace: np.ndarray) -> Call:
        """The op bound to its addresses. Calling it looks nothing up and allocates next to nothing. Raises ValueError
        if no recipe has this algorithm, or if the workspace is too small."""
        if (rows := rows_of_parts(algorithm)) is not None:
            return parts.prepared(self, op, algorithm, views, workspace, rows)
        recipe = choose(self.recipes(op), op, algorithm, workspace.nbytes, self.name)
        steps = recipe.bind([views[t] for t in op.reads], [views[t] for t in op.writes], workspace)
        return chained(steps)

    def recipes(self, op: Op) -> list[Recipe]:
        """The op's recipes, the default first; never empty. They are made once per kind, attributes and shapes, so that
        the repeated layers of a deep net share generated code.

        Raises `reference.TooLarge` for sizes that oneDNN refuses, and `reference.NoKernel` for a kind that neither this
        backend nor the reference has."""
        if self.dnnl is None:
            return [_reference(op)]
        key = (op.kind, op.attrs, *((t.shape, t.dtype) for t in (*op.reads, *op.writes)), len(op.reads))
        if half.halved(op):
            key += half.pattern(op)
            if key not in self._recipes:
                self._recipes[key] = half.recipes(self._as_they_are, self._convert, op)
        elif key not in self._recipes:
            if self.dnnl.use_threads:
                self.dnnl.use_threads()  # oneDNN generates kernels for the number of threads that is set now
            own = self._own(native.FIRST, op)
            try:
                result = [] if self._replaced(op, own) else self._library(self.dnnl, op)
            except NotOffered:
                result = []
            except DnnlError as error:
                shapes = ", ".join(f"{t.name} {'x'.join(map(str, t.shape))}" for t in (*op.reads, *op.writes))
                raise reference.TooLarge(
                    f"layer {op.layer}: oneDNN refuses {op.kind} with {op.attrs} on {shapes} ({error}); "
                    f"it takes smaller sizes, or use {option('device', 'reference')}"
                ) from error
            every = [*own, *result, *self._own(native.MORE, op)]
            self._recipes[key] = [r for r in every if r.algorithm.name != LAST] or every or [_reference(op)]
        return self._recipes[key]

    def _as_they_are(self, op: Op) -> list[Recipe]:
        """The recipes of kernels that take the op's tensors as they are; of one with tensors of 16 bits often none."""
        return self._own(native.HALF, op) if half.halved(op) else self.recipes(op)

    def _replaced(self, op: Op, own: list[Recipe]) -> bool:
        """Whether our own kernels replace oneDNN's: where one says so, and where oneDNN's bits depend on threads."""
        return native.NAME in (r.algorithm.name for r in own) or (
            self.native is not None and op.kind in onednn.BY_THREADS
        )

    def _library(self, dnnl: Dnnl, op: Op) -> list[Recipe]:
        """The recipes by oneDNN. For a forward fused with its ReLU: oneDNN's forward, then our ReLU; none without our
        kernels."""
        plain = RECTIFIED.get(op.kind, op.kind)
        result = onednn.KINDS[plain](dnnl, op) if plain in onednn.KINDS else []
        if plain == op.kind:
            return result
        return [activation.behind(self.native, r, op.writes[0].size) for r in result] if self.native else []

    def _own(self, table: Mapping[str, native.Recipes], op: Op) -> list[Recipe]:
        """The recipes by our own kernels, from a table of native/."""
        return table[op.kind](self.native, op) if self.native and op.kind in table else []

    def _convert(self, source: np.ndarray, target: np.ndarray) -> Call:
        """A call that converts float32 to 16 bits or back."""
        if self.native is None:
            return partial(np.copyto, target, source, casting="unsafe")
        return convert.conversion(self.native, source, target)

    def fuses(self, op: Op) -> bool:
        """Whether there is a kernel for this fused op (programs/fusion/): never without our own kernels."""
        if self.native is None:
            return False
        try:
            return self.recipes(op)[0].algorithm.name != REFERENCE
        except reference.NoKernel:  # a user's own kind
            return False

    def runtime(self, arena: int, host: int, delays: float = 0.0, seed: int = 0) -> Runtime:
        """The host's memory and threads. Raises `forks.Forked` where OpenMP has lost its threads."""
        how = copying if self.native is None else partial(copy.copying, self.native)
        return Threads(arena, host, delays, seed, forks.check, how)


def _reference(op: Op) -> Recipe:
    """The reference's kernel on logical views: for a user's own layers, and for geometries without another recipe.
    Raises NoKernel if the reference has no kernel for the kind."""
    if op.kind not in reference.KERNELS:
        raise reference.NoKernel(
            f"layer {op.layer}: neither the cpu nor the reference backend has a kernel for {op.kind!r}; "
            f"add one with minidnn.backends.reference.KERNELS[{op.kind!r}] = f(attrs, reads, writes)"
        )
    return plain(lambda reads, writes, _: [reference.bound(op, list(reads), list(writes))], REFERENCE)
