"""The ONNX model of a module as it trains, from PyTorch's exporter, and what that does not tell."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from minidnn.errors import few
from minidnn.onnx.file import InvalidModel
from minidnn.onnx.node import Node
from minidnn.onnx.ops.normalizations import in_training
from minidnn.torch.experimental import fake_mode, trees


def exported(torch: Any, module: Any, samples: tuple[Any, ...], name: str) -> Any:
    """The ONNX model of the module as it trains."""
    with _training(module), _quiet():
        try:
            traced = torch.export.export(module, samples, strict=False)
            program = torch.onnx.export(traced, (), dynamo=True, optimize=False, external_data=False, verbose=False)
        except Exception as error:  # of whatever kind the module or the exporter raises
            raise InvalidModel(f"{name}: PyTorch does not export it: {_reason(error)}") from error
    named = traced.graph_signature.inputs_to_parameters
    learned = {p: target for p, target in named.items() if traced.state_dict[target].requires_grad}
    if lost := _without_gradients(traced.graph_module, learned):
        raise InvalidModel(f"{name}: {lost}")
    _name_apart(program.model.graph)
    return program.model_proto


def _reason(error: BaseException) -> str:
    """The first line of the error behind an exporter's."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _without_gradients(graph: Any, learned: Mapping[str, str]) -> str:
    """What the module computes of its parameters under `torch.no_grad`, of which the exporter tells nothing; "" if
    nothing. learned: the names of parameters, by those that the graph has for them"""
    depends = {name: {target} for name, target in learned.items()}
    for node in graph.graph.nodes:
        read = set().union(*(depends.get(n.name, ()) for n in node.all_input_nodes))
        if read:
            depends[node.name] = read
        if read and "set_grad_enabled" in str(node.target) and node.args[0] is False:
            return (
                f"it computes with {few(sorted(read))} under torch.no_grad, and minidnn would train what is there; "
                "detach() the result, or let its parameters require no gradient"
            )
    return ""


def _name_apart(graph: Any) -> None:
    """Give an output another name if the module's parameters or other outputs have it: the exporter calls both so."""
    known = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    for node in graph:
        for value in node.outputs:
            name, k = value.name, 0
            while value.name and value.name in known:
                k += 1
                value.name = f"{name}.{k}"
            known.add(value.name)


@contextlib.contextmanager
def _training(module: Any) -> Iterator[None]:
    """Put the module in training mode, and back; parts that a module in training has in `eval` stay so."""
    modes = {part: part.training for part in module.modules()}
    try:
        if not module.training:
            module.train()
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter prints and warns of."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def own_backwards(torch: Any, module: Any, samples: tuple[Any, ...], name: str) -> list[str]:
    """A note of the functions with a backward of their own that a forward pass calls: the exporter knows their forward
    alone. The pass computes shapes, and no numbers."""
    values = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    with _training(module), _quiet(), fake_mode(allow_non_fake_inputs=True) as mode:

        def fake(x: Any) -> Any:
            return mode.from_tensor(x) if isinstance(x, torch.Tensor) else x

        try:
            held, given = trees().tree_map(fake, (values, samples))
            outputs = torch.func.functional_call(module, held, given)
        except Exception as error:  # of whatever kind the module raises where there are no numbers
            return [f"{name}: not checked for functions with a backward of their own: {_reason(error)}"]
    known = {x.grad_fn for x in trees().tree_leaves(outputs) if isinstance(x, torch.Tensor)} - {None}
    todo = list(known)
    while todo:
        more = {f for f, _ in todo.pop().next_functions if f is not None} - known
        known |= more
        todo += more
    own = {type(f).__name__.removesuffix("Backward") for f in known
           if isinstance(f, torch.autograd.function.BackwardCFunction)}  # fmt: skip
    what = "has a backward of its own, and minidnn computes the gradient of its forward"
    return [f"{name}: the function {one} {what}" for one in sorted(own)]


def shared_statistics(model: Any, name: str) -> list[str]:
    """A note of the running statistics that several calls of a BatchNorm move, one after another."""
    same: dict[str, str] = {}  # what Identities give -> the buffer
    for node in model.graph.node:
        if node.op_type == "Identity":
            same[node.output[0]] = same.get(node.input[0], node.input[0])
    version = max(i.version for i in model.opset_import if i.domain in ("", "ai.onnx"))
    norms = [n for n in model.graph.node if n.op_type == "BatchNormalization" and in_training(Node(n, version))]
    means = Counter(same.get(node.input[3], node.input[3]) for node in norms)
    return [
        f"{name}: {mean} is of {k} calls; minidnn keeps statistics for each, and to_torch_state_dict() has the first's"
        for mean, k in means.items()
        if k > 1
    ]
