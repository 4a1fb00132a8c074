"""A module's parameters and buffers from step to step, and the gradients that arrive at them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from minidnn.errors import InvalidInput, few
from minidnn.torch.experimental import dicts_of, hooked, version_of
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    import torch


class Parameters:
    """What a module holds, as it was at the last `refresh`.

    by_name:  the parameters
    own:      parameters and buffers
    nodes:    of autograd, which add to `.grad`: of the parameters that want a gradient, by name
    expected: while a backward pass runs: what each parameter's gradient must be
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.expected: dict[str, Any] = {}
        self._watched: dict[str, tuple[Any, Any]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look again at what the module holds."""
        torch = torch_module()
        self._held: dict[tuple[str, str], tuple[Any, str]] = {}
        for path, m in self.module.named_modules():
            for what, held in zip(("parameter", "buffer"), dicts_of(m)[:2], strict=True):
                self._held |= {(what, f"{path}.{key}" if path else key): (held, key) for key in held}
        self.by_name = dict(self.module.named_parameters())
        self.own = (*self.by_name.values(), *self.module.buffers())
        self._memory = {t.untyped_storage().data_ptr() for t in self.own if t.layout == torch.strided} - {0}
        self.nodes = {name: _accumulating(p) for name, p in self.by_name.items() if p.requires_grad}
        for name, node in self.nodes.items():
            if name not in self._watched or self._watched[name][0] is not node:
                if name in self._watched:
                    self._watched[name][1].remove()
                self._watched[name] = node, node.register_prehook(partial(self._arrives, name))

    @property
    def complete(self) -> bool:
        """Whether all that want a gradient now did so at the last `refresh`."""
        return all(not p.requires_grad or name in self.nodes for name, p in self.by_name.items())

    def value(self, what: str, name: str) -> Any:
        """The tensor that the module has now. what: whether a "parameter" or a "buffer" has this name"""
        held, key = self._held[what, name]
        return held[key]

    def aliases(self, t: torch.Tensor) -> int | None:
        """Where an argument lies in memory that the module has, too."""
        torch = torch_module()
        shared = t.layout == torch.strided and t.untyped_storage().data_ptr() in self._memory
        return int(t.storage_offset()) if shared else None

    def check(self) -> None:
        """Raise InvalidInput for what a planned step does not do."""
        torch = torch_module()
        if names := hooked(self.by_name):
            raise InvalidInput(
                f"{few(names)}: hooks on gradients are not called by a planned step: remove them, and look at `.grad` "
                "after loss.backward()"
            )
        if torch.is_anomaly_enabled():
            raise InvalidInput("torch.autograd.set_detect_anomaly(True): a planned step looks for no NaN: turn it off")

    def _arrives(self, name: str, gradients: Sequence[Any]) -> None:
        """A gradient of a parameter arrives where it is added to `.grad`. Raises InvalidInput if it is not the plan's
        alone."""
        if name not in self.expected:
            return
        expected, (arrived,) = self.expected.pop(name), gradients
        got = None if arrived is None else (arrived.data_ptr(), version_of(arrived))
        if got != expected:
            raise InvalidInput(
                f"{name} is used outside of the planned step, too, in the loss that backward() began from: let the "
                "module or loss= compute the whole loss, since gradients are added in another order otherwise"
            )


def _accumulating(p: torch.Tensor) -> Any:
    """The node of autograd that adds to a parameter's gradient."""
    return torch_module("autograd.graph").get_gradient_edge(p).node
