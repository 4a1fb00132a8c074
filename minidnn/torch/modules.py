"""A module of PyTorch as a net, and its weights back into the module.

    net = minidnn.from_torch(module, samples)               begins with the module's weights
    with minidnn.Solver(net, data=(x, y), ...) as solver:
        solver.solve()
        module.load_state_dict(net.to_torch_state_dict(solver))

The module is exported in memory, as it trains, with nothing folded, by PyTorch's exporter of ONNX.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minidnn.errors import InvalidInput, few
from minidnn.nets.net import Net
from minidnn.onnx.ends import Given
from minidnn.onnx.node import Bound
from minidnn.onnx.reading import from_model
from minidnn.torch.exporting import exported, own_backwards, shared_statistics
from minidnn.torch.installed import NoTorch
from minidnn.training.session import Session
from minidnn.training.solver import Solver

if TYPE_CHECKING:
    import torch

STATISTICS = ("running_mean", "running_var")


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
    """Convert a PyTorch module to a net with the module's weights. The module is not changed.

    example: samples for the module, one tensor or a tuple; the net has their shapes
    loss:    append labels and a SoftmaxWithLoss to the first output; labels have the shape of the scores without the
             axis of classes
    trained: a function from a parameter's name to whether it is trained; default: those that require a gradient
    notes:   collects a line about what was frozen; None: it is a warning

    Raises NoTorch without PyTorch, onnx or onnxscript, and InvalidModel if PyTorch cannot export the module, or if
    minidnn has no layers for it; the message names each node and the reason."""
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"expected a torch.nn.Module, got {type(module).__name__}")
    samples = example if isinstance(example, tuple) else (example,)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    if other := [name for name, p in parameters.items() if p.dtype != torch.float32]:
        raise InvalidInput(f"{few(other)} of {type(module).__name__} are not float32; module.float() converts them")
    learned = {name for name, p in parameters.items() if p.requires_grad}
    chosen = learned.__contains__ if trained is None else trained
    name = type(module).__name__
    model = exported(torch, module, samples, name)
    reading = from_model(model, name, Given(trained=chosen, whole=True), loss)
    lines = [*reading.notes, *shared_statistics(model, name), *own_backwards(torch, module, samples, name)]
    if notes is not None:
        notes += lines
    for line in lines if notes is None else ():
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
