"""oneDNN's C API (v3) through ctypes: memory descriptors, primitives, bound calls.

All memory is the caller's: scratchpads are in user mode, and memory objects wrap given addresses. So executing a bound
call allocates next to nothing. The numbers are those of oneDNN's public headers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any

from minidnn.backends.cpu.onednn.library import Loaded
from minidnn.backends.cpu.recipe import Call
from minidnn.backends.layout import contiguous

# dnnl_data_type_t, dnnl_format_tag_t
FLOAT32 = 3
ANY_TAG = 1
# dnnl_prop_kind_t
TRAINING, INFERENCE = 64, 96
# dnnl_alg_kind_t
CONVOLUTION_DIRECT = 0x1
LINEAR = 0x26
POOLING_AVERAGE = 0x2FF  # counts padding
ADD, MULTIPLY = 0x1FFF0, 0x1FFF1
SOFTMAX = 0x30000
# DNNL_ARG_*
SRC, SRC_1, DST, WEIGHTS, BIAS = 1, 2, 17, 33, 41
SCRATCHPAD = 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 129, 145, 161
# dnnl_query_t: the memory descriptor of an argument
_QUERY = {
    SRC: 129, DIFF_SRC: 130, WEIGHTS: 131, DIFF_WEIGHTS: 132, DST: 133, DIFF_DST: 134, SCRATCHPAD: 136,
}  # fmt: skip
# dnnl_cpu_isa_t, the widest first: each has the bits of those below it
_INSTRUCTIONS = ((0x27, "AVX-512"), (0x7, "AVX2"), (0x3, "AVX"), (0x1, "SSE4.1"))
_IMPLEMENTATION = 8
_UNIMPLEMENTED = 3

Pointer = ctypes.c_void_p
AXES = 12  # DNNL_MAX_NDIMS
Dims = ctypes.c_int64 * AXES


class DnnlError(RuntimeError):
    """oneDNN refused; the message names the entry point and the status."""


class NotOffered(DnnlError):
    """oneDNN has no implementation for a geometry."""


class _Argument(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_int), ("memory", Pointer))


class _Handle:
    """Owns an object of the library and destroys it at its own end. ctypes passes it as the object's pointer."""

    __slots__ = ("_as_parameter_", "_destroy")

    def __init__(self, pointer: Pointer, destroy: Callable) -> None:
        self._as_parameter_ = pointer
        self._destroy = destroy

    def __del__(self) -> None:
        self._destroy(self._as_parameter_)


class Desc(_Handle):
    """A memory descriptor: dimensions, type, and strides or the library's own layout. `nbytes` is its size."""

    __slots__ = ("nbytes",)
    nbytes: int


class Primitive:
    """One implementation of an operation: its name, its scratchpad in bytes, the layouts that it wants. `bind` makes it
    a call."""

    def __init__(self, dnnl: Dnnl, pd: _Handle) -> None:
        self.dnnl, self.pd = dnnl, pd
        name = ctypes.c_char_p()
        dnnl.call("dnnl_primitive_desc_query", pd, _IMPLEMENTATION, 0, ctypes.byref(name))
        self.name = (name.value or b"").decode()
        self.scratchpad = self.desc(SCRATCHPAD).nbytes

    def desc(self, argument: int) -> Desc:
        """The layout that this implementation wants or has for an argument; empty if it does not have the argument."""
        return self.dnnl.clone_desc(self.dnnl.c.dnnl_primitive_desc_query_md(self.pd, _QUERY[argument], 0))

    @cached_property
    def primitive(self) -> _Handle:
        """The generated code: made at the first binding, and shared by all bindings."""
        return self.dnnl.create("dnnl_primitive_create", "dnnl_primitive_destroy", self.pd)

    def bind(self, arguments: Mapping[int, tuple[Desc, int]], scratchpad: int = 0) -> Call:
        """A call on these arguments, number -> (layout, address). `scratchpad`: the address of as many bytes as
        `self.scratchpad` says."""
        given = dict(arguments)
        if self.scratchpad:
            given[SCRATCHPAD] = (self.desc(SCRATCHPAD), scratchpad)
        memories = [self.dnnl.memory(desc, address) for desc, address in given.values()]
        array = (_Argument * len(given))()
        for slot, arg, memory in zip(array, given, memories, strict=True):
            slot.arg, slot.memory = arg, memory._as_parameter_
        execute = partial(self.dnnl.execute, self.primitive, self.dnnl.stream, len(given), array)
        execute.keep = (self, memories)  # type: ignore[attr-defined]  # these must live as long as the partial
        use_threads = self.dnnl.use_threads
        if use_threads is None:
            return execute

        def call() -> None:
            use_threads()
            execute()

        return call


def post_op(i: int) -> int:
    """The argument number for the second operand of the i-th operation after the primitive's own."""
    return 32768 * (i + 1) | SRC_1


def usable(name: str) -> bool:
    """Whether an implementation of this name may be chosen. `gemm` ones allocate memory by themselves; `ref` and
    `simple:any` ones are very slow."""
    return "gemm:" not in name and not name.startswith("ref") and not name.startswith("simple:any")


class Dnnl:
    """A loaded library with its engine, its stream and its number of threads. Raises ValueError if `threads` is given
    and the library is not built for OpenMP."""

    def __init__(self, loaded: Loaded, threads: int | None = None) -> None:
        self.loaded = loaded
        self.c = c = loaded.cdll
        p, i = Pointer, ctypes.c_int
        c.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        c.dnnl_memory_desc_get_size.argtypes = [p]
        c.dnnl_primitive_desc_query_md.restype = p
        c.dnnl_primitive_desc_query_md.argtypes = [p, i, i]
        c.dnnl_primitive_desc_next_impl.argtypes = [p]
        for name in ("memory_desc", "memory", "primitive_desc", "primitive", "engine", "stream"):
            getattr(c, f"dnnl_{name}_destroy").argtypes = [p]
        self._threads(threads)
        effective = c.dnnl_get_effective_cpu_isa()
        self.instructions = next((name for bits, name in _INSTRUCTIONS if effective & bits == bits), "")
        self.engine = self.create("dnnl_engine_create", "dnnl_engine_destroy", i(1), ctypes.c_size_t(0))
        self.stream = self.create("dnnl_stream_create", "dnnl_stream_destroy", self.engine, ctypes.c_uint(1))
        self.attr = self.attributes()
        self.slow: list[str] = []  # slow implementations that were taken because there was no other
        self.execute = c["dnnl_primitive_execute"]  # a function object of its own, with its own types
        self.execute.argtypes = [p, p, i, p]
        self.execute.restype = _executed

    def _threads(self, threads: int | None) -> None:
        """Set `threads` and `use_threads`. OpenMP has a thread count for each calling thread, so a bound call calls
        `use_threads` before it runs."""
        if self.loaded.runtime != "OpenMP":
            if threads is not None:
                raise ValueError(f"threads={threads}: this oneDNN is built for {self.loaded.runtime}, not OpenMP")
            self.threads, self.use_threads = 1, None
            return
        # The symbols of the OpenMP runtime that libdnnl is linked to. PyDLL keeps the GIL: a call takes nanoseconds.
        omp = ctypes.PyDLL(self.loaded.path, handle=self.c._handle)
        usual = _usual_threads(self.loaded.path, self.c._handle)  # before the number is changed below
        self.threads = threads or usual
        self.use_threads = partial(omp.omp_set_num_threads, ctypes.c_int(self.threads))
        self.use_threads()

    # objects

    def call(self, entry: str, *arguments: Any) -> None:
        status = getattr(self.c, entry)(*arguments)  # by an index it would be a new object each time
        if status:
            raise DnnlError(f"{entry}: status {status}")

    def create(self, entry: str, destroy: str, *arguments: Any) -> _Handle:
        pointer = Pointer()
        self.call(entry, ctypes.byref(pointer), *arguments)
        return _Handle(pointer, getattr(self.c, destroy))

    def desc(self, shape: Sequence[int], strides: Sequence[int] | None = None) -> Desc:
        """A layout with these strides in elements; default: C-contiguous. Raises NotOffered for more than 12 axes."""
        if len(shape) > AXES:
            raise NotOffered(f"oneDNN's tensors have at most {AXES} axes, not {len(shape)}")
        if strides is None:
            strides = contiguous(shape)
        pointer = Pointer()
        self.call(
            "dnnl_memory_desc_create_with_strides",
            ctypes.byref(pointer), len(shape), Dims(*shape), FLOAT32, Dims(*strides),
        )  # fmt: skip
        return self._own(pointer)

    def any(self, shape: Sequence[int]) -> Desc:
        """A layout that is left to the implementation's choice."""
        pointer = Pointer()
        self.call(
            "dnnl_memory_desc_create_with_tag",
            ctypes.byref(pointer), len(shape), Dims(*shape), FLOAT32, ANY_TAG,
        )  # fmt: skip
        return self._own(pointer)

    def clone_desc(self, borrowed: int | None) -> Desc:
        pointer = Pointer()
        self.call("dnnl_memory_desc_clone", ctypes.byref(pointer), Pointer(borrowed))
        return self._own(pointer)

    def _own(self, pointer: Pointer) -> Desc:
        desc = Desc(pointer, self.c.dnnl_memory_desc_destroy)
        desc.nbytes = self.c.dnnl_memory_desc_get_size(pointer)
        return desc

    def equal(self, a: Desc, b: Desc) -> bool:
        return bool(self.c.dnnl_memory_desc_equal(a, b))

    def memory(self, desc: Desc, address: int) -> _Handle:
        return self.create("dnnl_memory_create", "dnnl_memory_destroy", desc, self.engine, Pointer(address))

    def attributes(self, post_ops: Sequence[tuple[int, Desc]] = ()) -> _Handle:
        """Attributes of a primitive: its scratchpad in user mode, and binary operations after the primitive's own, each
        (algorithm, layout of the second operand)."""
        attr = self.create("dnnl_primitive_attr_create", "dnnl_primitive_attr_destroy")
        self.call("dnnl_primitive_attr_set_scratchpad_mode", attr, 1)
        if post_ops:
            chain = self.create("dnnl_post_ops_create", "dnnl_post_ops_destroy")
            for algorithm, operand in post_ops:
                self.call("dnnl_post_ops_append_binary", chain, algorithm, operand)
            self.call("dnnl_primitive_attr_set_post_ops", attr, chain)
        return attr

    # primitives

    def implementations(self, operation: str, *arguments: Any) -> Iterator[Primitive]:
        """Every implementation that the library offers for an operation, best first; none if it has none.

        `arguments` are those of dnnl_<operation>_primitive_desc_create after the engine. Raises DnnlError if the
        library refuses them.
        """
        entry = f"dnnl_{operation}_primitive_desc_create"
        pointer = Pointer()
        status = getattr(self.c, entry)(ctypes.byref(pointer), self.engine, *arguments)
        if status == _UNIMPLEMENTED:
            return
        if status:
            raise DnnlError(f"{entry}: status {status}")
        walker = _Handle(pointer, self.c.dnnl_primitive_desc_destroy)
        while True:
            yield Primitive(self, self.create("dnnl_primitive_desc_clone", "dnnl_primitive_desc_destroy", walker))
            if self.c.dnnl_primitive_desc_next_impl(walker):
                return

    def best(self, operation: str, *arguments: Any) -> Primitive:
        """The first usable implementation of an operation; a slow one only if there is no other. Raises NotOffered if
        there is none, or only `gemm` ones."""
        result = [p for p in self.implementations(operation, *arguments) if "gemm" not in p.name]
        if not result:
            raise NotOffered(f"oneDNN offers no {operation} for this geometry")
        fit = next((p for p in result if usable(p.name)), None)
        if fit is None:
            self.slow.append(f"{operation} {result[0].name}")
        return fit or result[0]

    def reorder(self, source: Desc, target: Desc) -> Primitive:
        pd = self.create(
            "dnnl_reorder_primitive_desc_create", "dnnl_primitive_desc_destroy",
            source, self.engine, target, self.engine, self.attr,
        )  # fmt: skip
        return Primitive(self, pd)


@cache
def _usual_threads(path: str, handle: int) -> int:
    """OpenMP's number of threads before this module sets it for the first time; later calls return the same.

    So one device's number of threads does not become the default of the next device: with another number of threads,
    sums are added in another order."""
    return int(ctypes.PyDLL(path, handle=handle).omp_get_max_threads())


def _executed(status: int) -> None:
    if status:
        raise DnnlError(f"dnnl_primitive_execute: status {status}")
