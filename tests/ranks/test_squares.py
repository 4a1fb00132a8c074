"""Norms do not know of ranks: sums of squares by blocks have the same bits, in float64, for whole tensors and for
shards. So have the norms."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends import open_device
from minidnn.backends.cpu import CpuDevice
from minidnn.optimizers.squares import Blocks
from minidnn.program import Tensor
from minidnn.ranks import shards
from tests.support.cuda.host import COMPILER, HostCuda
from tests.support.op_examples import Maker, attrs, run, squared
from tests.support.op_examples.updates import rule_attrs

DEVICES = {
    "reference": lambda: open_device("reference"),
    **{f"cpu{n}": lambda n=n: CpuDevice(threads=n) for n in (1, 2, 3)},
    "cuda": HostCuda,
}
SIZES = (3 * 4096 + 299, 5, 4096, 17 * 4096 + 1, 70001)  # elements of each tensor


@pytest.fixture(scope="module", params=DEVICES)
def device(request):
    if request.param == "cuda" and COMPILER is None:
        pytest.skip("no g++ to compile CUDA sources for the CPU with")
    return DEVICES[request.param]()


def done(device, example):
    return run(device, example, device.algorithms(example.op)[0])


def uneven(m: Maker, size: int) -> np.ndarray:
    """Numbers of all sizes, so that each order of their squares' sums has bits of its own."""
    return m.normal(size) * np.float32(10.0) ** m.random.uniform(-4, 2, size).astype(np.float32)


def shard(x: np.ndarray, ranks: int, rank: int) -> np.ndarray:
    """A rank's elements, then zeros."""
    own = np.zeros(shards.length(x.size, ranks), x.dtype)
    first, last = shards.bounds(x.size, ranks, rank)
    own[: last - first] = x[first:last]
    return own


def whole(rows: list[np.ndarray], sizes) -> bytes:
    """The sums of all ranks' blocks, tensor by tensor, without those behind a tensor's end."""
    ranks, found, at = len(rows), [], 0
    for size in sizes:
        each = shards.blocks(shards.length(size, ranks))
        found.append(np.concatenate([row[at : at + each] for row in rows])[: shards.blocks(size)])
        at += each
    return np.concatenate(found).tobytes()


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_blocks_have_the_sums_that_they_have_in_whole_tensors(device, ranks):
    m, sizes = Maker(1), (*SIZES, *range(7871, 8192, 8))
    xs = [uneven(m, n) for n in sizes]
    (alone,) = done(device, squared(m, xs))
    rows = [done(device, squared(m, [shard(x, ranks, rank) for x in xs]))[0] for rank in range(ranks)]
    assert whole(rows, sizes) == alone.tobytes()
    assert np.allclose(alone.sum(), sum(float(np.square(x.astype(np.float64)).sum()) for x in xs), rtol=1e-12)


@pytest.mark.parametrize("ranks", [2, 3])
def test_lamb_s_moments_and_sums_are_those_of_whole_tensors(device, ranks):
    m, size = Maker(2), SIZES[0]
    w, dw, mean, square = uneven(m, size), m.normal(size), uneven(m, size), m.normal(size) ** 2
    a = rule_attrs((0.9, 0.999, 1e-6), 0.01, "L2", False)

    def moments(given):
        w, dw, mean, square = given
        sums = (2 * shards.blocks(w.size),)
        reads = [w, dw, np.float32([1]), mean, square, np.array([3])]
        return done(device, m.example("lamb.moments", reads, [3, 4, sums], a, dtypes={2: "float64"}))

    alone = moments((w, dw, mean, square))
    parts = [moments([shard(x, ranks, rank) for x in (w, dw, mean, square)]) for rank in range(ranks)]
    for k in range(2):
        assert np.concatenate([part[k] for part in parts])[:size].tobytes() == alone[k].tobytes()
    assert whole([part[2] for part in parts], (size, size)) == alone[2].tobytes()


def flips(factor) -> np.float64:
    """The least number at which factor(number), float32, exceeds 1/2. It shows all bits of what the number is divided
    by."""
    low, high = (int(np.float64(x).view(np.int64)) for x in (1e-3, 1e9))
    while high - low > 1:
        middle = (low + high) // 2
        if factor(np.int64(middle).view(np.float64)) > 0.5:
            high = middle
        else:
            low = middle
    return np.int64(high).view(np.float64)


def gathered(sums: list[np.ndarray], sizes, ranks: int) -> tuple[Blocks, np.ndarray]:
    """These sums of each tensor's blocks as so many ranks gather them."""
    tensors = [Tensor(f"x{i}", (shards.length(size, ranks),)) for i, size in enumerate(sizes)]
    blocks = Blocks.of(tensors, ranks)
    rows: list[np.ndarray] = []
    for rank in range(ranks):
        for of, each in zip(sums, blocks.counts, strict=True):
            rows.append(np.zeros(each))
            own = of[rank * each : (rank + 1) * each]
            rows[-1][: own.size] = own
    return blocks, np.concatenate(rows)


@pytest.mark.parametrize("kind", ["gradient.clip", "lars.ratio"])
def test_the_norm_of_many_blocks_is_the_same(device, kind):
    m, sizes = Maker(3), (SIZES if kind == "gradient.clip" else (70001, 70001))
    sums = [10.0 ** m.random.uniform(-2, 4, shards.blocks(size)) for size in sizes]

    def least(ranks: int) -> np.float64:
        blocks, rows = gathered(sums, sizes, ranks)

        def factor(number: np.float64) -> np.float32:
            if kind == "gradient.clip":
                reads, a = [rows], attrs(threshold=float(number), blocks=blocks)
            else:
                reads = [rows, np.float32([1])]
                a = attrs(rule=rule_attrs((0.9, float(number)), 0.0, "L2", False), blocks=blocks)
            return done(device, m.example(kind, reads, [(1,)], a))[0][0]

        return flips(factor)

    assert {float(least(ranks)) for ranks in (2, 3, 4)} == {float(least(1))}
