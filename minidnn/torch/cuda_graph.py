"""A step as two CUDA graphs: one up to the loss, one for the rest. Python then does nothing between the two but wait.

The first steps run without, so that libraries have taken what they take at first use. Then a step is captured, copies
included, and each later one replays it. A capture repeats addresses. So the batch is copied to places of its own, which
no plan counts, and the gradients of a step lie where those of the step before lay: whoever keeps one copies it. Where
a parameter or a buffer lies elsewhere than before, the step is captured again. A gradient to add to that does so is
copied there and back.

Random numbers are those of eager mode: PyTorch's graphs take the generator's offset at each replay. A re-run of a
random op sets the offset back, which a capture cannot do.

No GPU has run this yet: tests run it on an imitation (tests/torch/imitation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from minidnn.memory.schedule import Compute, Fetch, Schedule, Stash
from minidnn.torch.calls import Sum
from minidnn.torch.capture import RESULT, Capture
from minidnn.torch.cuda_runtime import OnCUDA

Steps = Generator[Any, Any, Any]
FIRST = 1  # steps that run without a graph
TIMES = 4  # captures at most


def why_not(capture: Capture, schedule: Schedule) -> str:
    """Why the step cannot be captured; "" if it can."""
    if not capture.traced.training:
        return "a forward pass alone is not captured"
    if any(isinstance(x, Stash | Fetch) for x in schedule.instructions):
        return "the host moves tensors between the ring and its memory or a disk: do without host_ring and disk"
    for x in schedule.instructions:
        if isinstance(x, Compute) and x.run and any(call.random for call in capture.calls.get(x.op.name, ())):
            return f"{x.op.name} draws random numbers and runs again: give a budget that lets it run once"
    return ""


@dataclass(eq=False)
class Graphed:
    """A step's function, which is captured after some calls: it is called as the function is.

    make:   makes the function for a runtime
    reason: why it is not captured; "" while it is, or will be
    """

    capture: Capture
    schedule: Schedule
    runtime: OnCUDA
    make: Callable[[OnCUDA], Callable[..., Steps]]
    inputs: Sequence[bool]  # of the function's arguments: those of the batch
    reason: str = ""
    calls: int = 0
    captures: int = 0
    _function: Callable[..., Steps] | None = None
    _where: tuple[int, ...] = ()
    _captured: Captured | None = field(default=None, repr=False)

    def __call__(self, *given: Any) -> Steps:
        self.calls += 1
        if not self.reason and self.calls > FIRST:
            where = tuple(t.data_ptr() for t, batch in zip(given, self.inputs, strict=True) if not batch)
            if self._captured is not None and where == self._where:
                return self._captured.replayed(given)
            if self.captures < TIMES:
                self._capture(given)
                self._where = where
                assert self._captured is not None
                return self._captured.replayed(given)
            self._captured, self.reason = None, "parameters or buffers lie elsewhere in each step"
        if self._function is None:
            self._function = self.make(self.runtime)
        return self._function(*given)

    def _capture(self, given: Sequence[Any]) -> None:
        self._captured = None  # its memory first
        self.captures += 1
        at = next(i for i, x in enumerate(self.schedule.instructions) if isinstance(x, Compute) and x.op.name == RESULT)
        runtime = self.runtime.for_graph(at)
        self._captured = Captured(runtime, self.make(runtime), given, self.inputs)


class Captured:
    """The two graphs of a step, and the places that they repeat. The second is captured when its first run begins: the
    gradients to which it adds are not known before."""

    def __init__(
        self, runtime: OnCUDA, function: Callable[..., Steps], given: Sequence[Any], inputs: Sequence[bool]
    ) -> None:
        self.runtime, cuda = runtime, runtime.cuda
        self.batch = [t.clone() if batch else None for t, batch in zip(given, inputs, strict=True)]
        self.steps = function(*(t if own is None else own for t, own in zip(given, self.batch, strict=True)))
        self.pool = cuda.graph_pool_handle()
        self.forward: Any = cuda.CUDAGraph()
        self.backward: Any = None
        with cuda.graph(self.forward, pool=self.pool):
            self.loss = next(self.steps)
            runtime.end()

    def _capture(self, sent: Sequence[Any]) -> None:
        """Capture the second graph, which adds to these gradients."""
        cuda = self.runtime.cuda
        self.tangent, self.sums = sent[0].clone(), [Sum(total.tensor, there=True) for total in sent[1:]]
        self.backward = cuda.CUDAGraph()
        with cuda.graph(self.backward, pool=self.pool):
            self.runtime.begin()
            self.gradients = _sent(self.steps, (self.tangent, *self.sums))

    def replayed(self, given: Sequence[Any]) -> Steps:
        for own, t in zip(self.batch, given, strict=True):
            if own is not None:
                own.copy_(t, non_blocking=True)
        self.forward.replay()
        sent = yield self.loss.clone()
        if self.backward is None:
            self._capture(sent)
        self.tangent.copy_(sent[0])
        for own, total in zip(self.sums, sent[1:], strict=True):
            if not total.there:
                own.tensor.fill_(-0.0)  # to which a sum is the other number, whatever it is
            elif own.tensor.data_ptr() != total.tensor.data_ptr():
                own.tensor.copy_(total.tensor)
        self.backward.replay()
        for own, total in zip(self.sums, sent[1:], strict=True):
            if own.tensor.data_ptr() != total.tensor.data_ptr():
                total.tensor.copy_(own.tensor)
        return [g.detach() for g in self.gradients]  # new ones, for autograd copies what somebody else holds


def _sent(steps: Steps, sent: Any) -> Any:
    try:
        steps.send(sent)
    except StopIteration as end:
        return end.value
    raise AssertionError("a step goes on behind its end")
