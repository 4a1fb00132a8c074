"""Nets whose scores are wanted, though their loss makes these only for itself."""

from __future__ import annotations

from minidnn.nets.net import Net
from minidnn.schema import LayerParameter


def scored(layer: LayerParameter, top: str) -> LayerParameter:
    """The inner product of an InnerProductWithLoss: by its name, so that it has its weights."""
    return layer.model_copy(
        update={
            "type": "InnerProduct",
            "bottom": layer.bottom[:1],
            "top": (top,),
            "loss_weight": (),
            "propagate_down": (),
        }
    )


def with_scores(net: Net) -> Net:
    """This net with an inner product in the place of each InnerProductWithLoss; itself if it has none."""
    merged = "InnerProductWithLoss"
    if all(layer.type != merged for layer in net.layers):
        return net
    return net.with_layers(
        [scored(layer, f"{layer.name}_scores") if layer.type == merged else layer for layer in net.layers]
    )
