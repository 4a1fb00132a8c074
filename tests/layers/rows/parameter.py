"""Layers that have neither bottoms nor data."""

from __future__ import annotations

from tests.layers.bench import Row
from tests.support.peers import torch


def relative(table, side, height=0, width=0, shift=0):
    """The bias of windows, by their coordinates and by the published mask of regions of the map."""
    places = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    away = places[:, None] - places + side - 1
    bias = table[away[..., 0] * (2 * side - 1) + away[..., 1]].permute(2, 0, 1)
    if not shift:
        return bias
    region = torch.zeros(height, width)
    for i, rows in enumerate((slice(-side), slice(-side, -shift), slice(-shift, None))):
        for j, columns in enumerate((slice(-side), slice(-side, -shift), slice(-shift, None))):
            region[rows, columns] = 3 * i + j
    cut = region.unflatten(0, (-1, side)).unflatten(2, (-1, side)).transpose(1, 2).flatten(2).flatten(0, 1)
    mask = -100.0 * (cut[:, None] != cut[:, :, None])
    return (bias + mask[:, None]).flatten(0, 1)


ROWS = {
    "parameter": Row(
        "type: Parameter, parameter_param: {shape: {dim: [3, 4]}}",
        [],
        [(3, 4)],
        ["identity.forward: blob -> y0", "identity.forward: dy0 -> dblob"],
        lambda p: p["blob"].clone(),
        blobs=[(3, 4)],
        flops=12,
    ),
    "relative position bias": Row(
        "type: RelativePositionBias, relative_position_bias_param: {num_heads: 2, window: 3}", [], [(2, 9, 9)],
        ["relative_bias.forward: w -> y0", "relative_bias.backward: dy0 -> dw"], lambda p: relative(p["w"], 3),
        blobs=[(25, 2)],
    ),
    "relative position bias of shifted windows": Row(
        "type: RelativePositionBias, relative_position_bias_param: "
        "{num_heads: 3, window: 4, shift: 1, height: 12, width: 8}", [], [(18, 16, 16)],
        ["relative_bias.forward: w -> y0", "relative_bias.backward: dy0 -> dw"],
        lambda p: relative(p["w"], 4, 12, 8, 1), blobs=[(49, 3)],
    ),
}  # fmt: skip
RANDOM: dict = {}
