"""Modules and arguments that no step here takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minidnn.errors import InvalidInput
from minidnn.torch.arguments import Arguments, is_plain
from minidnn.torch.experimental import is_compiled
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch


def check_arguments(module: torch.nn.Module, arguments: Arguments) -> None:
    """Raise InvalidInput for tensors that no step here takes, the module's own or among the arguments."""
    torch = torch_module()
    own = [*module.named_parameters(), *module.named_buffers()]
    for name, t in (*own, *((f"argument {i + 1}", t) for i, t in enumerate(arguments.tensors))):
        if t.layout != torch.strided or t.is_quantized or type(t) not in (torch.Tensor, torch.nn.Parameter):
            what = f"{type(t).__name__} of layout {t.layout}"
            raise InvalidInput(f"{name} is a {what}: only plain strided tensors are planned")
        if t.is_complex():
            raise InvalidInput(f"{name} is complex ({t.dtype}): only real tensors are planned; view it as real")
    for x in arguments.leaves:
        if not isinstance(x, torch.Tensor) and not is_plain(x):
            raise InvalidInput(
                f"an argument is a {type(x).__name__}, which may hold tensors that a plan does not see: pass tensors "
                "and plain values, in tuples, lists and dicts (before model.generate() of `transformers`, call the "
                "step's remove())"
            )
    for i, t in enumerate(arguments.tensors):
        if t.requires_grad:
            raise InvalidInput(
                f"argument {i + 1} requires a gradient, but a step computes those of parameters only: pass "
                "x.detach(), or make it a parameter of the module"
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


def _foreign(m: torch.nn.Module) -> str:
    """What to do instead of a module that is run by something else than Python; empty for all others."""
    torch = torch_module()
    if isinstance(m, torch.jit.ScriptModule):
        return "give minidnn the module as it was before torch.jit"
    if is_compiled(m):
        return "give minidnn the module itself (its _orig_mod), without torch.compile"
    if isinstance(m, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        return "give minidnn the module in it (its .module)"
    return ""
