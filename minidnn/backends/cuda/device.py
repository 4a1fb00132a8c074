"""A GPU as a device: lists the kernels that an op may use, and binds calls to the addresses of a plan.

`Planner` is the part that needs no GPU: it makes the recipes, with workspaces from cuDNN's plans for a card.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any
from weakref import WeakSet

import numpy as np

from minidnn.backends import layout
from minidnn.backends.choice import choose
from minidnn.backends.cuda import by_host, tensor_cores
from minidnn.backends.cuda.api import Api, Call
from minidnn.backends.cuda.at_hand import BFLOAT16, TENSOR_CORES
from minidnn.backends.cuda.cudnn import Cudnn, NoPlan
from minidnn.backends.cuda.nan import NanProbe
from minidnn.backends.cuda.recipe import Execute, Launch, Pointer, Read, Recipe, Space, TooLarge, storage
from minidnn.backends.cuda.runtime import Bytes, CudaRuntime, Lost
from minidnn.backends.families import joined
from minidnn.backends.reference import NoKernel
from minidnn.costs import Rates, geometry, key
from minidnn.costs.reach import OWN, mma_sync
from minidnn.formats import TF32
from minidnn.memory.execution.device import Device, KernelFailed
from minidnn.program import Algorithm, Op, Tensor
from minidnn.spoken import option

# kind -> f(op) -> its recipes, best first, by our own kernels
KINDS = joined("minidnn.backends.cuda", "KINDS")
# kind -> f(op) -> further recipes, better ones, for cards whose tensor cores multiply the op's format
ON_TENSOR_CORES = joined("minidnn.backends.cuda", "ON_TENSOR_CORES")
# kind -> f(cudnn, op) -> its recipes, best first, by cuDNN
OF_CUDNN = joined("minidnn.backends.cuda", "OF_CUDNN")

SOME_GPU = Rates(1e13, 5e11, 2e10, 5e-6)
# Bytes to leave free: CUDA itself takes some later, for the code of kernels, graphs and stacks.
MARGIN = 256 << 20


class Planner(Device):
    """The recipes for a program's ops, for a card that this machine need not have. `memory`: bytes for the arena."""

    name = "cuda"
    own_memory = True

    def __init__(self, cudnn: Cudnn, memory: int, description: str) -> None:
        self.cudnn, self.memory, self.description = cudnn, memory, description
        self._recipes: dict[tuple, list[Recipe]] = {}

    def algorithms(self, op: Op) -> tuple[Algorithm, ...]:
        """The ways to compute an op, the default first."""
        return tuple(r.algorithm for r in self.recipes(op))

    def array(self, buffer: np.ndarray, tensor: Tensor) -> np.ndarray:
        """The tensor's elements in logical order, a view of its bytes on the host."""
        return layout.view(buffer, tensor)

    def fuses(self, op: Op) -> bool:
        """Whether there is a kernel for this fused op (programs/fusion/): for an op of cuDNN's, a bias and a plan for
        the geometry on this card.

        cuDNN's precompiled kernels apply a ReLU only where they add a bias. For a ReLU without a bias cuDNN would
        compile a kernel at run time, and may crash while it does."""
        if op.kind not in OF_CUDNN:
            return op.kind in KINDS
        if len(op.reads) < 3:
            return False
        try:
            return bool(self.recipes(op))
        except NoPlan:
            return False

    def hosts(self, op: Op) -> bool:
        return by_host.runs(op)

    def prepare_by_host(self, op: Op, algorithm: Algorithm, arrays: Mapping[Tensor, np.ndarray]) -> Call:
        return by_host.prepare(op, arrays)

    def recipes(self, op: Op) -> list[Recipe]:
        """The op's recipes, the default first; made once per kind, attributes and shapes. Raises NoKernel if the
        backend does not have the kind, TooLarge if its kernels cannot count a tensor's elements, and NoPlan if cuDNN
        has no plan for the geometry."""
        problem = _problem(op)
        if problem not in self._recipes:
            if op.kind in KINDS:
                try:
                    self._recipes[problem] = [*self._on_tensor_cores(op), *KINDS[op.kind](op)]
                except TooLarge as error:
                    raise error.of(op) from None
            elif op.kind in OF_CUDNN:
                self._recipes[problem] = self._sound(op, OF_CUDNN[op.kind](self.cudnn, op))
            else:
                raise NoKernel(
                    f"layer {op.layer}: the cuda backend has no kernel for {op.kind!r}; "
                    f"add one with minidnn.backends.cuda.KINDS[{op.kind!r}] = f(op) -> [Recipe, ...], "
                    f"or use {option('device', 'cpu')}"
                )
        return self._recipes[problem]

    def _on_tensor_cores(self, op: Op) -> list[Recipe]:
        if op.kind not in ON_TENSOR_CORES:
            return []
        there = tensor_cores.multiplies(op, self.cudnn.target.capability, self.cudnn.settings.tf32)
        return ON_TENSOR_CORES[op.kind](op) if there else []

    def _sound(self, op: Op, recipes: list[Recipe]) -> list[Recipe]:
        """The recipes of cuDNN that compute exactly what the op asks for. Without a GPU all are assumed to."""
        return recipes


def _problem(op: Op) -> tuple:
    """The properties of an op that its recipes depend on."""
    return (op.kind, op.attrs, *((t.shape, t.dtype) for t in (*op.reads, *op.writes)), len(op.reads))


class CudaDevice(Planner):
    """One GPU.

    graphs: replay each step as one captured graph (runtime.py)
    nvtx:   show each op to NVIDIA's profilers as a range of the op's name. A replayed graph has no ranges, so there are
            no graphs then.
    """

    def __init__(
        self,
        api: Api,
        cudnn: Cudnn,
        description: str,
        graphs: bool = True,
        rates: Rates = SOME_GPU,
        nvtx: bool = False,
    ) -> None:
        self.api, self.graphs, self.nvtx = api, graphs and not nvtx, nvtx
        super().__init__(cudnn, self.free(), description)
        self.rates = rates
        self.compute, self.net = api.stream(), api.stream()
        cudnn.set_stream(self.compute)
        self.nan = NanProbe(api, cudnn, self.compute)
        self.refused: dict[str, str] = {}
        self._ran: set[str] = set()  # the keys (costs/cache.py) of cuDNN's plans that have run
        self._usual: dict[tuple, Algorithm] = {}  # the defaults of geometries that have lost recipes
        self._runtimes: WeakSet[CudaRuntime] = WeakSet()

    def free(self) -> int:
        """The bytes of the card that an arena may take now."""
        return max(self.api.free_memory() - MARGIN, 0)

    def recipes(self, op: Op) -> list[Recipe]:
        self.api.enter()  # cuDNN, too, uses the GPU that is set for this thread
        result = super().recipes(op)
        if not result:
            raise NoPlan(self._none_left(op))
        return result

    # ---- plans that cuDNN lists, and refuses to run

    def in_doubt(self, op: Op, algorithm: Algorithm) -> bool:
        return op.kind in OF_CUDNN and key(op, algorithm) not in self._ran

    def drop(self, op: Op, algorithm: Algorithm, refusal: KernelFailed) -> None:
        """Raises Lost, which names the op and the algorithm, if CUDA itself has failed, and NoPlan if cuDNN has refused
        all plans."""
        of_cudnn = op.kind in OF_CUDNN
        if isinstance(refusal, Lost) or (of_cudnn and self._broken()):
            raise self._lost_by(op, algorithm, refusal) from refusal
        if not of_cudnn:
            raise refusal
        problem, result = _problem(op), self.recipes(op)
        self._usual.setdefault(problem, result[0].algorithm)
        self.refused[key(op, algorithm)] = str(refusal)
        self._recipes[problem] = [r for r in result if r.algorithm != algorithm]
        self.recipes(op)

    def _lost_by(self, op: Op, algorithm: Algorithm, refusal: KernelFailed) -> Lost:
        """The error that CUDA itself has failed in this run of the op. A plan of cuDNN's counts as refused."""
        why, name, advice = getattr(refusal, "why", str(refusal)), f"{op.name} [{algorithm.name}]", ""
        if not why.startswith(name):
            why = f"{name} on cuda: {why}"
        if op.kind in OF_CUDNN:
            self.refused[key(op, algorithm)] = why
            advice = f"; {option('avoid', algorithm.name.rpartition('.')[2])} does without this plan of cuDNN's"
        return Lost(why, advice)

    def usual(self, op: Op) -> Algorithm:
        return self._usual.get(_problem(op)) or super().usual(op)

    def _broken(self) -> bool:
        """Whether CUDA itself has failed, so that nothing more runs in this process."""
        try:
            self.api.synchronize(self.compute)
        except Exception:
            return True
        return False

    def _none_left(self, op: Op) -> str:
        text = [why for name, why in self.refused.items() if name.startswith(f"{geometry(op)} [")]
        advice = [f"use {option('no_fusion', True)}"] if op.kind.endswith("_relu") else []
        advice += [f"change the layer's geometry, its batch or {option('format')}", f"use {option('device', 'cpu')}"]
        return (
            f"layer {op.layer}, {op.name}: cuDNN refused to run all of its plans ({text[-1]}): {'; or '.join(advice)}"
        )

    def _sound(self, op: Op, recipes: list[Recipe]) -> list[Recipe]:
        """The recipes without those whose ReLU was seen to hide NaN (nan.py). Raises NoPlan if none is left, and
        KernelFailed if they cannot be tried."""
        if not op.kind.endswith("_relu"):
            return recipes
        try:
            result = [r for r in recipes if all(self.nan.keeps(s.plan) for s in r.steps if isinstance(s, Execute))]
        except (NoPlan, MemoryError):
            raise
        except Exception as error:
            tried = self.nan.trying
            why = f"{op.name} on cuda: {tried} could not be tried on an image of NaN: {error}; "
            why += f"{option('avoid', tried)} or {option('no_fusion', True)} does without"
            raise (Lost if self._broken() else KernelFailed)(why) from error
        if not result:
            raise NoPlan(
                f"layer {op.layer}, {op.name}: cuDNN's plans with a ReLU make 0 of NaN; use {option('no_fusion', True)}"
            )
        return result

    def runtime(self, arena: int, host: int, delays: float = 0.0, seed: int = 0) -> CudaRuntime:
        if delays:
            raise ValueError("the cuda device cannot delay copies: that is for devices on the host's memory")
        runtime = CudaRuntime(self.api, self.compute, self.net, arena, host, self.graphs)
        self._runtimes.add(runtime)
        return runtime

    def beside(self) -> int:
        """Measured, with what other programs take: CUDA cannot tell the two apart."""
        self.api.enter()
        arenas = sum(runtime.arena.nbytes for runtime in self._runtimes)
        return max(0, self.api.total_memory() - self.api.free_memory() - arenas)

    def view(self, buffer: Bytes, tensor: Tensor) -> Bytes:
        return buffer

    def prepare(self, op: Op, algorithm: Algorithm, views: Mapping[Tensor, Bytes], workspace: Bytes) -> Call:
        """The op bound to its addresses: calling it enqueues its kernels on the compute stream.

        Raises ValueError if no recipe has this algorithm, or if the workspace is too small. The call raises
        KernelFailed if CUDA or cuDNN refuses."""
        recipe = choose(self.recipes(op), op, algorithm, workspace.nbytes, self.name)

        def address(pointer: Pointer) -> int:
            if isinstance(pointer, Space):
                return workspace.address + pointer.offset
            tensors = op.reads if isinstance(pointer, Read) else op.writes
            return views[tensors[pointer.index]].address + pointer.offset

        calls: list[Call] = []
        for step in recipe.steps:
            if isinstance(step, Execute):
                pack = {uid: address(pointer) for uid, pointer in step.pack}
                calls.append(partial(self.cudnn.execute, step.plan, pack, address(step.workspace)))
            elif not step.copies_in_place(address):
                calls.append(self._launch(step, storage(op), step.values(address)))

        name = {key(op, algorithm)} if op.kind in OF_CUDNN else set()

        def call() -> None:
            try:
                for each in calls:
                    each()
            except Exception as error:
                raise KernelFailed(f"{op.name} [{algorithm.name}] on cuda: {error}") from error
            self._ran.update(name)

        return partial(self._in_range, op.name, call) if self.nvtx else call

    def compile(self, ops: Iterable[tuple[Op, Algorithm]]) -> None:
        self.api.compile({
            (step.source, storage(op))
            for op, algorithm in ops
            for recipe in self.recipes(op) if recipe.algorithm == algorithm
            for step in recipe.steps if isinstance(step, Launch)
        })  # fmt: skip

    def _in_range(self, name: str, call: Call) -> None:
        """Call within an NVTX range. The range covers the enqueueing; profilers project it onto the kernels."""
        self.api.push_range(name)
        try:
            call()
        finally:
            self.api.pop_range()

    def _launch(self, step: Launch, storage: str, arguments: list[np.generic]) -> Call:
        function = self.api.functions(step.source, storage)[step.kernel]
        return self.api.bind(function, arguments, step.grid, step.block, step.shared, self.compute)


@cache
def open_gpu(
    tf32: bool = TF32,
    graphs: bool = True,
    number: int = 0,
    nvtx: bool = False,
    avoid: tuple[str, ...] = (),
    deterministic: bool = True,
) -> CudaDevice:
    """The GPU of that number, opened once for the same options. Raises packages.CudaUnavailable, whose message names
    the missing part and the remedy.

    tf32:          products of float32 may round their operands to 10 bits of mantissa, as tensor cores do
    graphs:        replay each step as one captured graph
    nvtx:          a range for each op, for NVIDIA's profilers; then there are no graphs
    avoid:         cuDNN's plans whose names contain one of these are not offered
    deterministic: False also offers plans whose results differ from run to run. It is for measurements alone: the
                   promise of equal bytes does not hold then.
    """
    from minidnn.backends.cuda import compile, packages
    from minidnn.backends.cuda.api import CupyApi
    from minidnn.backends.cuda.cudnn import Settings, Target
    from minidnn.backends.cuda.nvrtc import Nvrtc

    result = packages.load()
    assert result.driver is not None and result.cupy is not None
    card = packages.card(result.driver, number, result.cuda, result.cudnn_version)
    arch = 10 * card.capability[0] + card.capability[1]
    nvrtc = Nvrtc(result.paths["nvrtc"])
    api = CupyApi(
        result.cupy, lambda source, storage: compile.cubin(nvrtc, source, arch, storage), number,
        lambda wanted: compile.together(nvrtc, wanted, arch),
    )  # fmt: skip
    settings = Settings(tf32=tf32, deterministic=deterministic, avoid=avoid)
    cudnn = Cudnn(result.cudnn, Target.gpu(result.cudnn, card.name, card.capability), settings)
    driver = ".".join(map(str, result.driver.cuda))
    description = (
        f"{card.name} (compute capability {card.capability[0]}.{card.capability[1]}, driver for CUDA {driver}), "
        f"{result.description}, {settings.description}"
    )
    device = CudaDevice(api, cudnn, description, graphs, _rates(api, card.capability, tf32), nvtx)
    device.found = f"GPU number {number}; cuDNN is {result.paths['cudnn']}"
    return device


def _rates(api: Any, capability: tuple[int, int], tf32: bool) -> Rates:
    """Rates guessed from the card's clocks, for ops that were not measured (by `minidnn profile`)."""
    attributes = "MultiProcessorCount", "ClockRate", "MemoryClockRate", "GlobalMemoryBusWidth"
    return rates([api.attribute(name) for name in attributes], capability, tf32)


FLOPS_REACH = 0.6  # of the peak of multiply-adds, by arithmetic other than costs/reach.py has: assumed
CUDNN_REACH = 0.5  # of the tensor cores' peak, by cuDNN's products: assumed


def rates(clocks: Sequence[int], capability: tuple[int, int], tf32: bool) -> Rates:
    """They are parts of the peaks: per multiprocessor and cycle 128 multiply-adds of float32, and TENSOR_CORES for
    products; two transfers of memory per cycle. The link is assumed to be PCI Express 4.

    clocks: multiprocessors and their kHz, the memory's kHz and the bits of its bus"""
    multiprocessors, kilohertz, memory_kilohertz, bits = clocks
    cycles, products, synchronous = multiprocessors * kilohertz * 1e3, {}, 1.0
    if known := [c for c in TENSOR_CORES if c <= capability]:
        per_cycle = TENSOR_CORES[max(known)]
        half, synchronous = CUDNN_REACH * cycles * per_cycle, mma_sync(per_cycle)
        products["float16"] = half
        if capability >= BFLOAT16:
            products["bfloat16"] = half
            if tf32:
                products["float32"] = half / 2
    return Rates(
        flops=FLOPS_REACH * 256 * cycles,
        bandwidth=0.8 * 2 * memory_kilohertz * 1e3 * bits / 8,
        copy=20e9,
        launch=5e-6,
        products=products,
        own={
            family: (own.tensor_cores * synchronous / CUDNN_REACH, own.without / FLOPS_REACH)
            for family, own in OWN.items()
        },
    )
