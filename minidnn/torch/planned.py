"""A plan of a step, and the functions that run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from minidnn.memory.schedule import Compute, Schedule
from minidnn.program import Tensor
from minidnn.torch.addresses.stepping import Stepping
from minidnn.torch.calls import Layout
from minidnn.torch.capture import RESULT, Capture
from minidnn.torch.code import Steps, owned, written
from minidnn.torch.cuda_graph import Graphed
from minidnn.torch.devices import repeated
from minidnn.torch.parameters import Parameters
from minidnn.torch.runtime import Runtime

if TYPE_CHECKING:
    import torch


@dataclass(eq=False)
class Planned:
    """A plan of a step, and the functions that run it."""

    capture: Capture
    schedule: Schedule
    runtime: Runtime
    values: tuple[Callable[[Sequence[Any]], Any], ...]
    later: tuple[tuple[str, Callable[[Sequence[Any]], Any]], ...]
    added: Mapping[str, Layout]  # the parameters whose gradients are added to those that are there
    graph: bool = False  # whether CUDA graphs were asked for
    checked: bool = False  # whether results have been compared with what was predicted of them
    _repeated: Callable[..., Steps] | None = None

    @classmethod
    def of(cls, capture: Capture, schedule: Schedule, runtime: Runtime, parameters: Parameters, graph: bool) -> Planned:
        """A plan of a step of the module that has these parameters."""
        added = {s.name: capture.layouts[t] for t, s in capture.sources.items() if s.what == "gradient"}
        value = partial(_value, capture, parameters)
        later = tuple((capture.sources[t].name, value(t)) for t in _read_later(capture, schedule))
        values = tuple(value(t) for t in owned(capture))
        return cls(capture, schedule, runtime, values, later, added, graph)

    def begin(self, tensors: Sequence[Any]) -> Steps:
        """A step on these tensors of the arguments. The first one checks the layout of each result."""
        given = [value(tensors) for value in self.values]
        if not self.checked:
            self.checked = True
            return written(self.capture, self.schedule, self.runtime, checked=True)(*given)
        return self.repeated(*given)

    @property
    def repeated(self) -> Callable[..., Steps]:
        """The function of all steps but the first."""
        if self._repeated is None:
            self._repeated = repeated(self.capture, self.schedule, self.runtime, self.graph)
        return self._repeated

    @property
    def why_no_graph(self) -> str:
        """Why no CUDA graph replays the step; "" if one does, or will after the first steps."""
        if not self.graph:
            return "cuda_graph=True was not given"
        if isinstance(self.repeated, Graphed):
            return self.repeated.reason
        if isinstance(self.repeated, Stepping):
            return "planned addresses take the place of the allocator that graphs need"
        return "the module is on the CPU"

    @property
    def reserved(self) -> int | None:
        """Bytes that a step reserves on a GPU, beside what the caller owns when it begins. With planned addresses they
        are known from the third step on; without, PyTorch's caching allocator decides them: None."""
        return self.repeated.reserved if isinstance(self.repeated, Stepping) else None

    def read_later(self, tensors: Sequence[Any]) -> list[tuple[str, torch.Tensor]]:
        """The caller's tensors that the backward pass reads, or an op that runs again in it, by their names."""
        return [(name, value(tensors)) for name, value in self.later]

    @property
    def peak(self) -> int:
        """Bytes on the device at most, those that the caller owns included."""
        return self.schedule.live_peak


def _read_later(capture: Capture, schedule: Schedule) -> list[Tensor]:
    """What the caller owns, and what ops behind the loss read of it."""
    computes = [x for x in schedule.instructions if isinstance(x, Compute)]
    at = next((i for i, x in enumerate(computes) if x.op.name == RESULT), len(computes))
    read = dict.fromkeys(s.tensor for x in computes[at:] for s in x.reads)
    named = [t for t in read if t in capture.sources]
    return [t for t in named if capture.sources[t].what in ("parameter", "buffer", "input", "constant")]


def _value(capture: Capture, parameters: Parameters, t: Tensor) -> Callable[[Sequence[Any]], Any]:
    """What gives the value of a tensor that the caller owns, when a step begins."""
    source = capture.sources[t]
    if source.what == "input":
        index = source.index
        return lambda tensors: tensors[index]
    if source.what == "constant":
        value = source.value
        return lambda tensors: value
    what, name = source.what, source.name
    return lambda tensors: parameters.value(what, name)
