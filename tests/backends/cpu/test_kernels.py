"""The cpu backend against the reference: the same numbers, the same bytes wherever tensors lie, no allocation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from minidnn.backends.cpu import CpuDevice, onednn
from minidnn.backends.cpu.onednn import library
from minidnn.backends.cpu.onednn.dnnl import Dnnl
from minidnn.backends.reference import KERNELS, ReferenceDevice
from minidnn.program import Algorithm, MultiTensor, Op, Pass, Tensor
from tests.support.cpu_kinds import ALL, by_kind, close, spoiled
from tests.support.cpu_step import feed, machine, persistent
from tests.support.op_examples import Example, bare, expected, place, run
from tests.support.paths import ROOT, SUPPORT
from tests.support.slow import usual_are


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    device = CpuDevice()
    if device.dnnl is None:
        pytest.skip(device.description)
    return device


# Kinds that read float32. The cpu runs several ops in one by the reference, if at all.
NOT_FINITE = {
    e.op.kind for e in ALL if not isinstance(e.op.attrs, MultiTensor) and any(t.dtype == "float32" for t in e.op.reads)
}


def ways(device: CpuDevice, e: Example) -> list[tuple[CpuDevice, Algorithm]]:
    """Every algorithm, with a device that has it: also the library's where our own kernels stand in its stead."""
    found = [(device, a) for a in device.algorithms(e.op)]
    names = {a.name for _, a in found} | {"reference"}
    return found + [(bare(), a) for a in bare().algorithms(e.op) if a.name not in names]


def test_every_kind_has_examples():
    assert {e.op.kind for e in ALL} == set(onednn.KINDS) | set(KERNELS)


@pytest.mark.parametrize("kind", sorted({e.op.kind for e in ALL}))
def test_equals_the_reference(device, kind):
    for e in by_kind(kind):
        want = expected(KERNELS, e)
        for having, algorithm in ways(device, e):
            got = run(having, e, algorithm)
            for t, g, w in zip(e.op.writes, got, want, strict=True):
                assert close(g, w, e.exact), f"{e.name}: {t.name} by {algorithm}, off by {np.abs(g - w).max()}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({e.op.kind for e in ALL}))
def test_same_bytes_wherever_it_lies_and_in_place(device, kind):
    for e in by_kind(kind):
        for having, algorithm in ways(device, e):
            first = run(having, e, algorithm)
            for how in ({"shift": 1}, {"shift": 3, "poison": 0}, {"together": True}):
                again = run(having, e, algorithm, **how)
                for t, a, b in zip(e.op.writes, first, again, strict=True):
                    assert a.tobytes() == b.tobytes(), f"{e.name}: {t.name} by {algorithm} differs with {how}"


def test_a_call_may_be_repeated(device):
    for e in by_kind("convolution.forward") + by_kind("lrn.backward"):
        for having, algorithm in ways(device, e):
            call, views = place(having, e, algorithm)
            call()
            first = views[e.op.writes[0]].tobytes()
            call()
            assert views[e.op.writes[0]].tobytes() == first, f"{e.name} by {algorithm}"


def test_convolutions_offer_a_choice_and_declare_their_workspace(device):
    x, w, y = Tensor("x", (2, 64, 28, 28)), Tensor("w", (64, 64, 3, 3)), Tensor("y", (2, 64, 28, 28))
    a = next(
        e for e in by_kind("convolution.forward") if e.op.attrs.kernel == (3, 3) and e.op.attrs.pad == (1, 1)
    ).op.attrs
    op = Op("conv", "convolution.forward", "conv", Pass.FORWARD, (x, w), (y,), a)
    algorithms = device.algorithms(op)
    assert len({a.name for a in algorithms}) == len(algorithms) >= 2
    assert all(a.workspace >= w.nbytes for a in algorithms), "weights are reordered into the workspace"
    assert not any(a.name.endswith((".gemm", ".ref")) for a in algorithms)


@pytest.mark.slow
def test_python_allocates_nothing_of_note(device):
    """The most memory that Python or NumPy hold at any moment of a call beyond what they held before it: views,
    numbers and NumPy's iterators, but no array."""
    worst = {}
    for e in ALL:
        for having, algorithm in ways(device, e):
            if algorithm.name == "reference":
                continue
            call, _ = place(having, e, algorithm)
            call()
            tracemalloc.start()
            call()
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            call()
            peak = tracemalloc.get_traced_memory()[1] - before
            tracemalloc.stop()
            worst[peak] = f"{e.name} by {algorithm}"
    most = max(worst)
    assert most < 4096, f"{most} B in {worst[most]}"


@pytest.mark.extended
def test_the_library_allocates_nothing_of_note(tmp_path):
    """malloc, mmap and their kin are counted while prepared calls and whole steps run (count_allocations.c, .py)."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the allocation counter with")
    counter = tmp_path / "count_allocations.so"
    source = SUPPORT / "count_allocations.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", counter, source, "-ldl"], check=True)
    env = {**os.environ, "LD_PRELOAD": str(counter), "PYTHONMALLOC": "malloc", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, SUPPORT / "count_allocations.py"], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "counter works" in done.stdout


def test_what_is_slow_is_known(device):
    """The library's own fallbacks crawl (a hundred times slower); a descriptor that is slightly off asks for one."""
    known = {
        "lrn_forward ref:any": "beta other than 0.75",
        "lrn_backward ref:any": "beta other than 0.75",
        "softmax_forward ref:any": "an axis that is not innermost",
        "softmax_backward ref:any": "an axis that is not innermost",
    }
    fresh = bare()
    for e in ALL:
        fresh.algorithms(e.op)
    assert set(fresh.dnnl.slow) <= set(known)
    for e in ALL:
        if e.op.kind.startswith("convolution") and "nhwc.ref" in (a.name for a in fresh.algorithms(e.op)):
            a, w = e.op.attrs, next(t for t in (*e.op.reads, *e.op.writes) if t.shape[2:] == e.op.attrs.kernel)
            narrow = a.group > 1 and (w.shape[1] % 8 or w.shape[0] // a.group % 8)  # below AVX-512
            assert max(a.dilation) > 1 or a.kernel == (11, 11) or narrow, e.name


@pytest.mark.parametrize("net", ["lenet", "residual", "inception"])
def test_training_agrees_with_the_reference(device, net):
    """Three steps; rounding differs, and grows from step to step."""
    ends = []
    for each, policy in ((device, "vdnn_all:m"), (ReferenceDevice(), "baseline:m")):
        with machine(net, each, policy) as made:
            for iteration in range(1, 4):
                made.step("TRAIN")
                feed(made, iteration)
            ends.append(persistent(made))
    for name, want in ends[1].items():
        assert np.abs(ends[0][name] - want).max() <= 1e-4 * max(1e-2, np.abs(want).max()), name


def test_threads(device):
    usual = device.dnnl.threads
    one = CpuDevice(threads=1)
    assert "1 thread" in one.description and "1 threads" not in one.description
    assert CpuDevice(threads=usual + 3).dnnl.threads == usual + 3
    assert CpuDevice().dnnl.threads == usual, "another device's threads are not the default"
    e = next(e for e in by_kind("convolution.forward"))
    got, want = run(one, e, one.algorithms(e.op)[0]), expected(KERNELS, e)
    assert close(got[0], want[0], False)
    with pytest.raises(ValueError, match="threads=0"):
        CpuDevice(threads=0)


def test_its_description_names_no_file_and_is_always_the_same(device):
    """It is in every snapshot: equal runs give equal files, on any machine and for any device of a process."""
    assert CpuDevice().description == device.description and "/" not in device.description
    assert "libdnnl" in device.found


def test_layout_is_nhwc_inside(device):
    t = Tensor("t", (2, 3, 4, 5))
    buffer = np.zeros(t.nbytes, np.uint8)
    view = device.array(buffer, t)
    view[1, 2, 3, 4] = 7
    assert view.shape == t.shape and view.strides == (240, 4, 60, 12)
    assert buffer.view(np.float32)[60 + 3 * 15 + 4 * 3 + 2] == 7


def test_unknown_kinds_and_wrong_algorithms_are_named(device, monkeypatch):
    t = Tensor("t", (2, 3, 4, 5))
    op = Op("mine", "mine.forward", "mine", Pass.FORWARD, (t,), (t,))
    with pytest.raises(KeyError, match=r"mine\.forward"):
        device.algorithms(op)
    monkeypatch.setitem(KERNELS, "mine.forward", lambda attrs, reads, writes: np.add(reads[0], 1, out=writes[0]))
    e = Example("mine", op, {t: np.ones(t.shape, np.float32)})
    (algorithm,) = device.algorithms(op)
    assert algorithm.name == "reference" and (run(device, e, algorithm)[0] == 2).all()
    with pytest.raises(ValueError, match="no algorithm nonesuch"):
        device.prepare(op, type(algorithm)("nonesuch", 3), {}, np.empty(0, np.uint8))


def test_a_wrong_label_is_named(device):
    e = next(e for e in by_kind("softmax_loss.forward"))
    e = Example(e.name, e.op, {**e.data, e.op.reads[1]: np.full_like(e.data[e.op.reads[1]], 99)})
    with pytest.raises(ValueError, match="label 99"):
        run(device, e, device.algorithms(e.op)[0])


def test_without_onednn(monkeypatch):
    monkeypatch.setenv(library.VARIABLE, "none")
    plain = CpuDevice()
    assert "fallback" in plain.description and "MINIDNN_ONEDNN=none" in plain.found
    for kind in ("convolution.forward", "pooling.backward", "relu.forward"):
        e = by_kind(kind)[0]
        got = run(plain, e, plain.algorithms(e.op)[0])
        assert all(np.array_equal(g, w) for g, w in zip(got, expected(KERNELS, e), strict=True))


def test_a_system_without_openmp_is_told_its_package(monkeypatch):
    """What the loader says of the wheel's library on a system that lacks GCC's OpenMP."""

    def lacking(source, name):
        raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.delenv(library.VARIABLE, raising=False)
    monkeypatch.setattr(library, "candidates", lambda: [("environment", "/venv/lib/libdnnl.so.3")])
    monkeypatch.setattr(library, "_open", lacking)
    with pytest.raises(library.Unavailable, match=r"^libgomp\.so\.1: cannot open .*apt install libgomp1"):
        library.load()


def test_a_named_library_is_not_silently_replaced(monkeypatch, tmp_path):
    monkeypatch.setenv(library.VARIABLE, str(tmp_path / "libnothing.so"))
    assert "libnothing.so" in CpuDevice().found
    libc = next((p for p in ("libc.so.6",) if sys.platform == "linux"), None)
    if libc:
        monkeypatch.setenv(library.VARIABLE, libc)
        assert "is not oneDNN" in CpuDevice().found


# What is not finite


def linear_reach(e: Example, bad: Tensor) -> np.ndarray:
    """Where a convolution's result must not be finite: where an element of `bad` that is not meets another's element.
    The reference also multiplies by the zeros of the padding; what meets nothing else need not be noticed."""
    marked = {t: np.ones(t.shape, np.float32) if t is not bad else (~np.isfinite(x)) * 1.0 for t, x in e.data.items()}
    if len(e.op.reads) == 3:
        marked[e.op.reads[2]] *= e.op.reads[2] is bad  # a bias is added
    return expected(KERNELS, Example(e.name, e.op, marked))[0] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", sorted(NOT_FINITE))
@pytest.mark.parametrize("every", usual_are([False], [False, True]))
def test_hides_nothing_that_is_not_finite(device, kind, every):
    """Where the reference's result is not finite, neither is the cpu's: in no layer may a diverged run look well."""
    for e, bad in spoiled(kind, every):
        want = expected(KERNELS, e)
        for having, algorithm in ways(device, e):
            got = run(having, e, algorithm)
            for t, g, w in zip(e.op.writes, got, want, strict=True):
                if t.dtype != "float32":
                    continue
                lost = ~np.isfinite(w)
                if kind.startswith("convolution.") and kind != "convolution.backward_bias":
                    lost &= linear_reach(e, bad)
                lost &= np.isfinite(g)
                assert not lost.any(), f"{e.name}: {t.name} by {algorithm} hides {lost.sum()} of {w[lost][0]}"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_maximum_that_is_nan_stands_where_the_reference_says(device):
    for e, _ in spoiled("pooling.forward"):
        if len(e.op.writes) == 2:
            want = expected(KERNELS, e)
            for having, algorithm in ways(device, e):
                got = run(having, e, algorithm)
                assert np.array_equal(got[0], want[0], equal_nan=True) and np.array_equal(got[1], want[1]), e.name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["relu.forward", "softmax.forward", "eltwise.forward"])
def test_what_is_not_finite_stands_as_well_in_place(device, kind):
    for e, _ in spoiled(kind):
        for having, algorithm in ways(device, e):
            apart, together = (run(having, e, algorithm, together=t) for t in (False, True))
            for a, b in zip(apart, together, strict=True):
                assert np.array_equal(np.isfinite(a), np.isfinite(b)), e.name


@pytest.mark.parametrize("kind", ["relu.forward", "convolution.forward_relu", "inner_product.forward_relu"])
def test_zeros_of_a_relu_have_no_sign(device, kind):
    """Packing (memory/execution/compression.py) leaves out what has no bit set."""
    found = [e for e in by_kind(kind) if getattr(e.op.attrs, "negative_slope", 0) == 0]
    assert found
    for e in found:
        for having, algorithm in ways(device, e):
            assert not np.signbit(run(having, e, algorithm)[0]).any(), f"{e.name} by {algorithm}"


@pytest.mark.parametrize("layer", ["conv1", "conv2", "ip1", "ip2"])
def test_parameters_that_are_not_finite_reach_the_loss(device, layer):
    """Through ReLUs, pools and the softmax, whatever stands behind the layer; and then nothing is updated."""
    with machine("lenet", device, "liveness:m") as made:
        program = made.arrangement.schedules["TRAIN"].program
        w = next(t for t in program.persistent if t.name == f"{layer}.w")
        made.set(w, np.full(w.shape, np.nan, np.float32))
        before = persistent(made)
        made.step("TRAIN")
        assert not any(np.isfinite(made.read(t, "TRAIN")).all() for t in program.outputs if t.name == "objective")
        assert all(np.array_equal(x, before[name], equal_nan=True) for name, x in persistent(made).items())


def test_onednn_is_not_asked_for_images_so_large_that_its_answer_takes_minutes(device, monkeypatch):
    real = Dnnl.implementations

    def implementations(self, operation, *arguments):
        assert not operation.startswith("convolution"), "asked"
        return real(self, operation, *arguments)

    monkeypatch.setattr(Dnnl, "implementations", implementations)
    x, y, w = Tensor("x", (4, 8, 64, 1208125519)), Tensor("y", (4, 8, 64, 1208125519)), Tensor("w", (8, 8, 1, 1))
    attrs = next(e.op.attrs for e in by_kind("convolution.forward") if e.op.reads[1].shape[2:] == (1, 1))
    for kind, reads, write in (("forward", (x, w), y), ("backward_data", (w, y), x), ("backward_filter", (x, y), w)):
        op = Op(f"{kind} c", f"convolution.{kind}", "c", Pass.FORWARD, reads, (write,), attrs)
        assert device.algorithms(op)
