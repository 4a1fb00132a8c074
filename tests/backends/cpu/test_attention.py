"""Attention on cpu against float64, at lengths around and far beyond a block; the same bits beside other samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minidnn.backends.cpu.native.attention import FIRST
from minidnn.backends.reference.attention import KINDS
from minidnn.layers.attention import AttentionAttrs
from tests.support.op_examples import Maker, compiled, expected, run
from tests.support.slow import usual_are

LENGTHS = [1, 7, 1000, 4097]
SEEN = {
    "all": {}, "causal": {"causal": True}, "grouped": {"kv_heads": 1, "causal": True},
    "windowed": {"window": 300}, "causal, windowed": {"causal": True, "window": 300},
}  # fmt: skip


def passes(a, given, dy, samples, device, threads=1):
    """(y, lse, the gradients) on the device, or of float64 by the reference."""
    m, shape = Maker(0), dy.shape
    lse_shape = (samples, a.queries, a.heads)
    if device is None:
        given, y, lse = [x.astype(np.float64) for x in given], np.empty(shape), np.empty(lse_shape)
        KINDS["attention.forward"](a, given, [y, lse])
        gradients = [np.empty(x.shape) for x in given]
        KINDS["attention.backward"](a, [*given, y, lse, dy.astype(np.float64)], gradients)
        return y, lse, *gradients
    e = m.example("attention.forward", given, [shape, lse_shape], a)
    y, lse = run(device, e, device.algorithms(e.op)[0])
    e = m.example("attention.backward", [*given, y, lse, dy], [x.shape for x in given], a)
    return y, lse, *run(device, e, device.algorithms(e.op)[0])


def case(length, how, samples=1):
    a = AttentionAttrs(
        **{"queries": length, "keys": length, "heads": 2, "kv_heads": 2, "depth": 16, "scale": 0.25} | how
    )
    m = Maker(length)
    given = [m.normal(samples, length, heads * a.depth) for heads in (a.heads, a.kv_heads, a.kv_heads)]
    return a, given, m.normal(samples, length, a.heads * a.depth)


@pytest.mark.parametrize("length", usual_are([1, 7, 1000], LENGTHS))
@pytest.mark.parametrize("how", SEEN)
def test_near_to_float64(length, how):
    a, given, dy = case(length, SEEN[how])
    want, got = (passes(a, given, dy, 1, device) for device in (None, compiled()))
    for w, g in zip(want, got, strict=True):
        assert np.abs(g - w).max() <= 5e-6 * max(1.0, np.abs(w).max())


def test_a_sample_has_the_same_bits_beside_others():
    a, given, dy = case(150, {"causal": True}, samples=3)
    together = passes(a, given, dy, 3, compiled(3))
    for i in range(3):
        alone = passes(a, [x[i : i + 1] for x in given], dy[i : i + 1], 1, compiled())
        assert all(whole[i].tobytes() == one[0].tobytes() for whole, one in zip(together, alone, strict=True))


def test_the_workspace_does_not_grow_with_the_tokens():
    def workspaces(length):
        a, given, dy = case(length, {})
        e = Maker(0).example("attention.forward", given, [dy.shape, (1, length, 2)], a)
        y, lse = np.empty(dy.shape, np.float32), np.empty((1, length, 2), np.float32)
        b = Maker(0).example("attention.backward", [*given, y, lse, dy], [x.shape for x in given], a)
        return [compiled().algorithms(one.op)[0].workspace for one in (e, b)]

    assert workspaces(128) == workspaces(5000)
    assert set(FIRST) == {"attention.forward", "attention.forward_kept", "attention.backward"}


@pytest.mark.parametrize("how", [{}, {"kv_heads": 1}, {"window": 129}], ids=["all", "grouped", "windowed"])
def test_a_query_has_the_same_bits_whatever_queries_are_beside_it(how):
    """Tokens that come one by one, or a few at a time, behind those that are kept; around the ends of blocks."""
    a, given, dy = case(300, {"causal": True} | how)
    e = Maker(0).example("attention.forward", given, [dy.shape], a)
    (whole,) = run(compiled(), e, compiled().algorithms(e.op)[0])
    for first, last in ((0, 1), (0, 7), (127, 128), (128, 129), (100, 270), (299, 300)):
        few = replace(a, queries=last - first)
        kept = [x.copy() for x in given[1:]]
        for x in kept:
            x[:, first:] = 7  # not yet what will be there
        reads = [*(x[:, first:last] for x in given), *kept, np.arange(first, last, dtype=np.int32)]
        e = Maker(0).example("attention.forward_kept", reads, [dy[:, first:last].shape, 3, 4], few)
        y, keys, values = run(compiled(), e, compiled().algorithms(e.op)[0])
        assert y.tobytes() == whole[:, first:last].tobytes()
        assert np.array_equal(keys[:, :last], given[1][:, :last]) and (values[:, last:] == 7).all()


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_mask_of_padding_hides_keys(device):
    """Of samples with 150 and 7 tokens, the rest of which is padding: as those of the first tokens alone."""
    a, given, dy = case(150, {}, samples=2)
    a, lengths = replace(a, bias=(2, 1), bias_gradient=True), (150, 7)
    mask = np.where(np.arange(150) < np.array(lengths)[:, None], np.float32(0), np.float32(-np.inf))
    bias = np.ascontiguousarray(np.broadcast_to(mask[:, None], (2, 150, 150)))
    y, lse = np.empty(dy.shape, np.float32), np.empty((2, 150, 2), np.float32)
    forward = Maker(0).example("attention.forward", [*given, bias], [y.shape, lse.shape], a)
    on = compiled() if device == "cpu" else None
    y, lse = run(on, forward, on.algorithms(forward.op)[0]) if on else expected(KINDS, forward)
    shapes = [*(x.shape for x in given), bias.shape]
    backward = Maker(0).example("attention.backward", [*given, y, lse, dy, bias], shapes, a)
    found = run(on, backward, on.algorithms(backward.op)[0]) if on else expected(KINDS, backward)
    for i, n in enumerate(lengths):
        alone = replace(a, keys=n, bias=None, bias_gradient=False)
        few = [given[0][i : i + 1], *(x[i : i + 1, :n] for x in given[1:])]
        want = passes(alone, few, dy[i : i + 1], 1, None)
        got = y[i], lse[i], found[0][i], *(x[i, :n] for x in found[1:3])
        for g, w in zip(got, want, strict=True):
            assert np.abs(g - w[0]).max() <= 5e-6 * max(1.0, np.abs(w).max())
        assert not any(x[i, n:].any() for x in found[1:3]) and not found[3][i, :, n:].any()
