"""A module of PyTorch as a net, and its weights back into the module.

    net = minidnn.from_torch(module, samples)               begins with the module's weights
    with minidnn.Solver(net, data=(x, y), ...) as solver:
        solver.solve()
        module.load_state_dict(net.to_torch_state_dict(solver))

The module is exported in memory, as it trains, with nothing folded, by PyTorch's exporter of ONNX.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minidnn.errors import BadInput, InvalidInput, few
from minidnn.nets.net import Net
from minidnn.onnx.ends import Given
from minidnn.onnx.file import InvalidModel
from minidnn.onnx.node import Bound
from minidnn.onnx.reading import from_model
from minidnn.training.session import Session
from minidnn.training.solver import Solver

if TYPE_CHECKING:
    import torch

STATISTICS = ("running_mean", "running_var")


class NoTorch(BadInput, ImportError):
    """PyTorch, or what its exporter needs, is not installed."""


@dataclass(frozen=True)
class Origin:
    """Where the values of a module's state are in its net.

    state:      the module's state when it was exported, as `state_dict` gives it
    places:     the blob of each entry that is a parameter in training
    statistics: (layer, blob) of each entry that is a running statistic
    """

    state: Mapping[str, torch.Tensor]
    places: Mapping[str, Bound]
    statistics: Mapping[str, tuple[str, str]]


class TorchNet(Net):
    """A net that came from a module of PyTorch."""

    origin: Origin

    def to_torch_state_dict(
        self, trained: Solver | Session | Mapping[str, np.ndarray] | None = None
    ) -> dict[str, torch.Tensor]:
        """The module's state with trained values, for `module.load_state_dict`. What has not been trained is as it was.

        trained: a Solver or a Session of this net, or weights by "<layer>/<blob>"; default: those that the net begins
                 with

        Raises InvalidInput if a weight is missing."""
        values, steps = _values(trained, self.weights)
        return {name: self._entry(name, was, values, steps) for name, was in self.origin.state.items()}

    def _entry(self, name: str, was: torch.Tensor, values: Mapping[str, np.ndarray], steps: int) -> torch.Tensor:
        import torch

        origin, (module, _, last) = self.origin, name.rpartition(".")
        if name in origin.places:
            place = origin.places[name]
            now = place.in_file(_value(values, place.key), tuple(was.shape))
        elif name in origin.statistics:
            layer, blob = origin.statistics[name]
            factor = float(_value(values, f"{layer}/factor").reshape(-1)[0])
            now = _value(values, f"{layer}/{blob}").astype(np.float64) / (factor or 1.0)
        else:
            running = f"{module}.{STATISTICS[0]}" if module else STATISTICS[0]
            moved = steps if last == "num_batches_tracked" and running in origin.statistics else 0
            return was.clone() + moved if moved else was.clone()
        return torch.tensor(np.ascontiguousarray(now)).to(was)


def _values(
    trained: Solver | Session | Mapping[str, np.ndarray] | None, first: Mapping[str, np.ndarray]
) -> tuple[Mapping[str, np.ndarray], int]:
    """(the weights, how many batches a BatchNorm has seen)"""
    if isinstance(trained, Solver):
        return trained.session.weights(), trained.iteration * trained.parameters.iter_size
    if isinstance(trained, Session):
        return trained.weights(), 0
    return (first if trained is None else trained), 0


def _value(values: Mapping[str, np.ndarray], key: str) -> np.ndarray:
    if key not in values:
        raise InvalidInput(f"these are not the net's weights: they lack {key!r}, and have {few(sorted(values), 4)}")
    return np.asarray(values[key])


def from_torch(
    module: torch.nn.Module,
    example: Any,
    *,
    loss: bool = True,
    trained: Callable[[str], bool] | None = None,
    notes: list[str] | None = None,
) -> TorchNet:
    """The net of a module, which begins with the module's weights. The module stays as it is.

    example: samples as the module takes them, one tensor or a tuple; their shapes are those of the net
    loss:    append labels and a SoftmaxWithLoss to the first output; labels have the shape of the scores without the
             classes
    trained: a function that says whether to train the parameter of a name; default: those that require a gradient
    notes:   gets a line for what was frozen; None: it is a warning

    Raises NoTorch without PyTorch, onnx or onnxscript, and InvalidModel for a module that PyTorch does not export, or
    that minidnn has no layers for; the message names each node and the reason."""
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"expected a torch.nn.Module, got {type(module).__name__}")
    samples = example if isinstance(example, tuple) else (example,)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    if other := [name for name, p in parameters.items() if p.dtype != torch.float32]:
        raise InvalidInput(f"{few(other)} of {type(module).__name__} are no float32; module.float() makes them so")
    learned = {name for name, p in parameters.items() if p.requires_grad}
    chosen = learned.__contains__ if trained is None else trained
    name = type(module).__name__
    reading = from_model(_exported(torch, module, samples, name), name, Given(trained=chosen, whole=True), loss)
    if notes is not None:
        notes += reading.notes
    for line in reading.notes if notes is None else ():
        warnings.warn(line, stacklevel=2)
    alike: dict[int, list[str]] = {}
    for key, p in parameters.items():
        alike.setdefault(id(p), []).append(key)
    names = {one: group for group in alike.values() for one in group}
    places = {one: place for key, place in reading.places.items() for one in names.get(key, ())}
    net = TorchNet.__new__(TorchNet)
    net.__dict__.update(reading.net.with_weights(reading.net.weights, f"the module {name}").__dict__)
    net.origin = Origin({k: v.detach() for k, v in module.state_dict().items()}, places, reading.statistics)
    return net


def _torch() -> Any:
    try:
        import onnx
        import onnxscript
        import torch
        import torch.onnx
    except ImportError as error:
        raise NoTorch(
            f"a module of PyTorch takes torch, onnx and onnxscript ({error}): pip install torch onnx onnxscript"
        ) from error
    assert onnx and onnxscript
    return torch


def _exported(torch: Any, module: Any, samples: tuple[Any, ...], name: str) -> Any:
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
    nothing."""
    depends = set(learned)
    for node in graph.graph.nodes:
        read = [n.name for n in node.all_input_nodes if n.name in depends]
        if read:
            depends.add(node.name)
        if read and "set_grad_enabled" in str(node.target) and node.args[0] is False:
            names = few([learned.get(n, n) for n in read])
            return (
                f"it computes with {names} under torch.no_grad, and minidnn would train what is there; "
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
