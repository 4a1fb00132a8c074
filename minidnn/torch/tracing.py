"""The ops of one step of a PyTorch module, forward and backward, as PyTorch runs them eagerly. Nothing is allocated.

The step is traced below autograd and without PyTorch's Python dispatcher, so the graph has the very ops that eager mode
dispatches to a device, in its order. (With that dispatcher, as torch.compile and torch.export have it, Dropout on a
CPU becomes an op whose bits differ where p is 0.15, and an LSTM thousands of ops.)
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from minidnn.errors import InvalidInput
from minidnn.torch.arguments import Arguments
from minidnn.torch.checks import check_arguments, check_modules
from minidnn.torch.constants import Asked, asked, eager_paths
from minidnn.torch.experimental import (
    each_op,
    fake_log,
    fake_mode,
    graph_of,
    last_number,
    node_of,
    number_of,
    running_node,
    schema_of,
    storage_of,
    tracer,
    trees,
)
from minidnn.torch.failures import decided, placed, reason
from minidnn.torch.fakes import fake_of, fakes_of
from minidnn.torch.formulas import check_gradients
from minidnn.torch.guards import CHECKPOINT, unchanged
from minidnn.torch.holding import held_by, keep_assigned, replaced
from minidnn.torch.installed import torch_module
from minidnn.torch.layouts import corrected
from minidnn.torch.modes import no_autocast
from minidnn.torch.places import OUTSIDE, Place, line_of, user_line
from minidnn.torch.results import returned, scalar
from minidnn.torch.traced import Traced, difference

if TYPE_CHECKING:
    import torch

STEP = (__file__, "step")  # the function that runs a step while it is traced


@dataclass(eq=False)
class _Recorder:
    """The place of each node, noted while the graph is made."""

    paths: dict[int, str]
    stack: list[str] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    backward: set[str] = field(default_factory=set)
    forward_of: dict[int, Place] = field(default_factory=dict)  # by the number of the autograd node
    last: bool = False  # whether the step's own backward pass has begun
    at: Place = field(default_factory=Place)  # of the op that runs
    changing: dict[Place, None] = field(default_factory=dict)  # of ops in place
    inputs: dict[Any, tuple[int, Any]] = field(default_factory=dict)  # the arguments that have values, by their nodes
    asked: list[Asked] = field(default_factory=list)

    def begin(self, func: Any) -> None:
        """An op begins."""
        node = running_node()
        if node is not None:
            self.at = self.place_of(node)
            return
        self.at = Place(self.stack[-1] if self.stack else OUTSIDE, *user_line(sys._getframe(2), STEP))
        if schema_of(func).is_mutable and not self.last:
            self.changing[self.at] = None

    def place_of(self, node: Any) -> Place:
        """The place of the op whose backward a node of autograd is."""
        return self.forward_of.get(number_of(node), Place())

    def note(self, nodes: Any) -> None:
        """The op has run."""
        if running_node() is None:
            self.forward_of.setdefault(last_number(), self.at)
        for one in reversed(nodes):
            if one.name in self.places or one.op != "call_function":
                break
            self.places[one.name] = self.at
            if self.last:
                self.backward.add(one.name)


class _OtherTangent(Exception):
    """The loss has another dtype than its gradient was given."""


def trace(
    module: torch.nn.Module,
    arguments: Arguments,
    loss: Callable[..., Any] | None = None,
    training: bool = True,
    device: str | None = None,
    values: bool = True,
) -> Traced:
    """The graph of a step.

    loss:     computes the loss from what the module returns and the last positional argument, which the module then
              does not get; None: the module returns the loss
    training: whether the step computes gradients; without, it is the forward pass alone, and returns what the module
              does
    device:   the device to trace for, where the tensors are elsewhere; default: each tensor's own, and for those on
              "meta" the CPU
    values:   whether the arguments have the values of a step, so that the module may decide by them (constants.py)

    Raises InvalidInput where the module cannot be traced: where the values of tensors decide what runs, where a kernel
    is not known to PyTorch's fake tensors, or where the module changes itself; with the user's file and line.
    """
    torch = torch_module()
    check_modules(module)
    check_arguments(module, arguments)
    dtype = torch.float32
    try:
        traced = _trace(module, arguments, loss, training, device, dtype, values)
    except _OtherTangent as other:
        dtype = other.args[0]
        traced = _trace(module, arguments, loss, training, device, dtype, values)
    again = _trace(module, arguments, loss, training, device, dtype, values)
    # PyTorch's first fake results may be one tensor where later ones are two.
    if difference(traced, again) is not None:
        traced, again = again, _trace(module, arguments, loss, training, device, dtype, values)
    if (place := difference(traced, again)) is not None:
        raise InvalidInput(
            f"{place}: {type(module).__name__} computes something else each time that it runs: it counts, or draws "
            "numbers outside of torch, or makes a generator or a tensor of what changes; a plan repeats the first "
            "step. Let tensors have what changes: a buffer, or an argument"
        )
    return traced


def _trace(
    module: torch.nn.Module,
    arguments: Arguments,
    loss: Callable[..., Any] | None,
    training: bool,
    device: str | None,
    tangent: torch.dtype,
    values: bool,
) -> Traced:
    torch = torch_module()
    mode = fake_mode(corrected, allow_non_fake_inputs=True)
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    real = {**parameters, **buffers}
    count, held = len(arguments.tensors), held_by(module)
    fakes = fakes_of((*real.values(), *arguments.tensors), len(real), mode, device)
    for fake, p in zip(fakes, parameters.values(), strict=False):
        fake.requires_grad_(p.requires_grad and training)
    if training:
        fakes.append(fake_of(torch.empty((), dtype=tangent, device="meta"), mode, device or _device_of(module)))
    trained = tuple(name for name, p in parameters.items() if p.requires_grad) if training else ()
    recorder = _Recorder({id(m): name or type(m).__name__ for name, m in module.named_modules()})
    results: list[Any] = []

    def step(*flat: Any) -> tuple[Any, ...]:
        own = {id(t): fake for t, fake in zip(real.values(), flat, strict=False)}
        args, kwargs = arguments.with_tensors(flat[len(real) : len(real) + count])
        inputs = args[: len(args) - (loss is not None)]
        if values:
            recorder.inputs = _with_values(flat[len(real) : len(real) + count], arguments.tensors)
        with _noting(recorder), torch.set_grad_enabled(training), replaced(held, own):
            output = module(*inputs, **kwargs)
            value = loss(output, args[-1]) if loss is not None else output
            keep_assigned(held, own, type(module).__name__)
            if not training:
                leaves, structure = trees().tree_flatten(value)
                results.append(([returned(x) for x in leaves], structure))
                return tuple(x for x in leaves if isinstance(x, torch.Tensor))
            minimized, structure = scalar(value, module)
            results.append(structure)
            if minimized.dtype != tangent:
                raise _OtherTangent(minimized.dtype)
            wanted = [own[id(real[name])] for name in trained]
            check_gradients(minimized, wanted, type(module).__name__, recorder.place_of, _lasting)
            recorder.last = True
            with no_autocast():  # where users call loss.backward()
                return minimized, *torch.autograd.grad(minimized, wanted, flat[-1], allow_unused=True)

    with unchanged(module, loss), _errors_read(module, recorder), _hooks(recorder), eager_paths():
        graph = graph_of(step, fakes)
    return Traced(
        graph, recorder.places, frozenset(recorder.backward), tuple(parameters), tuple(buffers), count, trained,
        training, results[-1], tuple(recorder.asked),
    )  # fmt: skip


def _lasting(leaf: torch.Tensor) -> bool:
    """Whether a tensor is there without the step: the step does not compute it."""
    node = node_of(leaf, tracer())
    return node is None or node.op != "call_function"


def _device_of(module: torch.nn.Module) -> str:
    devices = {str(t.device) for t in (*module.parameters(), *module.buffers())} - {"meta"}
    return min(devices, default="cpu")


def _with_values(fakes: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> dict[Any, tuple[int, Any]]:
    """The arguments that have values, with their places, by their nodes."""
    nodes = [node_of(t, tracer()) for t in fakes]
    return {n: (i, t) for i, (n, t) in enumerate(zip(nodes, tensors, strict=True)) if n and t.device.type != "meta"}


# ---- while the graph is made


@contextlib.contextmanager
def _noting(recorder: _Recorder) -> Iterator[None]:
    """Note where each op comes from. Raises InvalidInput for what a graph would not show."""
    torch = torch_module()

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        making = tracer()
        recorder.begin(func)
        asks = func is torch.ops.aten._local_scalar_dense.default
        if asks and (value := asked(node_of(args[0], making), recorder.inputs)) is not None:
            recorder.asked.append(value)
            return value.value
        for t in trees().tree_leaves((args, kwargs)):
            if isinstance(t, torch.Tensor):
                _check_storage(t, node_of(t, making), recorder)
        result = func(*args, **kwargs)
        if isinstance(result, bool | int | float) and func not in GEOMETRY():
            raise InvalidInput(f"{recorder.at}: {decided(str(func), recorder.at.module)}")
        recorder.note(making.graph.nodes)
        return result

    with each_op(run):
        yield


@cache
def GEOMETRY() -> frozenset[Any]:
    """Ops that return numbers which no value decides."""
    aten = torch_module().ops.aten
    return frozenset({aten.is_same_size.default, aten.dim.default})


def _check_storage(t: torch.Tensor, node: Any, recorder: _Recorder) -> None:
    """Raise InvalidInput if the tensor has another memory than the graph knows: `x.data = y` leaves no trace."""
    strided = torch_module().strided
    value = node.meta.get("val") if node is not None else None
    if value is not None and t.layout == value.layout == strided and storage_of(value) != storage_of(t):
        raise InvalidInput(
            f"{recorder.at}: this tensor was given other memory by `.data = ...`, which a plan does not see: use "
            "x.copy_(y), or the new tensor itself"
        )


@contextlib.contextmanager
def _hooks(recorder: _Recorder) -> Iterator[None]:
    """Follow which module runs; refuse what would run again in the backward pass."""
    torch = torch_module()
    modules = torch.nn.modules.module

    def enter(module: Any, args: Any) -> None:
        recorder.stack.append(recorder.paths.get(id(module), recorder.stack[-1] if recorder.stack else OUTSIDE))

    def leave(module: Any, args: Any, result: Any) -> None:
        recorder.stack.pop()

    handles = [
        modules.register_module_forward_pre_hook(enter),
        modules.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks(CHECKPOINT):
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _errors_read(module: torch.nn.Module, recorder: _Recorder) -> Iterator[None]:
    """Give errors of the tracing a text that a user can act on, with the place in the user's source."""
    log = fake_log()
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    except _OtherTangent:
        raise
    except Exception as error:
        file, line = line_of(error)
        place = Place(recorder.at.module, file, line) if file else recorder.at
        if isinstance(error, InvalidInput):
            if error.args[0].startswith(str(place)) or not place.file or placed(error.args[0]):
                raise
            raise InvalidInput(f"{place}: {error.args[0]}") from None
        raise InvalidInput(f"{place}: {reason(error, type(module).__name__, recorder.changing)}") from error
    finally:
        log.setLevel(level)
