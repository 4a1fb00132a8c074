"""The perplexity of a net of tokens: e to the mean loss of a token, the number of tokens between which it wavers as
if all were equally likely (Jelinek et al., "Perplexity: a measure of the difficulty of speech recognition tasks",
1977)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from minidnn.nets.graph import Graph

LOSSES = ("SoftmaxWithLoss", "InnerProductWithLoss")
NAME = "perplexity"


def losses(graph: Graph) -> dict[str, tuple[str, int]]:
    """By the name of a perplexity: the blob of its loss, and how often the mean loss of a token that is.

    A loss counts if it compares scores with the next tokens alone: without label_smoothing, which adds to it."""
    following, found = set(graph.windows.values()), dict[str, int]()
    for node in graph.layers:
        loss = node.layer.spec.loss_param
        if node.layer.type in LOSSES and node.bottoms[1].tensor in following and not loss.label_smoothing:
            labels = node.bottoms[1].tensor
            times = {"BATCH_SIZE": labels.size // labels.shape[0], "NONE": labels.size}
            found[node.tops[0].name] = times.get(loss.mode(), 1)
    alone = len(found) == 1
    return {NAME if alone else f"{blob}_{NAME}": (blob, times) for blob, times in found.items()}


def of(graph: Graph, outputs: Mapping[str, float]) -> dict[str, float]:
    """The perplexities that these outputs of the graph give; infinity for one beyond float64's range."""
    given = ((name, outputs.get(blob), times) for name, (blob, times) in losses(graph).items())
    return {name: _exp(loss / times) for name, loss, times in given if loss is not None}


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
