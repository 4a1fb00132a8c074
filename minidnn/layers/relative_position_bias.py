"""RelativePositionBias: a learned number for each way from one place of a window to another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.layers.base import Layer, Parameter, Shape, ShapeError, Site, addressable
from minidnn.program import Op

HIDDEN = -100.0  # what hides a key, as published; e^-100 is 4e-44


@dataclass(frozen=True)
class RelativeBiasAttrs:
    """`down` x `across` windows of side x side places. With a shift, the last of each row and column are of two parts:
    the last `shift` places come from the map's other end."""

    side: int
    heads: int
    down: int = 1
    across: int = 1
    shift: int = 0
    hidden: float = HIDDEN


class RelativePositionBias(Layer):
    """Ours, after Liu et al., "Swin Transformer" (2021): the bias of an Attention within windows of `window` x `window`
    positions. For each head, the bias of a query and a key depends on their vertical and horizontal distance. The
    distance selects one of (2 * window - 1)^2 rows of the weights, which have shape (rows, num_heads).

    The top is (num_heads, T, T) with T = window * window. With `shift`, windows lie on maps of height x width
    positions, which a Roll has moved up and to the left by that many positions. Each window of a map then has its own
    bias, (windows * num_heads, T, T). Within a window, positions from opposite ends of the map do not see each other,
    because their scores get -100.
    """

    type = "RelativePositionBias"
    field_name = "relative_position_bias_param"
    needs = ("num_heads", "window")
    bottoms = (0, 0)

    def attrs(self) -> RelativeBiasAttrs:
        p = self.param
        if not p.shift:
            return RelativeBiasAttrs(p.window, p.num_heads)
        for name, length in (("height", p.height), ("width", p.width)):
            if length is None or length % p.window:
                got = "none" if length is None else length
                raise ShapeError(
                    f"shift {p.shift}: expected a {name} that is a multiple of window {p.window}, got {got}"
                )
        if p.shift >= p.window:
            raise ShapeError(f"shift {p.shift}: expected one below window {p.window}")
        return RelativeBiasAttrs(p.window, p.num_heads, p.height // p.window, p.width // p.window, p.shift)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        a, places = self.attrs(), self.param.window**2
        return [addressable((a.down * a.across * a.heads, places, places), "the bias of all windows")]

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        p = self.param
        return [Parameter("w", ((2 * p.window - 1) ** 2, p.num_heads), p.weight_filler, *self.mults(0))]

    def forward(self, s: Site) -> Iterable[Op]:
        (y,) = s.y
        yield s.op("relative_bias.forward", [s.p["w"]], [y], self.attrs(), flops=y.size)

    def backward(self, s: Site) -> Iterable[Op]:
        (dy,), dw = s.arriving, s.dp["w"]
        if dw is not None:
            yield s.op("relative_bias.backward", [dy], [dw], self.attrs(), flops=dy.size)


def apart(a: RelativeBiasAttrs) -> np.ndarray:
    """The row of the weights for each query and key: int64 (T, T)."""
    down, across = (places[:, None] - places + a.side - 1 for places in _places(a))
    return down * (2 * a.side - 1) + across


def hidden(a: RelativeBiasAttrs) -> np.ndarray:
    """Whether a query and a key come from two ends of the map: bool (down, across, T, T)."""
    result = np.zeros((a.down, a.across, a.side**2, a.side**2), bool)
    if a.shift:
        down, across = (places >= a.side - a.shift for places in _places(a))
        result[-1] |= down[:, None] != down
        result[:, -1] |= across[:, None] != across
    return result


def _places(a: RelativeBiasAttrs) -> tuple[np.ndarray, np.ndarray]:
    """Where the T places of a window are, down and across."""
    down, across = np.divmod(np.arange(a.side**2), a.side)
    return down, across
