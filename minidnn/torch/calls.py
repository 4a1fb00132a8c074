"""The calls of PyTorch that an op stands for, and the tensors among their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from minidnn.program import Tensor
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch


class Layout(NamedTuple):
    """How a tensor lies in its storage, in elements of `dtype`."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @classmethod
    def of(cls, t: torch.Tensor) -> Layout:
        return cls(tuple(t.shape), tuple(t.stride()), int(t.storage_offset()), t.dtype)


class View(NamedTuple):
    """An argument of a call: a tensor of the Program, seen so."""

    tensor: Tensor
    layout: Layout


@dataclass(frozen=True, eq=False)
class Call:
    """A call of PyTorch.

    args, kwargs: with a View for each tensor
    makes:        (number of the result, tensor), or (None, tensor) if the call returns one alone
    changes:      the arguments' tensors that it changes in place, and the versions that they become
    once:         numbers of arguments that a re-run replaces by None
    random:       whether it draws from a generator
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    makes: tuple[tuple[int | None, Tensor], ...] = ()
    changes: tuple[tuple[Tensor, Tensor], ...] = ()
    once: tuple[int, ...] = ()
    random: bool = False


class Sum(NamedTuple):
    """A parameter's `.grad`, and whether it has a value to add to."""

    tensor: torch.Tensor
    there: bool


def copying(view: View, layout: Layout, t: Tensor) -> Call:
    """A call that copies a view into a tensor of this layout."""
    return Call(_copied, (view, layout), {}, ((None, t),))


def adding(total: View, view: View) -> Call:
    """A call that adds a view to a gradient that is there (Sum)."""
    return Call(_added, (total, view), {}, changes=((total.tensor, total.tensor),))


def _added(total: Sum, gradient: torch.Tensor) -> None:
    if total.there:
        total.tensor.add_(gradient)
    else:
        total.tensor.copy_(gradient)


def _copied(source: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The values of a gradient, laid as the parameter is."""
    torch = torch_module()
    return torch.empty_strided(layout.size, layout.stride, dtype=layout.dtype, device=source.device).copy_(source)


def mapped(args: Any, function: Callable[[View], View]) -> Any:
    """Arguments with another view in place of each."""
    if isinstance(args, View):
        return function(args)
    if isinstance(args, Mapping):
        return {key: mapped(x, function) for key, x in args.items()}
    if isinstance(args, list | tuple) and not isinstance(args, Layout):
        return type(args)(mapped(x, function) for x in args)
    return args


def views_of(args: Any) -> list[View]:
    """The tensors among arguments, at any depth, in order."""
    if isinstance(args, View):
        return [args]
    if isinstance(args, Mapping):
        args = args.values()
    elif not isinstance(args, list | tuple) or isinstance(args, Layout):
        return []
    return [view for x in args for view in views_of(x)]


def signature(call: Call) -> str:
    """The call as text: the op, and all arguments that are no tensors. Two calls of one text cost the same if their
    tensors are as large."""

    def text(x: Any) -> str:
        if isinstance(x, View):
            return f"{x.layout.dtype}{list(x.layout.size)}{list(x.layout.stride)}"
        if isinstance(x, list | tuple) and not isinstance(x, Layout):
            return f"[{', '.join(map(text, x))}]"
        return str(x)

    given = [*map(text, call.args), *(f"{name}={text(x)}" for name, x in call.kwargs.items())]
    return f"{getattr(call.target, '__name__', call.target)}({', '.join(given)})"
