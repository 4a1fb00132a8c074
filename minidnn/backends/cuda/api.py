"""The calls of CUDA that the backend makes. `Api` lists them, and `CupyApi` makes them through CuPy. (The tests have
another `Api`, on the host's memory, which runs enqueued work in any order that CUDA would allow.)

Addresses, streams, events and graphs are plain numbers. Memory is allocated only by the calls that say so.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, Protocol

import numpy as np

from minidnn.backends.cuda.packages import CudaUnavailable, nccl

NOT_READY = 600  # cudaErrorNotReady: work is still running
NAP = 2e-5  # seconds between two looks at it
FREE_SHARED = 48 << 10  # bytes of a block's shared memory that need no leave
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL: a node of the graph that records the event when it runs
HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # CUhostFn
Call = Callable[[], object]
Direction = Literal["out", "in"]  # device to host, host to device


class OutOfMemory(MemoryError):
    """The device, or the host's page-locked memory, has less than was asked for."""


class Api(Protocol):
    """watch: called again and again while the host waits, with the seconds since it began to wait; it may raise"""

    watch: Callable[[float], object] | None

    def enter(self) -> None:
        """Direct this thread's later calls to this GPU. CUDA remembers one GPU for each thread."""
        ...

    def bus(self) -> str:
        """Where the GPU is plugged in: two names of one GPU have the same."""
        ...

    def nccl(self) -> Any:
        """The module cupy.cuda.nccl. Raises CudaUnavailable if NCCL is not there."""
        ...

    def free_memory(self) -> int:
        """The number of free bytes of the device."""
        ...

    def total_memory(self) -> int:
        """The number of bytes of the device, free or not."""
        ...

    def allocate(self, nbytes: int) -> int:
        """The address of as many new bytes of the device. Raises OutOfMemory."""
        ...

    def release(self, address: int) -> None: ...

    def allocate_host(self, nbytes: int) -> np.ndarray:
        """Page-locked bytes of the host from a page's start, as uint8: copies to and from them can run beside kernels.
        Raises OutOfMemory."""
        ...

    def release_host(self, array: np.ndarray) -> None: ...

    def stream(self) -> int: ...

    def release_stream(self, stream: int) -> None: ...

    def event(self, timed: bool = False) -> int: ...

    def release_event(self, event: int) -> None: ...

    def record(self, event: int, stream: int) -> None: ...

    def tell(self, event: int, stream: int) -> None:
        """Record an event that the host will wait for. Within a capture this makes each replay record it anew."""
        ...

    def reach(self, event: int) -> None:
        """Return when all work before the event's latest record has ended. Raises the errors of that work."""
        ...

    def wait(self, stream: int, event: int) -> None:
        """Hold the stream until all work before the event's latest record has ended."""
        ...

    def synchronize(self, stream: int) -> None:
        """Return when all work on the stream has ended. Raises the errors of that work."""
        ...

    def elapsed(self, start: int, end: int) -> float:
        """Seconds between two timed events that have happened."""
        ...

    def copy(self, to: int, source: int, nbytes: int, direction: Direction, stream: int) -> None: ...

    def fill(self, address: int, value: int, nbytes: int, stream: int) -> None: ...

    def compile(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Compile the kernels of these (source, storage), which `functions` will be asked for, several at once."""
        ...

    def functions(self, source: str, storage: str = "float") -> Mapping[str, Any]:
        """The kernels of kernels/<source>.cu by name, as `bind` takes them, for values stored as `storage`."""
        ...

    def bind(
        self, function: Any, arguments: Sequence[np.generic], grid: int, block: int, shared: int, stream: int
    ) -> Call:
        """A prepared launch: calling it enqueues the kernel. Addresses are np.uint64, structs np.void."""
        ...

    def host(self, call: Call, stream: int) -> Call:
        """A prepared call of the host: calling it enqueues `call` on the stream. In a capture it becomes a host node.

        CUDA makes the call on a thread of its own, perhaps after calls of other streams. It must not raise, and must
        call nothing of CUDA. It needs Python's lock, so a thread that waits for CUDA must not hold it."""
        ...

    def push_range(self, name: str) -> None:
        """Begin an NVTX range on this thread, for NVIDIA's profilers."""
        ...

    def pop_range(self) -> None:
        """End the range that this thread began last."""
        ...

    def begin_capture(self, stream: int) -> None:
        """Capture from now on: work given to this stream, and to streams that wait for it, becomes a graph instead of
        being run."""
        ...

    def end_capture(self, stream: int) -> int:
        """End the capture; the graph, ready to be replayed."""
        ...

    def replay(self, graph: int, stream: int) -> None: ...

    def release_graph(self, graph: int) -> None: ...


class CupyApi:
    """One GPU, by way of CuPy. CuPy's own allocators are replaced by ones that refuse, so that it allocates nothing."""

    def __init__(
        self,
        cupy: ModuleType,
        cubin: Callable[[str, str], bytes],
        number: int = 0,
        together: Callable[[Iterable[tuple[str, str]]], object] = tuple,
    ) -> None:
        """`cubin(source, storage)`: the machine code of kernels/<source>.cu for this GPU. `together`: called with those
        (source, storage) that `cubin` will be asked for"""
        self.runtime, self.driver, self._cubin = cupy.cuda.runtime, cupy.cuda.driver, cubin
        self._together = together
        self._cuda = cupy.cuda
        self.number, self._process = number, os.getpid()
        libcuda = ctypes.CDLL("libcuda.so.1")
        # CuPy's keeps Python's lock, which calls of the host need: a record that waits for room behind one of them
        # would wait for ever.
        self._record = libcuda.cuEventRecord
        self._record.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._tell = libcuda.cuEventRecordWithFlags  # CuPy has no name for it
        self._tell.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
        self._host = libcuda.cuLaunchHostFunc  # CuPy's forgets the function at its first run, and a graph runs it again
        self._host.argtypes = (ctypes.c_void_p, HostFunction, ctypes.c_void_p)
        self._capturing = False
        self.watch: Callable[[float], object] | None = None
        self.enter()
        self.runtime.free(0)  # makes the context
        cupy.cuda.set_allocator(_refuse)
        cupy.cuda.set_pinned_memory_allocator(_refuse)
        self._functions: dict[tuple[str, str], Mapping[str, int]] = {}

    def attribute(self, name: str) -> int:
        """An attribute of the GPU, by CUDA's name: "MultiProcessorCount" for cudaDevAttrMultiProcessorCount."""
        return self.runtime.deviceGetAttribute(getattr(self.runtime, f"cudaDevAttr{name}"), self.number)

    def enter(self) -> None:
        if self._process != os.getpid():
            raise CudaUnavailable(
                "this process was forked from one that uses the GPU, and CUDA cannot run in it: start processes with "
                "multiprocessing's method 'spawn'"
            )
        self.runtime.setDevice(self.number)

    def bus(self) -> str:
        return self.runtime.deviceGetPCIBusId(self.number)

    def nccl(self) -> ModuleType:
        return nccl(self.runtime.runtimeGetVersion() // 1000)

    # ---- memory

    def free_memory(self) -> int:
        return self.runtime.memGetInfo()[0]

    def total_memory(self) -> int:
        return self.runtime.memGetInfo()[1]

    def allocate(self, nbytes: int) -> int:
        try:
            return self.runtime.malloc(max(nbytes, 1))
        except self.runtime.CUDARuntimeError as error:
            raise OutOfMemory(f"{nbytes} bytes of device memory: {error}; {self.free_memory()} are free") from None

    def release(self, address: int) -> None:
        self.runtime.free(address)

    def allocate_host(self, nbytes: int) -> np.ndarray:
        try:
            address = self.runtime.hostAlloc(max(nbytes, 1), self.runtime.hostAllocDefault)
        except self.runtime.CUDARuntimeError as error:
            raise OutOfMemory(f"{nbytes} bytes of page-locked host memory: {error}") from None
        return np.ctypeslib.as_array((ctypes.c_uint8 * max(nbytes, 1)).from_address(address))[:nbytes]

    def release_host(self, array: np.ndarray) -> None:
        self.runtime.freeHost(array.__array_interface__["data"][0])

    # ---- streams

    def stream(self) -> int:
        return self.runtime.streamCreateWithFlags(self.runtime.streamNonBlocking)

    def release_stream(self, stream: int) -> None:
        self.runtime.streamDestroy(stream)

    def event(self, timed: bool = False) -> int:
        return self.runtime.eventCreateWithFlags(
            self.runtime.eventDefault if timed else self.runtime.eventDisableTiming
        )

    def release_event(self, event: int) -> None:
        self.runtime.eventDestroy(event)

    def record(self, event: int, stream: int) -> None:
        if code := self._record(event, stream):
            raise RuntimeError(f"cuEventRecord: CUDA error {code}")

    def tell(self, event: int, stream: int) -> None:
        if not self._capturing:  # outside of a capture the driver refuses the flag
            self.record(event, stream)
        elif code := self._tell(event, stream, EXTERNAL):
            raise RuntimeError(f"cuEventRecordWithFlags: CUDA error {code}")

    def reach(self, event: int) -> None:
        self._watched("eventQuery", event)
        self.runtime.eventSynchronize(event)

    def wait(self, stream: int, event: int) -> None:
        self.runtime.streamWaitEvent(stream, event)

    def synchronize(self, stream: int) -> None:
        self._watched("streamQuery", stream)
        self.runtime.streamSynchronize(stream)

    def _watched(self, query: str, of: int) -> None:
        """Return once this work has ended, well or not. Without a watch CUDA itself waits better."""
        if self.watch is not None:
            began = time.monotonic()
            while getattr(self.runtime, query)(of) == NOT_READY:
                self.watch(time.monotonic() - began)
                time.sleep(NAP)

    def elapsed(self, start: int, end: int) -> float:
        return self.runtime.eventElapsedTime(start, end) / 1e3

    def copy(self, to: int, source: int, nbytes: int, direction: Direction, stream: int) -> None:
        out = direction == "out"
        kind = self.runtime.memcpyDeviceToHost if out else self.runtime.memcpyHostToDevice
        self.runtime.memcpyAsync(to, source, nbytes, kind, stream)

    def fill(self, address: int, value: int, nbytes: int, stream: int) -> None:
        self.runtime.memsetAsync(address, value, nbytes, stream)

    # ---- kernels

    def compile(self, wanted: Iterable[tuple[str, str]]) -> None:
        self._together([one for one in wanted if one not in self._functions])

    def functions(self, source: str, storage: str = "float") -> Mapping[str, int]:
        key = source, storage
        if key not in self._functions:
            self._functions[key] = _Functions(self.driver, self.driver.moduleLoadData(self._cubin(source, storage)))
        return self._functions[key]

    def bind(
        self, function: int, arguments: Sequence[np.generic], grid: int, block: int, shared: int, stream: int
    ) -> Call:
        cells = [np.array(a) for a in arguments]
        pointers = (ctypes.c_void_p * max(1, len(cells)))(*(c.ctypes.data for c in cells))
        launch, at = self.driver.launchKernel, ctypes.addressof(pointers)
        if shared > FREE_SHARED:
            self.driver.funcSetAttribute(function, MAX_DYNAMIC_SHARED, shared)

        def call(_alive: object = (cells, pointers)) -> None:
            launch(function, grid, 1, 1, block, 1, 1, shared, stream, at, 0)

        return call

    def host(self, call: Call, stream: int) -> Call:
        function = HostFunction(lambda _: call())

        def enqueue() -> None:  # keeps `function`
            if code := self._host(stream, function, None):
                raise RuntimeError(f"cuLaunchHostFunc: CUDA error {code}")

        return enqueue

    # ---- profilers

    def push_range(self, name: str) -> None:
        self._cuda.nvtx.RangePush(name)

    def pop_range(self) -> None:
        self._cuda.nvtx.RangePop()

    # ---- graphs

    def begin_capture(self, stream: int) -> None:
        self.runtime.streamBeginCapture(stream, self.runtime.streamCaptureModeRelaxed)
        self._capturing = True

    def end_capture(self, stream: int) -> int:
        self._capturing = False
        graph = self.runtime.streamEndCapture(stream)
        try:
            return self.runtime.graphInstantiate(graph)
        finally:
            self.runtime.graphDestroy(graph)

    def replay(self, graph: int, stream: int) -> None:
        self.runtime.graphLaunch(graph, stream)

    def release_graph(self, graph: int) -> None:
        self.runtime.graphExecDestroy(graph)


class _Functions(dict[str, int]):
    """The kernels of a module, looked up when they are first asked for."""

    def __init__(self, driver: Any, module: int) -> None:
        self._driver, self._module = driver, module

    def __missing__(self, name: str) -> int:
        self[name] = result = self._driver.moduleGetFunction(self._module, name)
        return result


def _refuse(nbytes: int) -> Any:
    raise MemoryError(f"{nbytes} bytes were requested from CuPy, bypassing the memory manager")
