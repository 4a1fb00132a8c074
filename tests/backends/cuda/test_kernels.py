"""The cuda backend's own kernels, run on the CPU (tests/support/cuda/host.py), against the reference: the same
numbers, the same bytes wherever tensors lie and in whichever order threads run. (That they compile for GPUs:
test_compile.py; that they stay within their tensors: test_sanitized.py.)"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from minidnn.backends.cuda import (
    activation,
    attention,
    broadcast,
    dropout,
    elementwise,
    gather,
    join,
    matmul,
    move,
    pooling,
    recurrent,
    resize,
    rotary,
    rules,
    samples,
    summary,
    tensor_cores,
)
from minidnn.backends.cuda.device import OF_CUDNN
from minidnn.backends.cuda.recipe import Execute, Launch, Space, divisor, plain
from minidnn.backends.reference import KERNELS
from minidnn.memory.parts.kinds import MERGES
from minidnn.program import DEFAULT, MULTI_TENSOR, Algorithm, Tensor
from tests.support.cuda import host as cuda_host
from tests.support.cuda.host import HostCuda, KernelError, tolerance
from tests.support.cuda.op_examples import all_examples
from tests.support.op_examples import Example, expected, hides, place, run
from tests.support.slow import usual_are

pytestmark = [
    pytest.mark.skipif(cuda_host.COMPILER is None, reason="no g++ to compile CUDA sources for the CPU with"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

KINDS = sorted(cuda_host.kinds())
ALL: dict[str, list[Example]] = defaultdict(list)
for _e in all_examples():
    ALL[_e.op.kind].append(_e)
# Kinds whose result has NaN and infinities at exactly the reference's places. (Others must be finite nowhere where
# the reference is not: a sum in another order may say NaN instead of infinity, or overflow elsewhere.)
ALIKE = ("relu", "gradient.a", "gradient.sum", "identity", "eltwise", "scale", "pooling.forward", "concat", "flatten")
ALIKE += ("dropout", "crop", "permute", "tile.forward", "im2col", "batch_reindex")
ALIKE += ("unary", "prelu.forward", "prelu.backward_data")


@pytest.fixture(scope="module")
def device() -> HostCuda:
    return HostCuda()


@pytest.fixture(scope="module")
def falling() -> HostCuda:
    return HostCuda(falling=True)


def close(got: np.ndarray, want: np.ndarray, exact: bool, algorithm: Algorithm = DEFAULT) -> bool:
    if exact or want.dtype.kind != "f":
        return np.array_equal(got, want)
    return bool(np.all(np.abs(got - want) <= tolerance(algorithm) * max(1.0, float(np.abs(want).max(initial=0)))))


def test_every_kind_has_a_kernel():
    assert {*KINDS, *OF_CUDNN} == set(KERNELS)


@pytest.mark.parametrize("kind", usual_are(KINDS[::8], KINDS))
def test_equals_the_reference(device, kind):
    assert ALL[kind], "a kind without examples"
    for e in ALL[kind]:
        want = expected(KERNELS, e)
        algorithms = device.algorithms(e.op)
        assert algorithms
        for algorithm in algorithms:
            got = run(device, e, algorithm)
            for t, g, w in zip(e.op.writes, got, want, strict=True):
                assert close(g, w, e.exact, algorithm), (
                    f"{e.name}: {t.name} by {algorithm}, off by {np.abs(g - w).max()}"
                )


def test_zeros_of_a_relu_have_no_sign(device):
    """Packing (memory/execution/compression.py) leaves out what has no bit set."""
    found = [e for e in ALL["relu.forward"] if e.op.attrs.negative_slope == 0]
    assert any((x < 0).any() for e in found for x in e.data.values())
    assert not any(np.signbit(run(device, e, device.algorithms(e.op)[0])[0]).any() for e in found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_same_bytes_wherever_it_lies_and_in_place_and_in_any_order(device, falling, kind):
    for e in ALL[kind]:
        for algorithm in device.algorithms(e.op):
            first = run(device, e, algorithm)
            for on, how in (
                (device, {"shift": 3, "poison": 0}),
                (falling, {"poison": 0x7F}),
                (falling, {"together": True}),
                (device, {"together": True}),
            ):
                again = run(on, e, algorithm, **how)
                for t, a, b in zip(e.op.writes, first, again, strict=True):
                    assert a.tobytes() == b.tobytes(), f"{e.name}: {t.name} by {algorithm} differs with {how}"


# Kinds all of whose kernels stride over the grid: any number of blocks does. (Others give each block its share.)
STRIDING = [
    activation, attention, broadcast, dropout, elementwise, gather, join, matmul, move, pooling, recurrent, resize,
    rotary, samples, summary,
]  # fmt: skip
STRIDING = sorted(k for module in STRIDING for k in module.KINDS)
STRIDING.remove("prelu.backward_filter")
STRIDING += ["group_norm.forward", "group_norm.backward", "row_norm.forward", "row_norm.backward_data"]
STRIDING += ["gradient.accumulate", "gradient.total", "scale.forward", "scale.backward_data"]
STRIDING += [f"{rule}.update{each}" for rule in ("sgd", *rules.RULES) for each in ("", MULTI_TENSOR)]
STRIDING += ["batch_norm.statistics", "batch_norm.statistics_multi_tensor", *MERGES.values()]


@pytest.mark.parametrize("kind", usual_are(STRIDING[::8], STRIDING))
def test_any_grid_does(device, kind):
    """As over tensors with more items than the largest grid has threads."""
    few = [HostCuda(blocks=1), HostCuda(blocks=3, falling=True)]
    for e in [e for e in ALL[kind] if sum(t.size for t in e.op.tensors) > 300]:
        for algorithm in device.algorithms(e.op):
            first = [x.tobytes() for x in run(device, e, algorithm)]
            for other in few:
                assert [x.tobytes() for x in run(other, e, algorithm)] == first, f"{e.name} by {algorithm}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_only_read_stays(device, kind):
    for e in ALL[kind]:
        for algorithm in device.algorithms(e.op):
            call, views = place(device, e, algorithm)
            call()
            for t in e.op.reads:
                if t not in e.op.writes:
                    assert np.array_equal(views[t], e.data[t], equal_nan=True), f"{e.name} by {algorithm} writes {t}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_may_be_repeated(device, kind):
    """Nothing is kept in the workspace, and nothing is only right in memory that is fresh."""
    for e in ALL[kind][:: max(1, len(ALL[kind]) // 8)]:
        if any(t in e.op.writes for t in e.op.reads):
            continue
        for algorithm in device.algorithms(e.op):
            call, views = place(device, e, algorithm)
            call()
            first = [views[t].tobytes() for t in e.op.writes]
            call()
            assert [views[t].tobytes() for t in e.op.writes] == first, f"{e.name} by {algorithm}"


def spoiled(kind: str) -> list[Example]:
    """The kind's smaller examples with values that are not finite in one read: one, some, all."""
    found = []
    small = (e for e in ALL[kind] if sum(t.size for t in e.op.reads) < 1 << 12 and len(e.op.reads) <= 16)
    for e in (e for e in small if not hides(e)):
        random = np.random.default_rng(0)
        for t in e.op.reads:
            if t.dtype != "float32":
                continue
            for value in (np.nan, np.inf, -np.inf):
                for count in {1, -(-t.size // 9), t.size}:
                    x = e.data[t].copy()
                    x.reshape(-1)[random.choice(t.size, count, replace=False)] = value
                    found.append(Example(f"{e.name} with {count} {value} in {t.name}", e.op, {**e.data, t: x}))
    return found[:: max(1, len(found) // 300)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_stands_where_the_reference_says(device, kind):
    for e in spoiled(kind):
        want = expected(KERNELS, e)
        for algorithm in device.algorithms(e.op):
            for together in (False, True):
                got = run(device, e, algorithm, together=together)
                for t, g, w in zip(e.op.writes, got, want, strict=True):
                    assert no_worse(kind, t, g, w), f"{e.name}: {t.name} by {algorithm}, in place: {together}"


def no_worse(kind: str, t: Tensor, got: np.ndarray, want: np.ndarray) -> bool:
    if t.dtype != "float32":
        return np.array_equal(got, want) or not kind.startswith(ALIKE)
    lost = ~np.isfinite(want) & np.isfinite(got)
    if not kind.startswith(ALIKE):
        return not lost.any()
    finite = np.isfinite(want)
    return (
        np.array_equal(np.isnan(got), np.isnan(want))
        and np.array_equal(np.where(finite, 0, want), np.where(finite, 0, got), equal_nan=True)
        and close(got[finite], want[finite], False)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_recipes_are_launches_that_every_gpu_takes(device, kind):
    for e in ALL[kind]:
        recipes = device.recipes(e.op)
        assert len({r.algorithm.name for r in recipes}) == len(recipes)
        for recipe in recipes:
            assert recipe == next(r for r in device.recipes(e.op) if r.algorithm == recipe.algorithm), "made alike"
            for step in recipe.steps:
                assert isinstance(step, Launch)
                assert 1 <= step.grid < 1 << 31 and 1 <= step.block <= 1024, e.name
                # bytes: of a block of any GPU, or of those with TF32 (sm_86 has least)
                assert step.shared <= (99 if recipe.algorithm.name == tensor_cores.NAME else 48) << 10, e.name


def test_a_prepared_divisor_divides():
    """All numbers around multiples of it, below 2^31."""
    random = np.random.default_rng(0)
    for by in (*range(1, 70), 224, 1000, 4096, 65535, 65537, (1 << 30) - 1, 1 << 30, (1 << 31) - 1):
        _, factor, shift = (int(n) for n in divisor(by))
        quotients = [0, 1, 2, *random.integers(0, (1 << 31) // by + 1, 200).tolist(), ((1 << 31) - 1) // by]
        for a in (q * by + d for q in quotients for d in (-1, 0, 1, by - 1)):
            if 0 <= a < 1 << 31:
                assert ((a * factor >> 32) + a) >> shift == a // by and factor < 1 << 32, (a, by)


def test_a_wrong_recipe_is_noticed(device, monkeypatch):
    """That the comparison can fail: ReLU with another slope, and a sum of half the elements."""
    for kind, at, wrong in (("relu.forward", 2, np.float32(0.125)), ("gradient.add", 3, np.int64(512))):
        right = device.kinds[kind]

        def spoilt(op, right=right, at=at, wrong=wrong):
            (recipe,) = right(op)
            (step,) = recipe.steps
            return [plain(replace(step, arguments=(*step.arguments[:at], wrong, *step.arguments[at + 1 :])))]

        monkeypatch.setitem(device.kinds, kind, spoilt)
        e = next(e for e in ALL[kind] if e.op.reads[0].size > 1000)
        (algorithm,) = device.algorithms(e.op)
        assert not close(run(device, e, algorithm)[0], expected(KERNELS, e)[0], False)


def test_a_plan_of_cudnn_is_refused(device, monkeypatch):
    e = ALL["gradient.add"][0]
    monkeypatch.setitem(device.kinds, "gradient.add", lambda op: [plain(Execute(None, (), Space(0, 0)))])
    with pytest.raises(KernelError, match="cuDNN"):
        run(device, e, device.algorithms(e.op)[0])
