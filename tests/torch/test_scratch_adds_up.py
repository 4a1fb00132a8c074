"""A whole step: live results and scratch, added up before it runs, are the bytes that it takes."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from minidnn.torch import memory
from minidnn.torch.scratch import KEPT, MEASURED, Call, Found, Scratch

pytestmark = pytest.mark.peer("torch")


def _module():
    """Convolutions, norms, attention, an embedding, dropout, and a loss whose storage is larger than itself."""
    import torch
    from torch import nn

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.images = nn.Sequential(
                *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
                *(nn.Conv2d(32, 64, 3, padding=1), nn.GroupNorm(4, 64), nn.SiLU()),
            )
            self.words, self.norm = nn.Embedding(10, 64), nn.LayerNorm(64)
            self.ins, self.out, self.drop = nn.Linear(64, 192), nn.Linear(64, 16), nn.Dropout(0.2)

        def forward(self, x, words, target):
            x = self.norm(self.images(x).flatten(2).transpose(1, 2) + self.words(words))
            q, k, v = self.ins(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            return nn.functional.mse_loss(self.out(self.drop(y)), target)

    return Step(), (torch.rand(4, 3, 24, 24), torch.zeros(144, dtype=torch.int64), torch.rand(4, 144, 16))


def _traced() -> tuple[Any, list[Any]]:
    """The graph of a step with gradients, and its inputs."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as trees

    module, inputs = _module()
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())

    def step(parameters, buffers, inputs):
        loss = torch.func.functional_call(module, {**parameters, **buffers}, inputs)
        return loss, torch.autograd.grad(loss, list(parameters.values()))

    arguments = (parameters, buffers, inputs)
    graph = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*arguments)
    return graph.graph, [x.detach() for x in trees.tree_leaves(arguments)]


def _predicted(graph: Any, found: dict[Any, Found]) -> int:
    """The most bytes at once, where each storage dies after its last use."""
    storages: dict[
        Any, list[tuple[Any, ...]]
    ] = {}  # a node -> of each result, the storages (node, number) it may lie in
    last: dict[tuple[Any, int], int] = {}
    for at, node in enumerate(graph.nodes):
        read = {one for n in node.all_input_nodes for each in storages.get(n, ()) for one in each}
        last |= dict.fromkeys(read, at)
        if node in found:
            results = found[node].results
            storages[node] = [((node, k),) if size else tuple(read) for k, size in enumerate(results)]
            last |= {(node, k): at for k, size in enumerate(results) if size}
        elif node.target is operator.getitem:
            storages[node] = [storages[node.args[0]][node.args[1]]]
    live = peak = 0
    for at, node in enumerate(graph.nodes):
        if node in found:
            live += sum(found[node].results)
            peak = max(peak, live + found[node].nbytes)
        live -= sum(found[n].results[k] for (n, k), end in last.items() if end == at)
    return peak


def _run(graph: Any, inputs: list[Any]) -> None:
    """The graph, node by node; each value goes after its last use."""
    import torch

    values, given = {}, iter(inputs)
    uses = {node: len(node.users) for node in graph.nodes}
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "call_function":
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
            del args, kwargs
        for one in {node, *node.all_input_nodes}:
            uses[one] -= one is not node
            if not uses[one] and node.op != "output":
                values.pop(one, None)


def test_a_step_takes_what_was_predicted(tmp_path):
    graph, inputs = _traced()
    nodes = [n for n in graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
    found = dict(zip(nodes, Scratch(directory=tmp_path).of([Call.of_node(n) for n in nodes]), strict=True))
    assert {one.origin for one in found.values()} <= {MEASURED, KEPT}
    predicted = _predicted(graph, found)
    without = _predicted(graph, {n: Found(0, one.results, one.origin) for n, one in found.items()})
    with memory.followed() as m:
        _run(graph, inputs)
    assert 0 <= predicted - m.peak <= 1024 and m.peak - without > 1 << 15
