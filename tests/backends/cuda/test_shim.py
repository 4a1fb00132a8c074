"""The shim that runs CUDA sources on the CPU: it computes what a GPU would, and finds what a GPU would not forgive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minidnn.backends.cuda.recipe import Launch, Read, Scratch, Space, Write, plain
from minidnn.program import Algorithm, Op, Pass, Tensor
from tests.support.cuda import host as cuda_host
from tests.support.cuda.host import KernelError, Library, build, kernel_names, mismatches

pytestmark = pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to compile CUDA sources for the CPU with")

SOURCE = r"""
#include "common.cuh"
extern "C" __global__ void twice(const T* __restrict__ x, T* __restrict__ y, int64 n) {
    for (int64 i = first(); i < n; i += step()) store(y, i, 2 * load(x, i));
}
extern "C" __global__ void __launch_bounds__(256) total(const float* x, float* y, int n) {
    extern __shared__ float sums[];
    __shared__ float bias;
    if (threadIdx.x == 0) bias = 0.5f;
    float own = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) own += x[i];
    float sum = block_sum(sums, own);
    if (threadIdx.x == 0) y[blockIdx.x] = sum + bias;
}
extern "C" __global__ void unset(float* y) {
    __shared__ float never[4];
    extern __shared__ float nor[];
    y[0] = never[threadIdx.x];
    y[1] = nor[0];
}
extern "C" __global__ void partly(float* y) {
    if (threadIdx.x < 3) __syncthreads();
    y[threadIdx.x] = 1;
}
extern "C" __global__ void elsewhere(float* y) {
    if (threadIdx.x < 3)
        __syncthreads();
    else
        __syncthreads();
    y[threadIdx.x] = 1;
}
extern "C" __global__ void leaves(float* y) {
    __syncthreads();
    if (threadIdx.x == 5) return;
    __syncthreads();
    y[threadIdx.x] = 1;
}
extern "C" __global__ void race(int* y) {
    __shared__ int own[8];
    own[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = own[(threadIdx.x + 1) % 8];  // without a barrier
}
extern "C" __global__ void shuffled(const float* x, float* y) {
    float v = x[threadIdx.x];
    for (int by = 1; by < 32; by *= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, by);
    __shared__ float sums[2];
    sums[threadIdx.x / 32] = v;
    __syncthreads();
    y[threadIdx.x] = sums[0] - sums[1];
}
extern "C" __global__ void shuffles_alone(float* y) {
    if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1.0f, 1);
}
extern "C" __global__ void late(const float* x, float* y) {
    __shared__ float own[64];
    shim::copy_async(&own[threadIdx.x], &x[threadIdx.x], 4, 4);
    shim::commit_group();
    shim::copy_async(&own[threadIdx.x + 32], &x[threadIdx.x], 4, 0);
    shim::commit_group();
    shim::wait_group(1);
    y[threadIdx.x] = own[threadIdx.x];
    y[threadIdx.x + 32] = own[threadIdx.x + 32];
    shim::wait_group(0);
    y[threadIdx.x + 64] = own[threadIdx.x + 32];
}
#define COPY(type) \
    extern "C" __global__ void copy_##type(const type* x, type* y) { y[0] = x[0]; }
COPY(float)
COPY(int)
extern "C" __global__ void divide(const int64* a, const uint32* b, int64* q, uint32* r) {
    q[threadIdx.x] = quotient(a[threadIdx.x], b[threadIdx.x]);
    r[threadIdx.x] = remainder(a[threadIdx.x], b[threadIdx.x], q[threadIdx.x]);
}
extern "C" __global__ void bits(float x, unsigned a, unsigned b, unsigned* y) {
    y[0] = __float_as_uint(x);
    y[1] = __umulhi(a, b);
    y[2] = min(a, b) + max(3, 5) + (unsigned)fmaxf(1.0f, 2.0f);
}
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cuda") / "samples.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module", params=["own switch", "ucontext"])
def samples(request, path) -> Library:
    return Library(build(path, options=("-DSHIM_UCONTEXT",) if request.param == "ucontext" else ()))


def address(*arrays: np.ndarray) -> list[int]:
    return [a.ctypes.data for a in arrays]


def test_the_compiler_tells_every_signature(path, samples):
    assert samples.signatures["twice"] == ["c*f4", "*f4", "i8"]
    assert samples.signatures["bits"] == ["f4", "u4", "u4", "*u4"]
    assert kernel_names(path) == list(samples.signatures)
    assert {"copy_float", "copy_int"} < set(samples.signatures), "those that macros write are found too"


def test_threads_without_barriers(samples):
    x = np.arange(5000, dtype=np.float32)
    for grid, falling in ((1, False), (7, True), (100, False)):
        y = np.full_like(x, np.nan)
        samples.bind("twice", [*address(x, y), np.int64(4999)], grid, 64, 0, falling)()
        assert np.array_equal(y[:4999], 2 * x[:4999]) and np.isnan(y[4999])


@pytest.mark.parametrize("block", [1, 32, 256, 1024])
def test_barriers_and_shared_memory(samples, block):
    x, y = np.arange(1000, dtype=np.float32), np.zeros(3, np.float32)
    for falling in (False, True):
        samples.bind("total", [*address(x, y), np.int32(1000)], 3, block, block * 4, falling)()
        assert (y == 499500.5).all()


def test_shared_memory_begins_undefined(samples):
    y = np.zeros(2, np.float32)
    samples.bind("unset", address(y), 1, 4, 16, False)()
    assert np.isnan(y).all()


def test_arguments_of_all_widths(samples):
    y = np.zeros(3, np.uint32)
    samples.bind("bits", [np.float32(1), np.uint32(1 << 31), np.uint32(6), *address(y)], 1, 1, 0, False)()
    assert y.tolist() == [0x3F800000, 3, 6 + 5 + 2]


def test_division_of_common_cuh(samples):
    """In 32 bits below 2^32, in 64 above: on both sides of the border, and for the largest tensors."""
    pairs = [(a, b) for a in (0, 1, 6, 7, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40 + 3, 2**62) for b in
             (1, 3, 7, 64, 2**31 - 1, 2**32 - 1)]  # fmt: skip
    a, b = np.array([p[0] for p in pairs], np.int64), np.array([p[1] for p in pairs], np.uint32)
    q, r = np.zeros_like(a), np.zeros_like(b)
    samples.bind("divide", address(a, b, q, r), 1, len(pairs), 0, False)()
    assert [(int(x), int(y)) for x, y in zip(q, r, strict=True)] == [divmod(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ("partly", "which 5 threads do not reach"),
        ("elsewhere", "at that of line"),
        ("leaves", "which 1 threads do not reach"),
    ],
)
def test_a_barrier_that_not_all_reach_is_an_error(samples, kernel, says):
    y = np.zeros(8, np.float32)
    for falling in (False, True):
        with pytest.raises(KernelError, match=says):
            samples.bind(kernel, address(y), 1, 8, 0, falling)()
    samples.bind("twice", [*address(y, y), np.int64(0)], 1, 8, 0, False)()  # and the next launch runs
    x = np.ones(8, np.float32)
    samples.bind("total", [*address(x, y), np.int32(8)], 1, 8, 32, False)()
    assert y[0] == 8.5


def test_a_race_shows_in_the_order_of_threads(samples):
    ys = [np.zeros(8, np.int32) for _ in range(2)]
    for falling, y in enumerate(ys):
        samples.bind("race", address(y), 1, 8, 0, bool(falling))()
    assert not np.array_equal(*ys)


def test_a_warp_exchanges_registers_and_waits_for_no_other(samples):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    for falling in (False, True):
        samples.bind("shuffled", address(x, y), 1, 64, 0, falling)()
        assert (y == x[:32].sum() - x[32:].sum()).all()
        with pytest.raises(KernelError, match="not all 32 threads of a warp exchange registers"):
            samples.bind("shuffles_alone", address(y), 1, 64, 0, falling)()


def test_what_is_copied_beside_the_thread_arrives_when_it_waits(samples):
    x, y = np.ones(32, np.float32), np.zeros(96, np.float32)
    samples.bind("late", address(x, y), 1, 32, 0, False)()
    assert (y[:32] == 1).all() and np.isnan(y[32:64]).all() and (y[64:] == 0).all()


@pytest.mark.parametrize(("grid", "block", "shared"), [(0, 1, 0), (1, 0, 0), (1, 1025, 0), (1, 1, 1 << 20)])
def test_a_launch_that_no_gpu_takes(samples, grid, block, shared):
    x = np.zeros(1, np.float32)
    with pytest.raises(KernelError, match="no GPU runs"):
        samples.bind("twice", [*address(x, x), np.int64(1)], grid, block, shared, False)()


def test_a_recipe_that_disagrees_with_its_kernel_is_found(samples):
    x, y, i = Tensor("x", (4,)), Tensor("y", (4,)), Tensor("i", (4,), "int32")
    op = Op("op", "a.kind", "layer", Pass.FORWARD, (x, i), (y,))
    signatures = samples.signatures

    def wrong(*arguments, kernel="twice", workspace=0) -> str:
        launch = Launch("samples", kernel, arguments, 1)
        scratch = Scratch()
        scratch.take(workspace)
        return "; ".join(mismatches(op, scratch.recipe("default", launch), launch, signatures))

    n = np.int64(4)
    assert wrong(Read(0), Write(0), n) == ""
    assert wrong(Space(0, 256), Space(256, 256), n, workspace=512) == ""
    assert "argument 2 is i4, the parameter i8" in wrong(Read(0), Write(0), np.int32(4))
    assert "argument 2 is u8" in wrong(Read(0), Write(0), np.uint64(4))
    assert "points to i4" in wrong(Read(1), Write(0), n)
    assert "only read" in wrong(Read(0), Read(0), n)
    assert "2 arguments for 3" in wrong(Read(0), Write(0))
    assert "no such kernel" in wrong(kernel="nonesuch")
    assert "of 1" in wrong(Read(0), Write(1), n)
    assert "begins beyond" in wrong(Read(0, 16), Write(0), n)
    assert "beyond the workspace" in wrong(Space(256, 257), Write(0), n, workspace=512)
    assert "argument 0 is i8" in wrong(n, Write(0), n)
    assert "argument 2 points to f4" in wrong(Read(0), Write(0), Write(0))
    assert plain().algorithm == Algorithm("default", 0)


def test_what_does_not_compile_is_named(tmp_path):
    path = tmp_path / "broken.cu"
    path.write_text('extern "C" __global__ void f(float* y) { y[0] = nonesuch; }\n')
    with pytest.raises(KernelError, match=r"broken\.cu:1.*\n?.*nonesuch"):
        build(path)
