"""A sample's product has the same bytes beside any number of others, in any place among them, wherever arrays lie."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.backends.reference import KERNELS, products
from minidnn.backends.reference.products import by_matrix, laid_out, room
from minidnn.layers.matmul import MatMulAttrs
from tests.support.blas import CORES, run_as
from tests.support.slow import quick_are

SHAPES = [(1, 1), (1, 33), (9, 1), (9, 33), (10, 100), (16, 64), (33, 129), (300, 17), (100, 1000)]  # of w
BATCHES = 1, 2, 3, 5, 8, 16, 17, 33


def shifted(x, elements):
    """A copy that begins so many elements behind a line of the cache."""
    space = room((1, x.size + elements), x.dtype)
    copy = space[0, elements:].reshape(x.shape)
    copy[...] = x
    return copy


def check():
    """Each sample of each batch, with one row and with three: by a matrix, by its transpose, and by one of its own."""
    random = np.random.default_rng(0)
    for columns, depth in SHAPES:
        w = random.standard_normal((columns, depth)).astype(np.float32)
        for x in (random.standard_normal((max(BATCHES), rows, depth)).astype(np.float32) for rows in (1, 3)):
            ways = {
                "matrix": lambda x, w: by_matrix(x, w.T.copy()),
                "transpose": lambda x, w: by_matrix(x, w, transpose=True),
                "own": lambda x, w: products.products(x, np.tile(w, (len(x), 1, 1)), transpose_right=True),
            }
            for name, way in ways.items():
                alone = [way(one[None], w)[0].tobytes() for one in x]
                np.testing.assert_allclose(way(x, w), x @ w.T, rtol=1e-4, atol=1e-3)
                for n in BATCHES:
                    found = way(shifted(x[-n:], n % 7), shifted(w, n % 5))
                    assert [one.tobytes() for one in found] == alone[-n:], (name, x.shape, w.shape, n)


def test_a_samples_bytes_depend_on_that_sample_alone():
    check()


@pytest.mark.parametrize("core", quick_are(["Haswell"], CORES))
def test_with_the_kernels_of_other_cpus(core):
    run_as(core, "from tests.backends.reference.test_products import check", "check()")


@pytest.mark.parametrize("shape", [(6, 9), (6, 4, 9), (9,)])
def test_an_inner_product_with_transposed_weights(shape):
    """It is a MatMul, of one pair of matrices: the samples are rows of the first."""
    random = np.random.default_rng(1)
    x, w = (random.standard_normal(s).astype(np.float32) for s in ((*shape[:-1], 33), (33, 9)))

    def run(x):
        y = np.empty((*x.shape[:-1], 9), np.float32)
        KERNELS["matmul.forward"](MatMulAttrs(1, x.size // 33, 33, 9), [x, w], [y])
        return y

    np.testing.assert_allclose(run(x), x @ w, rtol=1e-4, atol=1e-4)
    if x.ndim > 1:
        assert run(x).tobytes() == b"".join(run(one[None]).tobytes() for one in x)


def test_in_pieces_of_a_matrix_too(monkeypatch):
    monkeypatch.setattr(products, "CACHED", 100)
    check()


def test_samples_lie_alike():
    for shape in ((1, 5), (3, 5), (4, 2, 16), (2, 3, 3), (3, 1)):
        x = room(shape)
        assert x.shape == shape and x[0].flags.c_contiguous
        assert all(one.ctypes.data % products.LINE == 0 for one in x)
        assert laid_out(x) is x, "it is not copied again"
        for other in (shifted(x, 1), x[..., ::-1], np.broadcast_to(x[:1], shape)):
            copy = laid_out(other)
            np.testing.assert_array_equal(copy, other)
            assert all(one.ctypes.data % products.LINE == 0 for one in copy)
