"""Our own C for images of bytes gives the bits of Pillow and NumPy, in any layout, and stays within its images."""

from __future__ import annotations

import numpy as np
import pytest

from minidnn.data import native, resize
from minidnn.data.transform import Transform

needs_compiler = pytest.mark.skipif(native.library() is None, reason="there is no compiler")


def image(random, channels: int, height: int, width: int, kind: str) -> np.ndarray:
    """(C, H, W), a view of (H, W, C)."""
    values = random.integers(0, 256 if kind == "noise" else 2, (height, width, channels), np.uint8)
    return (values if kind == "noise" else values * 255).transpose(2, 0, 1)


@needs_compiler
@pytest.mark.parametrize("kind", ["noise", "black and white"])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_is_resized_as_by_pillow(channels, kind):
    pytest.importorskip("PIL")
    random = np.random.default_rng(channels)
    for k in range(300):
        height, width, *size = map(int, random.integers(1, 90, 4))
        size = [height if k % 3 == 0 else size[0], width if k % 5 == 0 else size[1]]
        top, left = (int(random.integers(n)) if k % 2 else 0 for n in (height, width))
        rows, columns = (int(random.integers(1, n + 1)) if k % 2 else n for n in (height - top, width - left))
        part = top, left, rows, columns
        x = image(random, channels, height, width, kind)
        pixels = x.transpose(1, 2, 0) if channels == 3 else x[0]
        want = resize.by_pillow(pixels, tuple(size), part).reshape(*size, channels)
        got = native.resized(x, size, part)
        assert got is not None and np.array_equal(got.transpose(1, 2, 0), want), (x.shape, size, part)


def test_without_a_compiler_pillow_gives_the_same(monkeypatch):
    pytest.importorskip("PIL")
    x = image(np.random.default_rng(3), 3, 57, 71, "noise")
    own = resize.resized(x, (22, 82))
    monkeypatch.setattr(native, "library", lambda: None)
    assert native.resized(x, (22, 82), (0, 0, 57, 71)) is None
    assert np.array_equal(resize.resized(x, (22, 82)), own)


@needs_compiler
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("width", [1, 3, 4, 5, 6, 7, 12, 33])
def test_bytes_become_values_as_by_numpy(channels, width):
    random = np.random.default_rng(width)
    whole = image(random, channels, 4, width, "noise")
    mean = random.standard_normal(channels).astype(np.float32) * 100
    turned = (whole, whole[::-1], whole[..., ::-1], whole[:, ::2, ::2], np.ascontiguousarray(whole), whole[:, 1:, 1:])
    for x in turned:
        got = np.empty(x.shape, np.float32)
        assert native.scaled(x, mean, 1 / 58, got)
        want = (x.astype(np.float32) - mean.reshape(-1, 1, 1)) * np.float32(1 / 58)
        assert got.tobytes() == want.tobytes()
    assert not native.scaled(whole.astype(np.float32), mean, 1.0, np.empty(whole.shape, np.float32))


@pytest.mark.parametrize("mean", [(), (7.0,), (104.0, 117.0, 123.0)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_transform_is_the_same_without_a_compiler(monkeypatch, mean, dtype):
    images = np.random.default_rng(0).integers(0, 256, (5, 9, 11, 3), np.uint8).transpose(0, 3, 1, 2).astype(dtype)
    change, numbers = Transform(crop=6, mean=mean, scale=0.3, mirror=True, seed=4), np.arange(5)
    own = change(images, numbers)
    monkeypatch.setattr(native, "library", lambda: None)
    assert own.tobytes() == change(images, numbers).tobytes()
