"""The run of a planned step, up to its loss and behind it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from minidnn.errors import InvalidInput
from minidnn.torch.calls import Sum
from minidnn.torch.code import Steps
from minidnn.torch.experimental import after_backward, version_of, will_run
from minidnn.torch.installed import torch_module
from minidnn.torch.modes import autocast, no_autocast
from minidnn.torch.parameters import Parameters
from minidnn.torch.planned import Planned

if TYPE_CHECKING:
    import torch


@dataclass(eq=False)
class Running:
    """A step that has begun.

    tensors: those of the arguments
    ended:   called when its backward pass begins, of which there is one
    """

    planned: Planned
    tensors: Sequence[Any]
    parameters: Parameters
    ended: Callable[[], None]
    state: str = "open"
    steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        self.steps = self.planned.begin(self.tensors)

    @property
    def names(self) -> tuple[str, ...]:
        return self.planned.capture.traced.trained

    @property
    def trained(self) -> list[torch.Tensor]:
        return [self.parameters.by_name[name] for name in self.names]

    def loss(self) -> torch.Tensor:
        with _quiet():
            result: torch.Tensor = next(self.steps)
        self.read = [(name, t, *_state(t)) for name, t in self.planned.read_later(self.tensors)]
        return result

    def results(self) -> list[torch.Tensor]:
        with _quiet():
            return _end(self.steps, None)

    def finish(self, tangent: torch.Tensor) -> list[torch.Tensor | None]:
        """Run the backward pass. The gradients of the parameters in order: None for those that are in `.grad` already,
        or that the loss does not depend on."""
        self._check()
        capture = self.planned.capture
        sums = {name: self._sum(name) for name in self.planned.added}
        self.state = "been used by a backward pass already"
        self.ended()
        with _quiet():
            gradients = _end(self.steps, (tangent, *sums.values()))
        for name, total in sums.items():
            self.parameters.by_name[name].grad = total.tensor
        new = [n for n, v in capture.gradients.items() if v.tensor not in capture.sources]
        given = dict(zip(new, gradients, strict=True))
        self.parameters.expected = {
            name: (given[name].data_ptr(), version_of(given[name])) if name in given else None
            for name in capture.gradients
        }  # fmt: skip
        after_backward(self.parameters.expected.clear)
        return [given.get(name) for name in self.names]

    def _check(self) -> None:
        """Raise InvalidInput where the backward pass would not be the one that eager mode runs."""
        torch = torch_module()
        if self.state != "open":
            raise InvalidInput(
                f"this loss of {type(self.parameters.module).__name__} has {self.state}: call loss.backward() once, "
                "before the next step begins; a planned step keeps the tensors of one step alone"
            )
        if torch.is_grad_enabled():
            raise InvalidInput(
                "loss.backward(create_graph=True): gradients of gradients are not planned: let the module or loss= "
                "compute them, by torch.autograd.grad(..., create_graph=True)"
            )
        if autocast():
            raise InvalidInput("loss.backward() within torch.autocast is not planned: end the autocast block before it")
        for name, t, version, place in self.read:
            if _state(t) != (version, place):
                raise InvalidInput(
                    f"{name} has changed since the step began, and its backward pass reads it: change it after "
                    "loss.backward()"
                )
        for name in self.planned.added:
            if not self.parameters.by_name[name].requires_grad or not will_run(self.parameters.nodes[name]):
                raise InvalidInput(
                    f"{name} has a gradient that this step was planned to add to, and this backward pass does not: "
                    "call loss.backward() for all parameters, or set gradients to None before the step"
                )

    def _sum(self, name: str) -> Sum:
        """What a gradient is added to, and whether it has a value: it has none if it was set to None meanwhile."""
        torch = torch_module()
        there, layout = self.parameters.by_name[name].grad, self.planned.added[name]
        if there is None:
            parameter = self.parameters.by_name[name]
            new = torch.empty_strided(layout.size, layout.stride, dtype=layout.dtype, device=parameter.device)
            return Sum(new, there=False)
        if there.layout != torch.strided or there.dtype != layout.dtype:
            raise InvalidInput(f"{name}.grad is of {there.dtype} and of layout {there.layout}: set it to None")
        return Sum(there, there=True)

    def close(self) -> None:
        if self.state == "open":
            self.state = "been left, since another step has begun"
            self.steps.close()


def _state(t: torch.Tensor) -> tuple[int, int]:
    """What another value of a tensor shows in."""
    return version_of(t), t.data_ptr()


def _end(steps: Steps, sent: Any) -> list[torch.Tensor]:
    try:
        steps.send(sent)
    except StopIteration as end:
        result: list[torch.Tensor] = end.value
        return result
    raise AssertionError("a step goes on behind its end")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without autograd, and without autocast, whose casts are ops of the plan."""
    with torch_module().no_grad(), no_autocast():
        yield


@cache
def planned_step() -> Any:
    """The function of autograd that stands for a whole step."""
    torch = torch_module()

    class PlannedStep(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, running: Running, *parameters: Any) -> Any:
            ctx.running = running
            return running.loss()

        @staticmethod
        def backward(ctx: Any, tangent: Any) -> Any:
            return None, *ctx.running.finish(tangent)

    return PlannedStep
