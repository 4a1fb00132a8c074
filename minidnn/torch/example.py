"""What is planned: a module, the arguments of a step, its loss and its optimizer; and the same at another batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from minidnn.errors import InvalidInput
from minidnn.torch.experimental import trees
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Example:
    """A step of training.

    args, kwargs: the arguments; with a loss, the last positional one is the target
    loss:         computes the loss of the module's result and the target; None: the module returns the loss
    optimizer:    that of the step: one that there is, a class, a name of torch.optim, or a function of the parameters
                  that makes one; None: the step ends with the gradients
    source:       where it comes from, in errors
    again:        makes the same at another batch; None: the first dimension of the arguments is changed
    plain:        makes the same with numbers, where this one is on the device "meta"; None: there is no other
    own:          the batch that `again` makes if it is not asked for another; None: that of the arguments
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[..., Any] | None = None
    optimizer: Any = None
    source: str = ""
    again: Callable[[int], Example] | None = None
    plain: Callable[[], Example] | None = None
    own: int | None = None

    @classmethod
    def of(cls, module: Any, args: Any, loss: Any = None, optimizer: Any = None, source: str = "") -> Example:
        """The example of values as people give them. Raises InvalidInput, which says what was expected."""
        source = source or type(module).__name__
        if not isinstance(module, torch_module().nn.Module):
            raise InvalidInput(f"{source}: module: expected a torch.nn.Module, got {type(module).__name__}")
        if loss is not None and not callable(loss):
            raise InvalidInput(
                f"{source}: loss: expected a function of the module's result and the target, or None if the module "
                f"returns the loss, got {type(loss).__name__}"
            )
        if isinstance(args, Mapping):
            listed, named = (), dict(args)
        else:
            listed, named = tuple(args) if isinstance(args, list | tuple) else (args,), {}
        if loss is not None and len(listed) < 2:
            got = "arguments by keyword" if named else f"{len(listed)}"
            raise InvalidInput(
                f"{source}: with a loss, args are the module's inputs and behind them the target, two or more; got "
                f"{got}"
            )
        return cls(module, listed, named, loss, optimizer, source)

    @property
    def name(self) -> str:
        return type(self.module).__name__

    @property
    def batch(self) -> int | None:
        """The first dimension of the arguments' tensors; None if they share none, and nobody says what it is."""
        if self.own is not None:
            return self.own
        first = {int(t.shape[0]) if t.dim() else 0 for t in self._tensors()}
        return first.pop() if len(first) == 1 and 0 not in first else None

    def _tensors(self) -> list[torch.Tensor]:
        leaves = trees().tree_leaves((self.args, dict(self.kwargs)))
        return [x for x in leaves if isinstance(x, torch_module().Tensor)]

    def at_batch(self, batch: int) -> Example:
        """The same at another batch. Raises InvalidInput if there is none."""
        if batch == self.batch:
            return self
        if self.again is not None:
            return self.again(batch)
        if self.batch is None:
            shapes = ", ".join("x".join(map(str, t.shape)) or "a number" for t in self._tensors()) or "none is a tensor"
            raise InvalidInput(
                f"{self.source}: the batch cannot be changed, since the arguments share no first dimension ({shapes}); "
                "a function that makes them may take it: def make(batch=8)"
            )
        args, kwargs = trees().tree_map(lambda x: _resized(x, batch), (self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs)


def _resized(x: Any, batch: int) -> Any:
    """A tensor of another first dimension, without values; anything else as it is."""
    torch = torch_module()
    if not isinstance(x, torch.Tensor):
        return x
    result = torch.empty((batch, *x.shape[1:]), dtype=x.dtype, device="meta")
    last = x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
    return result.contiguous(memory_format=torch.channels_last) if last else result
