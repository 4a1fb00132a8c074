"""What minidnn takes of PyTorch beside its documented interface: all of it is in this file.

The rule: modules that are private or experimental, and whatever else of PyTorch's begins with an underscore, are named
here alone (tests/project/test_experimental.py); the operators in torch.ops.aten are named where their tables are. It is
tested with PyTorch 2.6, 2.13 and 2.14 (docs/torch.md). PyTorch is imported by the calls, not with this file.

    torch.utils._pytree                     structures of values: tree_flatten, tree_unflatten, tree_leaves, tree_map
    torch.utils._python_dispatch            TorchDispatchMode, _disable_current_modes
    torch.utils.weak                        WeakTensorKeyDictionary
    torch._subclasses.fake_tensor           FakeTensorMode, FakeTensor, three of its exceptions, its log
    torch.fx.experimental.proxy_tensor      make_fx, get_proxy_mode, get_proxy_slot
    torch._C                                _current_autograd_node, _autograd._get_sequence_nr,
                                            _will_engine_execute_node, _cuda_customAllocator
    torch.autograd                          _profiler_enabled, Variable._execution_engine, Node._sequence_nr
    torch.profiler                          profile.profiler.kineto_results
    torch.utils.flop_counter                flop_registry
    torch.optim.optimizer                   _foreach_supported_types
    torch.cuda.memory                       _CUDAAllocator
    of an operator, a storage               _schema; _cdata (a storage keeps one Python object for life)
    of a tensor                             _version, _is_view, _backward_hooks, _post_accumulate_grad_hooks
    of a module                             _parameters, _buffers, _modules, its hooks, _orig_mod
    of a torch.SymInt                       node

In C++, native/follow.cpp stands before PyTorch's allocator: GetAllocator and SetAllocator.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch

Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]  # (an op, its arguments, those by keyword): its result


@cache
def trees() -> Any:
    """PyTorch's module for structures of values: tuples, lists, dicts, and what classes register."""
    return torch_module("utils._pytree")


# ---- operators


def schema_of(target: Any) -> Any:
    """The schema of an operator; None for other functions."""
    return getattr(target, "_schema", None)


@cache
def flop_formulas() -> Mapping[Any, Callable[..., Any]]:
    """What PyTorch counts of its own products, by operators without overload."""
    formulas: Mapping[Any, Callable[..., Any]] = torch_module("utils.flop_counter").flop_registry
    return formulas


# ---- tensors and storages


def identity(storage: torch.UntypedStorage) -> int:
    """What tells a storage from all others as long as it lives, one without values, too."""
    return storage._cdata


def storage_of(t: torch.Tensor) -> int:
    """The identity of a tensor's storage."""
    return t.untyped_storage()._cdata


def by_tensor() -> MutableMapping[torch.Tensor, Any]:
    """A dict whose keys are tensors, each by its identity, as long as they live."""
    mapping: MutableMapping[torch.Tensor, Any] = torch_module("utils.weak").WeakTensorKeyDictionary()
    return mapping


version_of: Callable[[Any], int] = attrgetter("_version")  # how often a tensor's storage was written


def is_view(t: torch.Tensor) -> bool:
    """Whether autograd knows it as a view of another tensor."""
    return t._is_view()


def hint_of(x: Any) -> Any:
    """The number that a symbolic one stands for."""
    return x.node.require_hint() if hasattr(x.node, "require_hint") else x.node.hint


def hooked(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """The names of those with hooks on their gradients."""
    return [
        name for name, t in tensors.items() if t._backward_hooks or getattr(t, "_post_accumulate_grad_hooks", None)
    ]  # fmt: skip


def share_hooks(t: torch.Tensor, other: torch.Tensor) -> None:
    """Another tensor gets the hooks on the gradient of this one."""
    for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if t.is_leaf and getattr(t, hooks, None):
            setattr(other, hooks, getattr(t, hooks))


# ---- modules

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")  # attributes of a module


def dicts_of(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The dicts in which a module holds its own parameters, buffers and children."""
    return module._parameters, module._buffers, module._modules


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether torch.compile made it of another module, its `_orig_mod`."""
    return hasattr(module, "_orig_mod")


# ---- tensors without values, and modes


class FakeErrors(NamedTuple):
    """What tensors without values raise: where a value is asked for, where one decides a result's shape, and for an
    operator whose results PyTorch does not know."""

    value: Any
    shape: Any
    operator: Any


@cache
def fake_errors() -> FakeErrors:
    fake = torch_module("_subclasses.fake_tensor")
    return FakeErrors(
        fake.DataDependentOutputException, fake.DynamicOutputShapeException, fake.UnsupportedOperatorException
    )


def fake_log() -> logging.Logger:
    """Where PyTorch tells what tensors without values have raised."""
    return logging.getLogger("torch._subclasses.fake_tensor")


def fake_class() -> Any:
    """The class of tensors without values."""
    return torch_module("_subclasses.fake_tensor").FakeTensor


def fake_mode(corrected: Callable[[Any, Any, Any], Any] | None = None, **options: bool) -> Any:
    """A mode in which tensors have no values.

    corrected: of an op, its arguments and its result: the result as it is to be; None: it stays
    options:   as FakeTensorMode has them
    """
    base: Any = torch_module("_subclasses.fake_tensor").FakeTensorMode
    if corrected is None:
        return base(**options)
    correct = corrected

    class Corrected(base):
        def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().dispatch(func, types, args, kwargs or {})
            with self:
                return correct(func, args, result)

    return Corrected(**options)


def mode_of(x: Any) -> Any:
    """The mode that a tensor without values was made in; None for anything else."""
    return getattr(x, "fake_mode", None)


def each_op(run: Run) -> Any:
    """A mode in which this function runs each op that reaches a device."""
    base: Any = torch_module("utils._python_dispatch").TorchDispatchMode

    class EachOp(base):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return run(func, args, kwargs or {})

    return EachOp()


def without_modes() -> contextlib.AbstractContextManager[Any]:
    """Within it tensors are real, whatever modes surround it."""
    modes: contextlib.AbstractContextManager[Any] = torch_module("utils._python_dispatch")._disable_current_modes()
    return modes


# ---- graphs


def graph_of(function: Callable[..., Any], fakes: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """The ops that a function runs on these tensors without values, autograd's among them."""
    make = torch_module("fx.experimental.proxy_tensor").make_fx
    graph: torch.fx.GraphModule = make(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*fakes)
    return graph


def tracer() -> Any:
    """What makes the graph; `tracer().graph` is the graph so far. To be called while one is made."""
    proxies = torch_module("fx.experimental.proxy_tensor").get_proxy_mode()
    assert proxies is not None
    return proxies.tracer


def node_of(t: torch.Tensor, tracer: Any) -> torch.fx.Node | None:
    """The node of the graph that gives a tensor; None if there is none."""
    slot = torch_module("fx.experimental.proxy_tensor").get_proxy_slot
    node: torch.fx.Node | None = slot(t, tracer, None, lambda p: p.proxy.node)
    return node


# ---- autograd


def running_node() -> Any:
    """The node whose backward runs; None outside of a backward pass."""
    return torch_module()._C._current_autograd_node()


def number_of(node: Any) -> int:
    """Nodes are numbered as they are made."""
    return int(node._sequence_nr())


def last_number() -> int:
    """The number of the node that was made last."""
    return int(torch_module()._C._autograd._get_sequence_nr()) - 1


def will_run(node: Any) -> bool:
    """Whether the backward pass that runs will run this node. False in torch.autograd.grad for one that adds to
    `.grad`."""
    try:
        return bool(torch_module()._C._will_engine_execute_node(node))
    except RuntimeError:  # torch.autograd.grad
        return False


def after_backward(call: Callable[[], Any]) -> None:
    """Call this when the backward pass that runs has ended."""
    torch_module().autograd.Variable._execution_engine.queue_callback(call)


# ---- the profiler


def profiler_runs() -> bool:
    return bool(torch_module("autograd")._profiler_enabled())


def records_of(profiler: Any) -> Any:
    """The records of a run of torch.profiler.profile, those named "[memory]" among them."""
    return profiler.profiler.kineto_results.events()


# ---- optimizers


def foreach_types() -> list[type]:
    """The types of parameters for which optimizers choose `foreach`: the list itself."""
    types: list[type] = torch_module("optim.optimizer")._foreach_supported_types
    return types


# ---- CUDA's memory


def takes_allocators() -> bool:
    """Whether this PyTorch can have an allocator for CUDA that is not its own: whether it has CUDA."""
    return hasattr(torch_module()._C, "_cuda_customAllocator")


def use_allocator(alloc: int, free: int, record_stream: int, reset: int) -> None:
    """Put these functions, by their addresses, in the place of PyTorch's allocator for CUDA."""
    memory = torch_module("cuda").memory
    allocator = torch_module()._C._cuda_customAllocator(alloc, free)
    allocator.set_record_stream_fn(record_stream)
    allocator.set_reset_fn(reset)
    memory.change_current_allocator(memory._CUDAAllocator(allocator))
