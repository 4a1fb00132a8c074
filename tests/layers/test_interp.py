"""Interp as DeepLab's Caffe has it: its shapes, and the values that a weight of 0 does not hide."""

from __future__ import annotations

import numpy as np
import pytest

import minidnn
from minidnn.backends import reference
from minidnn.program import Op, Pass, Tensor

TEXT = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: %d dim: %d dim: %d dim: %d } } }
layer { name: "i" type: "Interp" bottom: "x" top: "y" interp_param { %s } }
"""


def interp(param: str, shape=(1, 1, 5, 7)):
    """The layer's node, of a bottom of that shape."""
    return minidnn.Net.from_text(TEXT % (*shape, param), source="interp.prototxt").graph("TEST")["i"]


def caffe(param: dict[str, int], h: int, w: int) -> tuple[int, int]:
    """DeepLab's rule: a factor alone goes before height and width, and both factors go behind them."""
    h, w = (n + param.get("pad_beg", 0) + param.get("pad_end", 0) for n in (h, w))
    zoom, shrink = param.get("zoom_factor"), param.get("shrink_factor")
    if (zoom is None) == (shrink is None) and "height" in param and "width" in param:
        return param["height"], param["width"]
    h, w = ((n - 1) // (shrink or 1) + 1 for n in (h, w))
    return h + (h - 1) * ((zoom or 1) - 1), w + (w - 1) * ((zoom or 1) - 1)


@pytest.mark.parametrize("size", [{}, {"height": 3}, {"height": 9, "width": 4}])
@pytest.mark.parametrize("factors", [{"zoom_factor": 3}, {"shrink_factor": 2}, {"zoom_factor": 2, "shrink_factor": 3}])
@pytest.mark.parametrize("pads", [{}, {"pad_beg": -1, "pad_end": -2}])
def test_the_shape_is_caffe_s(size, factors, pads):
    param = {**size, **factors, **pads}
    (top,) = interp(" ".join(f"{k}: {v}" for k, v in param.items())).tops
    assert top.tensor.shape[2:] == caffe(param, 5, 7)


def forward(x: np.ndarray, shape: tuple[int, ...], kind: str, param: str, device: str) -> np.ndarray:
    """The layer's forward, or its backward of dy = `x`; `shape`: of the result."""
    bottom = x.shape if kind == "resize.forward" else shape
    a = interp(param, bottom).layer.attrs(bottom)
    reads, writes = Tensor("in", x.shape), Tensor("out", shape)
    op = Op("i", kind, "i", Pass.FORWARD, (reads,), (writes,), a)
    result = np.full(shape, 7, np.float32)
    with np.errstate(all="ignore"):
        if device == "reference":
            reference.KERNELS[kind](a, [x], [result])
            return result
        return of_cpu(op, x, shape)


def of_cpu(op: Op, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    from minidnn.backends.cpu import native
    from minidnn.backends.cpu.native.sources import KERNELS

    (recipe,) = native.FIRST[op.kind](native.Native(KERNELS.load(), 1), op)
    images = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    n, c, h, w = shape
    result = np.full((n, h, w, c), 7, np.float32)
    for call in recipe.bind([images], [result], np.empty(0, np.uint8)):
        call()
    return result.transpose(0, 3, 1, 2)


def taps(n: int, out: int) -> list[list[tuple[int, float]]]:
    """Caffe's two pixels of each place along an axis, with their weights."""
    ratio = (n - 1) / (out - 1) if out > 1 else 0.0
    result = []
    for i in range(out):
        at = ratio * i
        pixel = int(at + 1e-9)
        result.append([(pixel, 1 - (at - pixel)), (pixel + (pixel < n - 1), at - pixel)])
    return result


def spread(x: np.ndarray, out: tuple[int, int]) -> np.ndarray:
    """Where Caffe's values are not finite: where one of the four pixels is not, whatever its weight."""
    bad = ~np.isfinite(x)
    if x.shape[2:] == out:
        return bad
    result = np.zeros((*x.shape[:2], *out), bool)
    for i, down in enumerate(taps(x.shape[2], out[0])):
        for j, along in enumerate(taps(x.shape[3], out[1])):
            for r, _ in down:
                for q, _ in along:
                    result[:, :, i, j] |= bad[:, :, r, q]
    return result


SIZES = [((5, 7), (9, 13)), ((5, 7), (3, 4)), ((4, 4), (4, 4)), ((4, 6), (4, 3)), ((3, 3), (1, 5)), ((1, 4), (3, 4))]


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize(("size", "out"), SIZES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_weight_of_zero_hides_nothing(device, size, out, bad):
    for at in [(0, 0), (size[0] // 2, size[1] // 2), (size[0] - 1, size[1] - 1)]:
        x = np.random.default_rng(1).standard_normal((2, 3, *size), np.float32)
        x[1, 2, at[0], at[1]] = bad
        y = forward(x, (2, 3, *out), "resize.forward", f"height: {out[0]} width: {out[1]}", device)
        assert (~np.isfinite(y) == spread(x, out)).all()


def given(dy: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Which gradients are not finite: those of all pixels that a place with such a gradient takes from."""
    bad, out = ~np.isfinite(dy), dy.shape[2:]
    if size == out:
        return bad
    result = np.zeros((*dy.shape[:2], *size), bool)
    for i, down in enumerate(taps(size[0], out[0])):
        for j, along in enumerate(taps(size[1], out[1])):
            for r, _ in down:
                for q, _ in along:
                    result[:, :, r, q] |= bad[:, :, i, j]
    return result


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize(("size", "out"), SIZES)
def test_gradients_spread_to_all_pixels_that_were_taken(device, size, out):
    for at in [(0, 0), (out[0] // 2, out[1] // 2), (out[0] - 1, out[1] - 1)]:
        dy = np.random.default_rng(1).standard_normal((2, 3, *out), np.float32)
        dy[0, 1, at[0], at[1]] = np.nan
        dx = forward(dy, (2, 3, *size), "resize.backward", f"height: {out[0]} width: {out[1]}", device)
        assert (~np.isfinite(dx) == given(dy, size)).all()


def test_pixels_beyond_the_crop_take_no_part():
    x = np.zeros((1, 1, 6, 6), np.float32)
    x[..., 0], x[..., 5] = np.nan, np.inf
    param = "height: 7 width: 5 pad_beg: -1 pad_end: -1"
    for device in ("reference", "cpu"):
        assert np.isfinite(forward(x, (1, 1, 7, 5), "resize.forward", param, device)).all()
        dx = forward(np.full((1, 1, 7, 5), np.nan, np.float32), x.shape, "resize.backward", param, device)
        assert np.isnan(dx[..., 1:5, 1:5]).all() and (dx[..., 0] == 0).all() and (dx[..., 5] == 0).all()


@pytest.mark.peer("torch")
@pytest.mark.parametrize(("size", "out"), [s for s in SIZES if all(a != b for a, b in zip(*s, strict=True))])
def test_pytorch_agrees_with_its_corners_aligned(size, out):
    """Where an axis keeps its length PyTorch takes no neighbour along it; Caffe does, unless both keep it."""
    import torch

    for bad in (0, np.nan, np.inf):
        x = np.random.default_rng(3).standard_normal((2, 3, *size), np.float32)
        x[0, 0, size[0] // 2, 1] = bad
        there = torch.from_numpy(x).requires_grad_()
        y = torch.nn.functional.interpolate(there, out, mode="bilinear", align_corners=True)
        dy = np.random.default_rng(4).standard_normal(y.shape, np.float32)
        y.backward(torch.from_numpy(dy))
        param = f"height: {out[0]} width: {out[1]}"
        for device in ("reference", "cpu"):
            ours = forward(x, tuple(y.shape), "resize.forward", param, device)
            np.testing.assert_allclose(ours, y.detach().numpy(), rtol=1e-5, atol=1e-5)
            dx = forward(dy, x.shape, "resize.backward", param, device)
            np.testing.assert_allclose(dx, there.grad.numpy(), rtol=1e-5, atol=1e-5)
