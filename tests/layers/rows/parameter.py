"""A layer that has neither bottoms nor data."""

from __future__ import annotations

from tests.layers.bench import Row

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
}
RANDOM: dict = {}
