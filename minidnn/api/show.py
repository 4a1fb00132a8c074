"""A net's layers: what each gives, its parameters, operations and bytes. Nothing is planned."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Literal

from minidnn.api.answer import Answer
from minidnn.jobs.job import Source, shapes_said, understood
from minidnn.jobs.nets import Nets
from minidnn.layers.facts import Facts
from minidnn.nets.graph import Graph, Node
from minidnn.nets.net import Net
from minidnn.program import nbytes
from minidnn.programs.sites import Sites
from minidnn.report.summary import LOOK
from minidnn.results.summary import LayerRow, Summary


class Shown(Answer[Summary, LayerRow]):
    """The result of `minidnn.show`: a row per layer, in forward order."""

    look = LOOK


def show(
    net: Source,
    *,
    phase: Literal["TRAIN", "TEST"] = "TRAIN",
    batch: int | None = None,
    seq: int | None = None,
    format: str = "float32",
    ignore_unknown: bool = False,
    shape: Mapping[str, tuple[int, ...]] | None = None,
) -> Shown:
    """The layers of a net.

    net:    a Net, a solver's parameters, a file, or the name of a model
    phase:  "TRAIN" or "TEST"
    batch:  the batch size to use instead of the net's
    seq:    tokens per sample, instead of the net's
    format: the number format of its feature maps
    shape:  shapes by top of a data layer, which replace its data: {"data": (64, 1, 28, 28)}

    Raises NoSuchModel, InvalidFile and InvalidInput. The data need not be present.
    """
    nets = understood(net, batch, ignore_unknown, simulated=True, shapes=shape or {})
    return of(nets.with_tokens(seq), phase, format)


def of(nets: Nets, phase: str = "TRAIN", format: str = "float32") -> Shown:
    """The layers of these nets in a phase."""
    with shapes_said(nets):
        document = summary(nets.tests[0] if phase == "TEST" and nets.tests else nets.net, phase, format)
    of_batch = f", batch {document.batch}" if document.batch else ""
    return Shown(document, f"{document.net}{of_batch}, phase {phase}")


def summary(net: Net, phase: str = "TRAIN", format: str = "float32") -> Summary:
    """The summary of a phase. A parameter that several layers share counts with the first of them. Raises as
    `Net.graph`."""
    graph = net.graph(phase, format=format)
    flops = _flops(graph)
    rows, known = [], set[str]()
    for node in graph.layers:
        learned = (p for p in node.parameters if p.learnable and not p.constant)
        own = {node.tensor_name(p): prod(p.shape) for p in learned}
        count = sum(size for name, size in own.items() if name not in known)
        known |= own.keys()
        rows.append(_row(node, count, flops.get(node.name, 0)))
    inputs = (blob.tensor.shape for node in graph.layers for blob in node.tops if not node.bottoms)
    return Summary(
        rows=rows,
        net=net.name or "net",
        batch=next((shape[0] for shape in inputs if len(shape) > 1), None),
        format=format,
        phase=phase,
        parameters=sum(row.parameters for row in rows),
        parameter_bytes=sum(row.parameter_bytes for row in rows),
        top_bytes=sum(row.top_bytes for row in rows),
        flops=sum(row.flops for row in rows),
    )


def _row(node: Node, parameters: int, flops: int) -> LayerRow:
    above = {blob.tensor for blob in node.bottoms}
    return LayerRow(
        layer=node.name,
        type=node.layer.type,
        bottoms=[blob.name for blob in node.bottoms],
        tops=[blob.name for blob in node.tops],
        shapes=[list(blob.tensor.shape) for blob in node.tops],
        parameters=parameters,
        parameter_bytes=4 * parameters,
        top_bytes=nbytes(blob.tensor for blob in node.tops if blob.tensor not in above),
        flops=flops,
    )


def _flops(graph: Graph) -> dict[str, int]:
    """Operations of each layer's forward ops, by layer. The net needs no loss for that."""
    sites = Sites(graph, Facts(), 0)
    return {
        node.name: sum(op.flops for op in node.layer.forward(sites.of(node).site))
        for node in graph.layers
        if not node.layer.same
    }
