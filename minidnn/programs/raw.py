"""Batches that travel as they are, into double-buffered inputs: a pass over a training program, for a device with
memory of its own.

Without this pass the host transforms each sample and stores it in the device's layout and format. With it the samples
of an input NAME travel as uint8 or float32, in the logical order. Two inputs take its place:

    NAME.raw     (n, values of a sample): the samples
    NAME.window  (n, 3) int32: the row and the column where a sample's crop begins, and whether it is mirrored

The op `input.transform` makes NAME of them, with the same bytes as the host. TEST keeps its inputs, since
`Session.forward` is given samples as the net reads them.

All inputs of such a program are persistent, too: the device has them when the step begins. Each has two places there,
so that the next batch is copied to one while the step reads the other (memory/execution/machine.py). That copy is no
part of the schedule: the proof begins with the batch in its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from minidnn.data import Transform, source_of, transform
from minidnn.nets.graph import Graph, Node
from minidnn.program import Op, Pass, Program, Role, Tensor

KIND = "input.transform"
MEANS = 4  # the most means that a kernel takes, one for each channel (backends/cuda/samples.py)
RAW, WINDOW = ".raw", ".window"


@dataclass(frozen=True)
class TransformAttrs:
    """`sample`: (C, H, W) of a raw sample; (1, 1, K) if it is no image. `mean`: none, one, or one for each channel."""

    sample: tuple[int, int, int]
    mean: tuple[float, ...]
    scale: float


def with_raw_inputs(program: Program, graph: Graph) -> Program:
    """The program with raw inputs, all of them persistent, and the ops that transform them at its beginning.

    An input whose transform no kernel has keeps its form: the host goes on transforming it."""
    inputs: dict[Tensor, tuple[Tensor, ...]] = {t: (t,) for t in program.inputs}
    ops, taken = [], {t.name for t in program.tensors}
    for node in graph.layers:
        for t in _samples(node):
            op = _transform(node, t) if t in inputs else None
            if op is not None and not any(r.name in taken for r in op.reads):
                inputs[t] = op.reads
                ops.append(op)
    reads = tuple(t for own in inputs.values() for t in own)
    made = replace(program, ops=(*ops, *program.ops), inputs=reads, persistent=(*program.persistent, *reads))
    made.check()
    return made


def _samples(node: Node) -> list[Tensor]:
    """The inputs of a layer that are samples as they come from a source or from arrays."""
    tops = node.tops if node.layer.inputs and not node.layer.fillers else ()
    result = [b.tensor for b in (tops[:1] if node.layer.source else tops)]
    return [t for t in result if t.role is Role.INPUT]


def raw_inputs(program: Program, data: Tensor) -> tuple[Tensor, Tensor] | None:
    """The tensors of the raw samples and the windows, of which the program makes `data`; None if it reads `data`."""
    result = {t.name: t for t in program.inputs}
    raw, window = result.get(data.name + RAW), result.get(data.name + WINDOW)
    return (raw, window) if raw is not None and window is not None else None


def _transform(node: Node, t: Tensor) -> Op | None:
    """The op that makes an input of raw samples; None if no kernel could."""
    if node.layer.source is None:  # of arrays, which are not transformed
        by, shape, dtype = Transform(), t.shape[1:], "float32"
    else:
        data_param, transform_param = node.layer.source
        source = source_of(data_param, transform_param, node.layer.phase)
        by, dtype = transform(transform_param, node.layer.phase), source.sample_type()
        shape = by.augment.shape(source.sample_shape(), data_param.source)
    image = len(shape) == 3
    if len(by.mean) > (MEANS if image else 1) or by.image is not None:
        return None
    n, size = t.shape[0], math.prod(shape)
    reads = Tensor(t.name + RAW, (n, size), dtype, Role.INPUT), Tensor(t.name + WINDOW, (n, 3), "int32", Role.CONTROL)
    channels, height, width = shape if image else (1, 1, size)
    attrs = TransformAttrs((channels, height, width), by.mean, by.scale)
    return Op(f"{t.name}.transform", KIND, node.name, Pass.FORWARD, reads, (t,), attrs, flops=2 * t.size)
