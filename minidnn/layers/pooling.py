"""Pooling: the maximum or the average of each window of each channel."""

from __future__ import annotations

from dataclasses import dataclass

from minidnn.layers.base import Layer, ShapeError, image


@dataclass(frozen=True)
class PoolingAttrs:
    """`saved`: what MAX's backward reads beside dy: "index", "x" or "xy"; None for AVE, which reads dy alone."""

    method: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    saved: str | None = None


class Pooling(Layer):
    """Caffe's Pooling: out = ceil((H + 2p - k) / s) + 1 unless round_mode is FLOOR; with a pad, a last window that
    would begin beyond H + p is dropped. We drop it without a pad too, where Caffe would read an empty window."""

    type = "Pooling"
    field_name = "pooling_param"

    def attrs(self, bottom, facts=None):
        p = self.param
        kernel = bottom[2:] if p.global_pooling else p.pair("kernel")
        saved = facts.pool if facts and p.pool == "MAX" else None
        return PoolingAttrs(p.pool, kernel, p.pair("stride"), p.pair("pad"), saved)

    def shapes(self, bottoms):
        n, c, *size = image(bottoms[0], self.type)
        a = self.attrs(bottoms[0])
        out = []
        for side, length, k, s, p in zip("HW", size, a.kernel, a.stride, a.pad, strict=True):
            if p >= k:
                raise ShapeError(f"a pad of {p} must be smaller than the kernel, {k}: some window would be empty")
            room = length + 2 * p - k
            if room < 0:
                raise ShapeError(f"a kernel of {k} does not fit into {side} = {length} with pad {p}")
            count = (room // s if self.param.round_mode == "FLOOR" else -(-room // s)) + 1
            if (count - 1) * s >= length + p:
                count -= 1
            out.append(count)
        return [(n, c, *out)]

    def index(self, s, a):
        """Where in its window each maximum was: a byte while windows have no more than 256 places."""
        small = a.kernel[0] * a.kernel[1] <= 256
        return s.extra("index", s.y[0].shape, "uint8" if small else "int32")

    def forward(self, s):
        (x,), (y,) = s.x, s.y
        a = self.attrs(x.shape, s.facts)
        keeps = [self.index(s, a)] if a.saved == "index" and s.train else []
        if a.saved == "index" and not keeps:
            a = self.attrs(x.shape)
        yield s.op("pooling.forward", [x], [y, *keeps], a, flops=y.size * a.kernel[0] * a.kernel[1])

    def backward(self, s):
        (x,), (y,), (dy,), (dx,) = s.x, s.y, s.dy, s.dx
        a = self.attrs(x.shape, s.facts)
        reads = {None: [], "x": [x], "xy": [x, y]}[a.saved] if a.saved != "index" else [self.index(s, a)]
        yield s.op("pooling.backward", [*reads, dy], [dx], a, flops=y.size * a.kernel[0] * a.kernel[1])
