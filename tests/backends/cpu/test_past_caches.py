"""Large results go past the caches, where their rows are aligned vectors. The bits are those of results that do not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from minidnn.backends.cpu.native.copy import copying
from tests.support.op_examples import Example, Maker, attrs, compiled, run, some_index

LARGE = 1 << 20  # elements (pieces.h)
SHAPE = (2, 64, 92, 94)
OFF = 4  # bytes: an address that is a float's, but no vector's
OURS = ("native", "winograd", "implicit_gemm")  # beginnings of our algorithms' names


def examples() -> Iterator[Example]:
    m = Maker(0)
    n, c, h, w = SHAPE
    x, y = m.normal(*SHAPE), abs(m.normal(*SHAPE))
    channels = [m.normal(c), m.normal(c) ** 2 + 0.1, m.normal(c), m.normal(c)]
    for relu in ("", "_relu"):
        yield m.example(f"batch_norm.normalize_scale{relu}", [x, *channels], [SHAPE], attrs(eps=1e-5), [(0, 0)])
        dy = m.normal(*SHAPE)
        reads, inplace = [x, *channels, dy], [(5, 0), (0, 0)]
        kind = f"batch_norm.backward_scale{relu}"
        yield m.example(kind, reads, [SHAPE, (c,), (c,)], attrs(eps=1e-5), inplace)
    kind = "batch_norm.normalize_scale_add_relu"
    yield m.example(kind, [x, y, *channels], [SHAPE], attrs(eps=1e-5), [(1, 0)])
    a = attrs(size=5, alpha=0.1, beta=0.75, k=1.0, region="ACROSS_CHANNELS", saved="x")
    yield m.example("lrn.forward", [x], [SHAPE], a)
    yield m.example("lrn.backward", [x, dy], [SHAPE], a)
    yield m.example("concat.forward", [x, x], [(n, 2 * c, h, w)], attrs(axis=1, starts=(0, c)))
    yield m.example("concat.forward", [x], [(n, 2 * c, h, w)], attrs(axis=1, starts=(c,)), note="with a gap")
    yield m.example("crop.forward", [m.normal(n, 96, h, w)], [SHAPE], attrs(start=(0, 16, 0, 0)), note="of channels")
    yield m.example("crop.backward", [x], [(n, 96, h, w)], attrs(start=(0, 16, 0, 0)), note="of channels")
    yield m.example("permute.forward", [m.normal(n, c, 96, 96)], [(n, 96, 96, c)], attrs(order=(0, 2, 3, 1)))
    yield m.example("tile.forward", [x], [(n, 2 * c, h, w)], attrs(axis=1, tiles=2))
    yield m.example("batch_reindex.forward", [x, np.array([1, 0], np.int32)], [SHAPE])
    yield m.example("flatten.forward", [m.normal(n, c, 96, 96)], [(n, c * 96 * 96)])
    yield m.example("eltwise.forward_relu", [x, y], [SHAPE], attrs(operation="SUM", coeff=(1.0, 2.0), index=None))
    yield m.example("gradient.sum_relu", [y, x, x], [SHAPE], inplace=[(1, 0)])
    for k, s in ((2, 2), (3, 2)):
        o = h // 2, w // 2
        a = attrs(method="MAX", kernel=(k, k), stride=(s, s), pad=(0, 0), saved="index")
        index = some_index(m, (h, w), o, (k, k), (s, s), (0, 0), (n, c, *o), "uint8")
        dy, ys = m.normal(n, c, *o), m.normal(n, c, *o)
        yield m.example("pooling.backward", [index, dy], [SHAPE], a, note=f"kernel {k}")
        yield m.example("pooling.backward_relu", [index, ys, dy], [SHAPE], a, note=f"kernel {k}")
    a = attrs(kernel=(3, 3), stride=(1, 1), pad=(1, 1), dilation=(1, 1), group=2)
    few, weights = m.normal(n, 8, h, w), m.normal(c, 4, 3, 3)
    yield m.example("convolution.forward_relu", [few, weights, m.normal(c)], [SHAPE], a)
    for stride in (1, 2):
        a = attrs(kernel=(3, 3), stride=(stride, stride), pad=(1, 1), dilation=(1, 1), group=c)
        dy, weights = m.normal(n, c, h // stride, w // stride), m.normal(c, 1, 3, 3)
        yield m.example("convolution.backward_data", [weights, dy], [SHAPE], a, note=f"stride {stride}")
    yield m.example("convolution.forward", [x, weights], [SHAPE], attrs(**{**vars(a), "stride": (1, 1)}))
    yield m.example("inner_product.backward_data", [m.normal(9, 1 << 16), m.normal(17, 9)], [(17, 1 << 16)])


def test_the_bits_are_those_of_results_that_stay():
    device = compiled(2)
    for e in examples():
        assert e.op.writes[0].size > LARGE
        ours = [a for a in device.algorithms(e.op) if a.name.startswith(OURS)]
        assert ours, e.name
        for algorithm in ours:
            past, stays = (run(device, e, algorithm, off=off)[0] for off in (0, OFF))
            assert past.tobytes() == stays.tobytes(), f"{e.name}: {algorithm.name}"
            if e.op.inplace:
                assert past.tobytes() == run(device, e, algorithm, together=True)[0].tobytes(), f"{e.name}: in place"


@pytest.mark.parametrize("size", [0, 1, 63, 64, 255, 256, 4097, 1 << 20])
@pytest.mark.parametrize("at", [0, 1, 4, 60])
def test_a_copy_has_the_bytes_and_no_others(size, at):
    rng, device = np.random.default_rng(size + at), compiled(2)
    source, to = (rng.integers(256, size=size + 200, dtype=np.uint8) for _ in range(2))
    want = to.copy()
    want[at : at + size] = source[7 : 7 + size]
    copying(device.native, to[at : at + size], source[7 : 7 + size])()
    assert to.tobytes() == want.tobytes()


def test_the_cpu_s_streams_copy_so():
    runtime = compiled(2).runtime(1 << 12, 1 << 12)
    try:
        call = runtime.copy(runtime.arena, runtime.host, "in")
        assert call.func.__name__ == "copy_bytes"
    finally:
        runtime.close()
