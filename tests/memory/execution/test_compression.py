"""Compression in the store: every bit comes back, and the reserved bytes suffice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidnn.memory.execution.compression import BLOCK, compress, decompress, stored_bytes
from minidnn.memory.schedule import HEADER, stored_bound
from minidnn.program import Tensor
from tests.support.examples import examples


def around(source: np.ndarray, itemsize: int) -> int:
    """Pack, unpack into bytes that hold something else, compare; return the bytes taken."""
    bytes_ = np.ascontiguousarray(source).view(np.uint8).reshape(-1)
    store = np.full(bytes_.nbytes + HEADER + 16, 0xEE, np.uint8)
    size = compress(bytes_, store[: bytes_.nbytes + HEADER], itemsize)
    assert size == stored_bytes(store, bytes_.nbytes, itemsize)
    assert size <= bytes_.nbytes + HEADER and (store[-16:] == 0xEE).all()
    back = np.full_like(bytes_, 0xCD)
    decompress(store, back, itemsize)
    assert np.array_equal(back, bytes_)
    return size


def test_all_that_is_not_zero_bits_survives():
    """-0.0, denormals, infinities, NaNs with payloads and signs, negative values."""
    words = [0x80000000, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC12345, 0xFFFFFFFF, 0x7F800001, 0xBF800000]
    values = np.zeros(4096, np.uint32)
    values[::401][: len(words)] = words
    assert around(values, 4) == HEADER + 4096 // 8 + 4 * len(words)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 65, 1000, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_sizes_and_formats(dtype, size, density):
    r = np.random.default_rng(size)
    values = (r.standard_normal(size) * 100).astype(dtype)
    values[r.random(size) >= density] = 0
    around(values, values.itemsize)


@given(st.lists(st.one_of(st.just(0), st.integers(0, 2**32 - 1)), max_size=300))
@examples(100)
def test_any_bits(words):
    around(np.array(words, np.uint32), 4)


def test_relu_of_noise_takes_its_density_and_a_thirty_second():
    values = np.maximum(np.random.default_rng(0).standard_normal(1 << 20), 0).astype(np.float32)
    density = np.count_nonzero(values) / values.size
    assert around(values, 4) / values.nbytes == pytest.approx(density + 1 / 32, abs=1e-4)


def test_what_does_not_become_smaller_lies_as_it_is():
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    assert around(values, 4) == values.nbytes + HEADER
    t = Tensor("t", (10_000,))
    assert stored_bound(t, True) == t.nbytes + HEADER and stored_bound(t, False) == t.nbytes
