"""How a net that is read from PyTorch's export agrees with the module: trained blobs, gradients, steps of training."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import minidnn
from minidnn.nets.net import Net
from minidnn.onnx import InvalidModel
from minidnn.onnx.ends import Given
from minidnn.onnx.reading import Reading, from_model

EXPORTERS = ("dynamo", "dynamo, eval", "script", "script, eval")
OPTIMIZERS = {
    "SGD": ({"momentum": 0.9, "weight_decay": 1e-3, "base_lr": 0.02}, torch.optim.SGD),
    "AdamW": (
        {"momentum": 0.9, "momentum2": 0.999, "weight_decay": 0.05, "base_lr": 1e-3, "delta": 1e-12},
        torch.optim.AdamW,
    ),
}  # fmt: skip


class NotExported(Exception):
    """PyTorch itself does not export the module."""


def exported(module: nn.Module, samples: tuple, how: str) -> Any:
    """The ONNX model. "dynamo" and "script" are the calls that keep all; with "eval" they are PyTorch's defaults."""
    import onnx

    file, mode = io.BytesIO(), torch.onnx.TrainingMode
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            if "dynamo" in how:
                program = torch.onnx.export(module, samples, dynamo=True, optimize="eval" in how, verbose=False)
                return program.model_proto
            more = {} if "eval" in how else {"training": mode.TRAINING, "do_constant_folding": False}
            torch.onnx.export(module, samples, file, dynamo=False, opset_version=17, **more)
            return onnx.load_model_from_string(file.getvalue())
    except Exception as error:
        raise NotExported(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
    finally:
        logging.disable(level)


@dataclass
class Agreement:
    """parameters: (of the module, trained blobs); the others are the largest relative differences"""

    parameters: tuple[int, int]
    unequal: list[str]
    forward: float
    gradients: float
    steps: dict[str, float]


def agreement(module: nn.Module, samples: tuple, classes: int | None, how: str) -> Agreement:
    """Raises NotExported, and InvalidModel if the file is refused."""
    module = copy.deepcopy(module).train("eval" not in how)  # the older exporter runs it, and moves its statistics
    model = exported(module, samples, how)
    reading = from_model(model, "module", Given(), loss=classes is not None)
    if classes is None:
        reading = _with_targets(reading)
        lines = [line for line in reading.notes if "it cannot be trained" in line]
        if lines:
            raise InvalidModel("\n".join(lines))
    module = undropped(module)
    target = _target(module, samples, classes)
    inputs = [re.sub(r"[^A-Za-z0-9_.-]+", "_", v.name) for v in model.graph.input]
    data = _data(inputs, samples, target)
    names = shared_names(module, reading.places)
    trained = trained_blobs(reading.net)
    unequal = [n for n, p in names.items() if not _begins_as(reading, n, p)]
    forward, gradients = _gradients(reading, module, samples, target, data)
    steps = {kind: _steps(reading, module, samples, target, data, names, kind) for kind in OPTIMIZERS}
    return Agreement((len(names), len(trained)), unequal, forward, gradients, steps)


def undropped(module: nn.Module) -> nn.Module:
    """A copy that trains and drops nothing: PyTorch's random numbers are not minidnn's."""
    module = copy.deepcopy(module).train()
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0
    return module


def shared_names(module: nn.Module, places: Any) -> dict[str, nn.Parameter]:
    """The parameters, each once, by that of its names which the file has, if it has one."""
    result: dict[str, nn.Parameter] = {}
    for p in module.parameters():
        names = [name for name, q in module.named_parameters(remove_duplicate=False) if q is p]
        result[next((n for n in names if n in places), names[0])] = p
    return result


def trained_blobs(net: Net) -> set[str]:
    graph = net.graph("TRAIN")
    return {n.tensor_name(p) for n in graph.layers for p in n.parameters if p.learnable and p.lr_mult}


def _with_targets(reading: Reading) -> Reading:
    """With a Euclidean loss, for outputs that are images."""
    net = reading.net
    top = [top for node in net.graph("TRAIN").layers for top in node.tops][-1]
    shape = "[" + ", ".join(map(str, top.tensor.shape)) + "]"
    more = f"- {{name: target, type: Input, top: target, input_param: {{shape: {{dim: {shape}}}}}}}\n"
    more += f"- {{name: loss, type: EuclideanLoss, bottom: [{top.name}, target], top: loss}}\n"
    whole = Net.from_text(net.to_yaml() + more).with_weights(net.weights)
    return Reading(whole, reading.notes, reading.places, reading.statistics)


def _target(module: nn.Module, samples: tuple, classes: int | None) -> torch.Tensor:
    shape = copy.deepcopy(module)(*samples).shape
    return torch.randn(shape) if classes is None else torch.randint(0, classes, shape[:-1])


def _loss(module: nn.Module, samples: tuple, target: torch.Tensor) -> torch.Tensor:
    output = module(*samples)
    if target.is_floating_point():
        return ((output - target) ** 2).sum() / (2 * len(output))
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


def _data(inputs: list[str], samples: tuple, target: torch.Tensor) -> dict[str, np.ndarray]:
    values = [x.numpy() if x.is_floating_point() else x.numpy().astype(np.int32) for x in samples]
    goal = ("target", target.numpy()) if target.is_floating_point() else ("label", target.numpy().astype(np.int32))
    return {**dict(zip(inputs, values, strict=True)), goal[0]: goal[1]}


def _without_dropout(net: Net) -> Net:
    layers = []
    for layer in net.parameter.layer:
        if layer.type == "Dropout":
            none = layer.dropout_param.model_copy(update={"dropout_ratio": 0.0})
            layer = layer.model_copy(update={"dropout_param": none})
        layers.append(layer)
    return net._changed(net.parameter.model_copy(update={"layer": tuple(layers)}))


def _at(reading: Reading, name: str, values: Any, like: torch.Tensor) -> np.ndarray:
    """A parameter's numbers in the module's shape, from those of the net's blobs by "<layer>/<blob>"."""
    place = reading.places[name]
    return place.in_file(values[place.key], tuple(like.shape))


def _begins_as(reading: Reading, name: str, p: torch.Tensor) -> bool:
    if name not in reading.places:
        return False
    return np.array_equal(_at(reading, name, reading.net.weights, p), p.detach().numpy())


def _gradients(reading, module, samples, target, data) -> tuple[float, float]:
    module = copy.deepcopy(module)
    loss = _loss(module, samples, target)
    loss.backward()
    with minidnn.Session(_without_dropout(reading.net), phases=("TRAIN",), device="cpu") as session:
        for tensor in session.programs["TRAIN"].inputs:
            value = data.get(tensor.name, np.zeros(tensor.shape))
            session.machine.write(tensor, np.asarray(value, tensor.dtype).reshape(tensor.shape), "TRAIN")
        session.step("TRAIN")
        ours = session.objectives("TRAIN")[0]
        state = session.state()
    values = {name.replace(".grad", "").rpartition(".")[0] + "/" + name.replace(".grad", "").rpartition(".")[2]: v
              for name, v in state.items() if name.endswith(".grad")}  # fmt: skip
    theirs = shared_names(module, reading.places)
    largest = max(float(p.grad.abs().max()) for p in theirs.values())
    worst = 0.0
    for name, p in theirs.items():
        gradient = p.grad.numpy()
        difference = np.abs(_at(reading, name, values, p) - gradient).max()
        worst = max(worst, float(difference / max(np.abs(gradient).max(), 1e-3 * largest)))
    total = float(loss.detach())
    return abs(ours - total) / abs(total), worst


def _steps(reading, module, samples, target, data, names, kind: str, steps: int = 3) -> float:
    module = copy.deepcopy(module)
    fields, optimizer = OPTIMIZERS[kind]
    rate, decay = fields["base_lr"], fields["weight_decay"]
    more = {"momentum": fields["momentum"]} if kind == "SGD" else {"betas": (0.9, 0.999), "eps": fields["delta"]}
    optimizer = optimizer(module.parameters(), lr=rate, weight_decay=decay, **more)
    heard: dict[str, np.ndarray] = {}
    for _ in range(steps):
        optimizer.zero_grad()
        _loss(module, samples, target).backward()
        heard = {name: g & heard[name] if heard else g for name, g in _heard(module, reading).items()}
        optimizer.step()
    with minidnn.Solver(
        _without_dropout(reading.net), data=data, type=kind, max_iter=steps, lr_policy="fixed", device="cpu", **fields
    ) as solver:
        solver.step(steps)
        values = solver.session.weights()
    worst = 0.0
    for name, p in shared_names(module, reading.places).items():
        before, after = names[name].detach().numpy(), p.detach().numpy()
        scale = max(float(np.abs(after).max()), float(np.abs(after - before).max()), 1e-2)
        difference = np.abs(_at(reading, name, values, p) - after)[heard[name]]
        worst = max(worst, float(difference.max(initial=0)) / scale)
    for name, buffer in module.named_buffers():
        if name in reading.statistics:
            layer, blob = reading.statistics[name]
            ours = values[f"{layer}/{blob}"] / values[f"{layer}/factor"]
            worst = max(worst, float(np.abs(ours - buffer.numpy()).max() / max(float(buffer.abs().max()), 1e-2)))
    return worst


def _heard(module: nn.Module, reading: Reading) -> dict[str, np.ndarray]:
    """Which numbers have a gradient that is no rounding error: by the others, such as those that a softmax or a
    normalization takes out again, AdamW steps by chance."""
    gradients = {name: np.abs(p.grad.numpy()) for name, p in shared_names(module, reading.places).items()}
    largest = max(g.max() for g in gradients.values())
    return {name: g > 1e-4 * largest for name, g in gradients.items()}
