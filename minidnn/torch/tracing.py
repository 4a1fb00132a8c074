"""The ops of one step of a PyTorch module, forward and backward, as PyTorch runs them eagerly. Nothing is allocated.

All that minidnn takes of PyTorch's experimental interface is in this file:

    torch.fx.experimental.proxy_tensor   make_fx, get_proxy_mode
    torch._subclasses.fake_tensor        FakeTensorMode
    torch._C._current_autograd_node, torch._C._autograd._get_sequence_nr

The step is traced below autograd and without PyTorch's Python dispatcher, so the graph has the very ops that eager mode
dispatches to a device, in its order. (With that dispatcher, as torch.compile and torch.export have it, Dropout on a
CPU becomes an op whose bits differ where p is 0.15, and an LSTM thousands of ops.)
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from minidnn.errors import InvalidInput, few
from minidnn.torch.constants import Asked, asked, eager_paths
from minidnn.torch.guards import CHECKPOINT, unchanged
from minidnn.torch.installed import torch_folder, torch_module
from minidnn.torch.layouts import corrected

if TYPE_CHECKING:
    import torch

OWN = str(Path(__file__).parent.parent)
TENSOR = object()  # stands for a tensor in the structure of a result
AUTOCAST = ("cpu", "cuda")  # devices that torch.autocast may be on for
OUTSIDE = "loss"  # the module of what runs outside of all modules
_AMAX, _SUMS = "use amax or amin", "multiply factors one by one, or add up logarithms"
# The nodes of autograd whose formulas ask for values where tensors have some, and what to use in their place.
BY_VALUE = {
    **dict.fromkeys(("MaxBackward1", "MinBackward1"), _AMAX),
    **dict.fromkeys(("MedianBackward0", "NanmedianBackward0"), "use median(dim=...) of a flattened tensor"),
    **dict.fromkeys(("ProdBackward0", "ProdBackward1", "CumprodBackward0"), _SUMS),
}


class Place(NamedTuple):
    """Where an op comes from: the module's path, and the user's line. Both are empty where nobody knows."""

    module: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        at = f"{short(self.file)}:{self.line}" if self.file else ""
        return " ".join(part for part in (at, f"({self.module})" if self.module else "") if part) or "the module"


@dataclass(frozen=True, eq=False)
class Arguments:
    """The arguments of a step: their structure, the tensors among them, and all else, which a plan is made for."""

    tree: Any
    leaves: tuple[Any, ...]

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Arguments:
        leaves, tree = torch_module("utils._pytree").tree_flatten((tuple(args), dict(kwargs or {})))
        return cls(tree, tuple(leaves))

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        torch = torch_module()
        return tuple(x for x in self.leaves if isinstance(x, torch.Tensor))

    def with_tensors(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional arguments and those by keyword, with these tensors in place of the own ones."""
        torch, given = torch_module(), iter(tensors)
        leaves = [next(given) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = torch_module("utils._pytree").tree_unflatten(leaves, self.tree)
        return args, kwargs


@dataclass(frozen=True, eq=False)
class Traced:
    """The graph of a step, as torch.fx has it.

    Its placeholders are the parameters, the buffers, the tensors among the arguments, and in training the gradient of
    the loss. Its outputs are the loss and the gradients, or without training the tensors that the module returns.

    places:     where each node comes from, by its name
    backward:   the names of the nodes of the backward pass
    parameters: their names, in order; buffers: likewise
    trained:    the parameters that get a gradient: None stands for one that the loss does not depend on
    result:     the structure of what the module returns
    asked:      the values by which it chose what to run
    """

    graph: torch.fx.GraphModule
    places: Mapping[str, Place]
    backward: frozenset[str]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    inputs: int
    trained: tuple[str, ...]
    training: bool
    result: Any = None
    asked: tuple[Asked, ...] = ()

    def holds(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether the module would run the same ops for these tensors of the arguments."""
        return all(value.holds(inputs) for value in self.asked)


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
        torch = torch_module()
        node = torch._C._current_autograd_node()
        if node is not None:
            self.at = self.forward_of.get(node._sequence_nr(), Place())
            return
        self.at = Place(self.stack[-1] if self.stack else OUTSIDE, *_user_line(sys._getframe(2)))
        if func._schema.is_mutable and not self.last:
            self.changing[self.at] = None

    def note(self, nodes: Any) -> None:
        """The op has run."""
        torch = torch_module()
        if torch._C._current_autograd_node() is None:
            self.forward_of.setdefault(torch._C._autograd._get_sequence_nr() - 1, self.at)
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
    _check(module, arguments)
    dtype = torch.float32
    try:
        traced = _trace(module, arguments, loss, training, device, dtype, values)
    except _OtherTangent as other:
        dtype = other.args[0]
        traced = _trace(module, arguments, loss, training, device, dtype, values)
    again = _trace(module, arguments, loss, training, device, dtype, values)
    # PyTorch's first fake results may be one tensor where later ones are two.
    if _difference(traced, again) is not None:
        traced, again = again, _trace(module, arguments, loss, training, device, dtype, values)
    if (place := _difference(traced, again)) is not None:
        raise InvalidInput(
            f"{place}: {type(module).__name__} computes something else each time that it runs: it counts, or draws "
            "numbers outside of torch, or makes a generator or a tensor of what changes; a plan repeats the first "
            "step. Let tensors have what changes: a buffer, or an argument"
        )
    return traced


def _difference(first: Traced, second: Traced) -> Place | None:
    """Where two graphs begin to differ; None if they do not."""
    numbers: tuple[dict[Any, int], dict[Any, int]] = {}, {}
    pairs = zip_longest(first.graph.graph.nodes, second.graph.graph.nodes)
    for i, (one, other) in enumerate(pairs):
        if one is None or other is None or _text(first, one, numbers[0]) != _text(second, other, numbers[1]):
            return first.places.get(one.name, Place()) if one is not None else second.places.get(other.name, Place())
        numbers[0][one], numbers[1][other] = i, i
    return None


def _text(traced: Traced, node: torch.fx.Node, numbers: Mapping[Any, int]) -> Any:
    torch = torch_module()
    if node.op == "get_attr":
        value = getattr(traced.graph, str(node.target))
        if not isinstance(value, torch.Tensor) or value.requires_grad or value.numel() > 1 << 16:
            return id(value)
        return str(value.dtype), tuple(value.shape), value.cpu().numpy().tobytes() if value.numel() else b""
    given = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: f"%{numbers[n]}")
    return node.op, str(node.target), repr(given)


def _fake_mode() -> Any:
    """Of tensors without values, which lie as real ones do."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Exact(FakeTensorMode):
        def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().dispatch(func, types, args, kwargs or {})
            with self:
                return corrected(func, args, result)

    return Exact(allow_non_fake_inputs=True)


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
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = _fake_mode()
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    real = {**parameters, **buffers}
    count, places = len(arguments.tensors), _places_of(module)
    fakes = _fakes((*real.values(), *arguments.tensors), len(real), mode, device)
    for fake, p in zip(fakes, parameters.values(), strict=False):
        fake.requires_grad_(p.requires_grad and training)
    if training:
        fakes.append(_fake(torch.empty((), dtype=tangent, device="meta"), mode, device or _device_of(module)))
    trained = tuple(name for name, p in parameters.items() if p.requires_grad) if training else ()
    recorder = _Recorder({id(m): name or type(m).__name__ for name, m in module.named_modules()})
    results: list[Any] = []

    def step(*flat: Any) -> tuple[Any, ...]:
        own = {id(t): fake for t, fake in zip(real.values(), flat, strict=False)}
        args, kwargs = arguments.with_tensors(flat[len(real) : len(real) + count])
        inputs = args[: len(args) - (loss is not None)]
        if values:
            recorder.inputs = _with_values(flat[len(real) : len(real) + count], arguments.tensors)
        with _noting(recorder), torch.set_grad_enabled(training), _replaced(places, own):
            output = module(*inputs, **kwargs)
            value = loss(output, args[-1]) if loss is not None else output
            _keep_assigned(places, own, type(module).__name__)
            if not training:
                leaves, structure = torch_module("utils._pytree").tree_flatten(value)
                results.append(([_returned(x) for x in leaves], structure))
                return tuple(x for x in leaves if isinstance(x, torch.Tensor))
            scalar, structure = _scalar(value, module)
            results.append(structure)
            if scalar.dtype != tangent:
                raise _OtherTangent(scalar.dtype)
            wanted = [own[id(real[name])] for name in trained]
            _check_gradients(scalar, wanted, type(module).__name__, recorder)
            recorder.last = True
            with no_autocast():  # where users call loss.backward()
                return scalar, *torch.autograd.grad(scalar, wanted, flat[-1], allow_unused=True)

    with unchanged(module, loss), _errors_read(module, recorder), _hooks(recorder), eager_paths():
        graph = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*fakes)
    return Traced(
        graph, recorder.places, frozenset(recorder.backward), tuple(parameters), tuple(buffers), count, trained,
        training, results[-1], tuple(recorder.asked),
    )  # fmt: skip


@contextlib.contextmanager
def no_autocast() -> Iterator[None]:
    """Leave torch.autocast for a while."""
    torch = torch_module()
    with contextlib.ExitStack() as stack:
        for device in AUTOCAST:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


class _Held(NamedTuple):
    """A parameter or a buffer where a module holds it."""

    name: str
    held: dict[str, Any]
    key: str
    real: Any


def _places_of(module: torch.nn.Module) -> list[_Held]:
    return [
        _Held(f"{name}.{key}" if name else key, held, key, t)
        for name, m in module.named_modules() for held in (m._parameters, m._buffers) for key, t in held.items()
    ]  # fmt: skip


@contextlib.contextmanager
def _replaced(places: Sequence[_Held], own: Mapping[int, Any]) -> Iterator[None]:
    """Other tensors in place of the module's own, wherever it holds them. own: the others, by its own ones' identity"""
    for x in places:
        if x.real is not None:
            x.held[x.key] = own[id(x.real)]
    try:
        yield
    finally:
        for x in places:
            x.held[x.key] = x.real


def _keep_assigned(places: Sequence[_Held], own: Mapping[int, Any], name: str) -> None:
    """Write what was assigned to a buffer into it. Raises InvalidInput where it does not fit."""
    for x in places:
        now, was = x.held.get(x.key), own.get(id(x.real))
        if now is was:
            continue
        if was is None or now is None or was.requires_grad or (now.shape, now.dtype) != (was.shape, was.dtype):
            raise InvalidInput(
                f"{name} replaces {x.name} in forward by what has another shape or type, or is another parameter: let "
                "it have its shape from the beginning, and change it in place"
            )
        was.detach().copy_(now.detach())


def _check_gradients(scalar: torch.Tensor, wanted: Sequence[torch.Tensor], name: str, recorder: _Recorder) -> None:
    """Raise InvalidInput if the loss depends on a parameter that the module does not have, or if values decide how its
    gradient is computed."""
    known = {id(t) for t in wanted}
    found: list[Any] = [scalar.grad_fn]
    seen = set(found)
    while found:
        node = found.pop()
        if instead := BY_VALUE.get(node.name()):
            place = recorder.forward_of.get(node._sequence_nr(), Place())
            raise InvalidInput(
                f"{place}: PyTorch chooses the formula of this gradient ({node.name()}) by the values of tensors, and "
                f"a plan is made before values are known: {instead}"
            )
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known and _lasting(leaf):
            raise InvalidInput(
                f"the loss depends on a parameter of shape {tuple(leaf.shape)} that is none of {name}'s, so that its "
                "gradient would be lost: make it a parameter of the module, or of a module around both"
            )
        more = {n for n, _ in getattr(node, "next_functions", ()) if n is not None} - seen
        seen |= more
        found += more


def _lasting(leaf: torch.Tensor) -> bool:
    """Whether a tensor is there without the step: the step does not compute it."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

    proxies = get_proxy_mode()
    assert proxies is not None
    node = get_proxy_slot(leaf, proxies.tracer, None, lambda p: p.proxy.node)
    return node is None or node.op != "call_function"


def _device_of(module: torch.nn.Module) -> str:
    devices = {str(t.device) for t in (*module.parameters(), *module.buffers())} - {"meta"}
    return min(devices, default="cpu")


def _fakes(tensors: Sequence[torch.Tensor], own: int, mode: Any, device: str | None) -> list[torch.Tensor]:
    """A fake of each tensor. Of the first, the module's own, those that share memory do so as fakes, and others that
    share it with them."""
    storages = [t.untyped_storage() for t in tensors]
    times = Counter(s.data_ptr() for s in storages if s.nbytes())
    within = {s.data_ptr() for s in storages[:own]}
    bases: dict[int, Any] = {}
    result = []
    for t, s in zip(tensors, storages, strict=True):
        if t.device.type == "meta" or times[s.data_ptr()] < 2 or s.data_ptr() not in within:
            result.append(_fake(t, mode, device))
            continue
        with mode:
            if s.data_ptr() not in bases:
                bases[s.data_ptr()] = torch_module().empty(
                    s.nbytes() // t.itemsize, dtype=t.dtype, device=device or t.device
                )
            base = bases[s.data_ptr()]
            if base.dtype != t.dtype:
                raise InvalidInput(
                    f"tensors of {t.dtype} and of {base.dtype} share memory: give each its own (x.clone())"
                )
            result.append(base.as_strided(tuple(t.shape), t.stride(), t.storage_offset()).detach())
    return result


def _fake(t: torch.Tensor, mode: Any, device: str | None) -> torch.Tensor:
    """A tensor of this geometry without values."""
    torch = torch_module()
    place = device or ("cpu" if t.device.type == "meta" else t.device)
    with mode:
        return torch.empty_strided(tuple(t.shape), t.stride(), dtype=t.dtype, device=place)


def _check(module: torch.nn.Module, arguments: Arguments) -> None:
    """Raise InvalidInput for tensors that no step here takes."""
    torch = torch_module()
    own = [*module.named_parameters(), *module.named_buffers()]
    for name, t in (*own, *((f"argument {i + 1}", t) for i, t in enumerate(arguments.tensors))):
        if t.layout != torch.strided or t.is_quantized or type(t) not in (torch.Tensor, torch.nn.Parameter):
            what = f"{type(t).__name__} of layout {t.layout}"
            raise InvalidInput(f"{name} is a {what}: only plain strided tensors are planned")
        if t.is_complex():
            raise InvalidInput(f"{name} is complex ({t.dtype}): only real tensors are planned; view it as real")
    for x in arguments.leaves:
        if not isinstance(x, torch.Tensor) and not _known(x):
            raise InvalidInput(
                f"an argument is a {type(x).__name__}, which may hold tensors that a plan does not see: pass tensors "
                "and plain values, in tuples, lists and dicts (before model.generate() of `transformers`, call the "
                "step's remove())"
            )
    for i, t in enumerate(arguments.tensors):
        if t.requires_grad:
            raise InvalidInput(
                f"argument {i + 1} wants a gradient, and a step gives those of parameters alone: pass x.detach(), or "
                "make it a parameter of the module"
            )


def check_modules(module: torch.nn.Module) -> None:
    """Raise InvalidInput for what is no module of Python's."""
    if not isinstance(module, torch_module().nn.Module):
        raise InvalidInput(f"expected a torch.nn.Module, got {type(module).__name__}")
    for name, t in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(t, torch_module().nn.parameter.UninitializedTensorMixin):
            raise InvalidInput(f"{name} has no shape yet: run the module once, so that its lazy layers get theirs")
        if t.layout != torch_module().strided:
            raise InvalidInput(f"{name} is of layout {t.layout}: only plain strided tensors are planned")
    for name, m in module.named_modules():
        if instead := _foreign(m):
            raise InvalidInput(f"{name or 'the module'} is a {type(m).__name__}, which cannot be traced: {instead}")


def _known(value: Any) -> bool:
    """Whether a value holds no tensors."""
    torch = torch_module()
    of_torch = (torch.dtype, torch.device, torch.layout, torch.memory_format)
    return isinstance(value, (type(None), bool, int, float, complex, str, bytes, Enum, type, *of_torch))


@dataclass(frozen=True)
class NotReturned:
    """Stands in a module's result for an object that may hold tensors, such as a cache of keys and values."""

    kind: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidInput(
            f"a planned step does not return the module's {self.kind}, which may hold tensors: it returns tensors and "
            "plain values, in tuples, lists and dicts; call the module itself for it"
        )


def _returned(value: Any) -> Any:
    """A leaf of a module's result, as it is kept with the graph."""
    if isinstance(value, torch_module().Tensor):
        return TENSOR
    return value if _known(value) else NotReturned(type(value).__name__)


def _foreign(m: torch.nn.Module) -> str:
    """What to do instead of a module that is run by something else than Python; empty for all others."""
    torch = torch_module()
    if isinstance(m, torch.jit.ScriptModule):
        return "give minidnn the module as it was before torch.jit"
    if hasattr(m, "_orig_mod"):
        return "give minidnn the module itself (its _orig_mod), without torch.compile"
    if isinstance(m, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        return "give minidnn the module in it (its .module)"
    return ""


def _scalar(value: Any, module: torch.nn.Module) -> tuple[torch.Tensor, Any]:
    """The loss in what a module or a loss function returns, and how to give it back: None as it is, else a function
    of the loss."""
    torch, name = torch_module(), type(module).__name__
    wrap = None
    if isinstance(value, Mapping) and "loss" in value:  # as `transformers` returns it
        others = frozenset(key for key in value if key != "loss" and value[key] is not None)
        wrap, value = partial(_with_loss, type(value), _partly(type(value), others)), value["loss"]

    if not isinstance(value, torch.Tensor) or value.dim():
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise InvalidInput(
            f"{name} gives {got}, where one number is to be minimized: name loss=..., or return the loss from the "
            "module, alone or as result['loss']; add several losses up"
        )
    if not value.requires_grad:
        raise InvalidInput(f"the loss of {name} depends on no parameter that has requires_grad")
    return value, wrap


def _with_loss(kind: Any, partly: Any, loss: torch.Tensor) -> Any:
    """A result of this kind with the loss alone, which tells so where the rest is asked for."""
    if kind is dict:
        return partly(loss=loss)
    result = kind(loss=loss)
    with contextlib.suppress(TypeError):  # a class that cannot be another
        result.__class__ = partly
    return result


def _partly(kind: Any, others: frozenset[str]) -> Any:
    """A class of results that have the loss alone."""

    def missing(key: str) -> InvalidInput:
        return InvalidInput(
            f"a planned step returns the loss alone, and {key!r} is freed as soon as it is not needed: call the module "
            "itself under torch.no_grad() for it, or add what is to be minimized to the loss"
        )

    class Partly(kind):  # type: ignore[misc]
        def __getitem__(self, key: Any) -> Any:
            if key in others:
                raise missing(key)
            return super().__getitem__(key)

        def __getattribute__(self, name: str) -> Any:
            if name in others:
                raise missing(name)
            return super().__getattribute__(name)

        def get(self, key: Any, default: Any = None) -> Any:
            return self[key] if key in others or key in self else default

        def __repr__(self) -> str:
            return f"{kind.__name__}(loss={self['loss']})"

    return Partly


def _with_values(fakes: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> dict[Any, tuple[int, Any]]:
    """The arguments that have values, with their places, by their nodes."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

    proxies = get_proxy_mode()
    assert proxies is not None
    nodes = [get_proxy_slot(t, proxies.tracer, None, lambda p: p.proxy.node) for t in fakes]
    return {n: (i, t) for i, (n, t) in enumerate(zip(nodes, tensors, strict=True)) if n and t.device.type != "meta"}


# ---- while the graph is made


@contextlib.contextmanager
def _noting(recorder: _Recorder) -> Iterator[None]:
    """Note where each op comes from. Raises InvalidInput for what a graph would not show."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
    from torch.utils._python_dispatch import TorchDispatchMode

    torch = torch_module()
    leaves = torch.utils._pytree.tree_leaves

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            proxies = get_proxy_mode()
            assert proxies is not None
            recorder.begin(func)
            if func is torch.ops.aten._local_scalar_dense.default:
                node = get_proxy_slot(args[0], proxies.tracer, None, lambda p: p.proxy.node)
                if (value := asked(node, recorder.inputs)) is not None:
                    recorder.asked.append(value)
                    return value.value
            for t in leaves((args, kwargs)):
                if isinstance(t, torch.Tensor):
                    _check_storage(t, get_proxy_slot(t, proxies.tracer, None, lambda p: p.proxy.node), recorder)
            result = func(*args, **(kwargs or {}))
            if isinstance(result, bool | int | float) and func not in GEOMETRY():
                raise InvalidInput(f"{recorder.at}: {_decided(str(func), recorder.at.module)}")
            recorder.note(proxies.tracer.graph.nodes)
            return result

    with Noting():
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
    if (
        value is not None
        and t.layout == value.layout == strided
        and value.untyped_storage()._cdata != t.untyped_storage()._cdata
    ):
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
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    except _OtherTangent:
        raise
    except Exception as error:
        file, line = _line_of(error)
        place = Place(recorder.at.module, file, line) if file else recorder.at
        if isinstance(error, InvalidInput):
            if error.args[0].startswith(str(place)) or not place.file or _placed(error.args[0]):
                raise
            raise InvalidInput(f"{place}: {error.args[0]}") from None
        raise InvalidInput(f"{place}: {_reason(error, type(module).__name__, recorder)}") from error
    finally:
        log.setLevel(level)


def _placed(text: str) -> bool:
    """Whether a message begins with a place."""
    return re.match(r"\S+:\d+", text) is not None


def _decided(op: str, name: str) -> str:
    return (
        f"the values of a tensor decide what {name} computes next, or how large a result is ({op}): a plan is made "
        "before values are known. Use torch.where or masks of a fixed shape, or leave this out of the module"
    )


def _reason(error: Exception, name: str, recorder: _Recorder) -> str:
    kind, text = type(error).__name__, str(error).strip().partition("\n")[0]
    if CHECKPOINT in str(error) or "torch.utils.checkpoint" in str(error):
        return CHECKPOINT
    if kind in ("DataDependentOutputException", "DynamicOutputShapeException") or "data-dependent" in text:
        return _decided(text, name)
    if ".numpy() is not supported" in text or "data is not allocated yet" in text:
        return _decided(text, name)
    if "modified by an inplace operation" in text:
        places = few([str(place) for place in recorder.changing], 3)
        return (
            f"{name} changes a tensor in place that its backward pass needs "
            f"({text.partition(':')[2].strip() or text}); "
            f"ops in place: {places or 'none is known'}: use those that are not, or change a copy (x.clone())"
        )
    if kind in (
        "UnsupportedOperatorException",
        "UnsupportedFakeTensorException",
        "UnsupportedMutationAliasingException",
    ):
        return f"{name} uses a kernel whose result's shape PyTorch cannot tell ({text}): register a fake kernel for it"
    return f"{name} cannot be traced: {kind}: {text}"


# ---- the user's lines


def short(file: str) -> str:
    """A file as people name it: relative to the working folder if it is below it, else its last two parts."""
    path = Path(file)
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return "/".join(path.parts[-2:])


def _user_line(frame: FrameType | None) -> tuple[str, int]:
    """The innermost line of the step outside PyTorch and minidnn; none if the loss is a function of PyTorch's."""
    while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) != (__file__, "step"):
        if _users(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def _line_of(error: BaseException) -> tuple[str, int]:
    lines = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__) if _users(f.filename)]
    return lines[-1] if lines else ("", 0)


def _users(file: str) -> bool:
    return not (file.startswith((torch_folder(), OWN, "<")) or file.endswith(("contextlib.py", "_compile.py")))
