"""Inference: the TEST program run on any number of samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from minidnn.errors import InvalidInput
from minidnn.formats import widened
from minidnn.layers.base import PLACES
from minidnn.memory.execution.machine import Machine
from minidnn.nets.graph import Graph
from minidnn.program import Program, Tensor
from minidnn.training.feed import Filled


def forward(
    machine: Machine, graph: Graph, program: Program, inputs: np.ndarray | Mapping[str, np.ndarray], seed: int
) -> dict[str, np.ndarray]:
    """The outputs with a value per sample, for all samples; Session.forward says more. `seed`: of DummyData layers."""
    given = [b.tensor for n in graph.layers if n.layer.inputs and not n.layer.fillers for b in n.tops]
    if not given:
        raise InvalidInput("the net has no input in phase TEST")
    batch = given[0].shape[0]
    ends = [b for node in graph.layers for b in node.tops if b.tensor in program.outputs]
    rows = [b for b in ends if b.tensor.shape[0] == batch and len(b.tensor.shape) > 1]
    outputs = {b.name: b.tensor for b in rows}
    needed = _needed(program, outputs.values()) - graph.compared
    data = {t.name: t for t in given if t in needed}
    if not data:
        raise InvalidInput("no output of the net has a value per sample")
    inputs, count = _samples(inputs, list(data))
    fixed = {t: np.zeros(t.shape, t.dtype) for t in program.inputs if t not in data.values()}
    fixed |= {t: np.arange(t.size) for t in fixed if t.name == PLACES}
    for node in graph.layers:
        if node.layer.fillers:
            fixed |= Filled.of(graph, node, seed).values(program, 0)
    for tensor, values in fixed.items():
        if tensor in program.inputs:
            machine.write(tensor, values, "TEST")
    results: dict[str, list[np.ndarray]] = {name: [] for name in outputs}
    for start in range(0, count, batch):
        for name, tensor in data.items():
            machine.write(tensor, _filled(inputs[name], start, tensor), "TEST")
        machine.step("TEST")
        for name, tensor in outputs.items():
            results[name].append(widened(machine.read(tensor, "TEST")[: count - start]))
    return {name: np.concatenate(parts) for name, parts in results.items()}


def _needed(program: Program, outputs: Iterable[Tensor]) -> set[Tensor]:
    """The tensors that these outputs depend on, themselves included."""
    result = set(outputs)
    for op in reversed(program.ops):
        if not result.isdisjoint(op.writes):
            result.update(op.reads)
    return result


def _samples(inputs: np.ndarray | Mapping[str, np.ndarray], names: Sequence[str]) -> tuple[dict[str, np.ndarray], int]:
    """The arrays of these input blobs by name, and the number of samples in each. Raises InvalidInput if an array is
    missing, or if the arrays do not hold equally many samples."""
    if not isinstance(inputs, Mapping):
        if len(names) != 1:
            raise InvalidInput(f"the net has inputs {', '.join(names)}: give a dict of arrays by these names")
        inputs = {names[0]: inputs}
    if missing := sorted(set(names) - inputs.keys()):
        raise InvalidInput(f"no value for input {', '.join(missing)}")
    arrays = {name: np.asarray(inputs[name]) for name in names}
    counts = [len(array) if array.ndim else 0 for array in arrays.values()]
    if not min(counts) or min(counts) != max(counts):
        result = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InvalidInput(f"expected the same number of samples for each input, at least one; got {result}")
    return arrays, counts[0]


def _filled(array: np.ndarray, start: int, tensor: Tensor) -> np.ndarray:
    """The batch of samples from `start` on. If too few samples are left, zeros fill the batch. Raises InvalidInput if a
    sample has another shape than the tensor's."""
    part = np.asarray(array)[start : start + tensor.shape[0]]
    if part.shape[1:] != tensor.shape[1:]:
        raise InvalidInput(f"{tensor.name}: a sample has shape {tensor.shape[1:]}, got {part.shape[1:]}")
    if len(part) == tensor.shape[0]:
        return part
    whole = np.zeros(tensor.shape, tensor.dtype)
    whole[: len(part)] = part
    return whole
