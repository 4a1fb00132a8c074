"""A module's steps as programs, one for each batch that is asked for, and what their ops take. Nothing of it runs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from minidnn.costs import Costs
from minidnn.errors import InvalidInput
from minidnn.jobs.job import warn
from minidnn.program import Op, Role, Tensor
from minidnn.torch import costs as seconds
from minidnn.torch.arguments import Arguments
from minidnn.torch.as_cuda import as_cuda
from minidnn.torch.beside import Beside, is_later
from minidnn.torch.capture import GRADIENTS, Capture
from minidnn.torch.capturing import captured
from minidnn.torch.costs import Work
from minidnn.torch.example import Example
from minidnn.torch.installed import torch_module
from minidnn.torch.making import NUMBERS
from minidnn.torch.optimizer import OptimizerBytes, bytes_of
from minidnn.torch.tracing import trace

LIBRARY = "cublas.workspace"


@dataclass(eq=False)
class Traces:
    """A module's captures, by batch, and the work of all their ops.

    gpu:     the GPU whose ops and scratch it has; None: the CPU's
    numbers: whether it does not do without: on the device "meta" it could not be traced
    """

    example: Example
    gpu: str | None
    numbers: bool = False
    captures: dict[int | None, Capture] = field(default_factory=dict)
    works: dict[Op, Work] = field(default_factory=dict)
    by_gpu: dict[str | None, Costs] = field(default_factory=dict)
    others: dict[bool, Traces] = field(default_factory=dict)  # of GPUs whose libraries take other bytes

    def at(self, batch: int | None) -> Capture:
        """The capture at this batch; None: the example's own. Raises InvalidInput."""
        batch = self.example.batch if batch is None else batch
        if batch not in self.captures:
            with _named(self.example.source):
                try:
                    self.captures[batch] = self._captured(self.example_at(batch))
                except InvalidInput:
                    if self.numbers or self.example.plain is None:
                        raise
                    self.numbers = True
                    self.captures[batch] = self._captured(self.example_at(batch))
                    warn(NUMBERS.format(self.example.source))
        return self.captures[batch]

    def example_at(self, batch: int | None) -> Example:
        """The example at this batch; with numbers, if it does not do without."""
        own = self.example
        if self.numbers and own.plain is not None:
            self.example = own = replace(own.plain(), again=own.again, own=own.own)
        result = own if batch is None else own.at_batch(batch)
        return result if not self.numbers or result.plain is None else result.plain()

    def _captured(self, example: Example) -> Capture:
        own = self.optimizer
        with self.ops() as device, _silent():
            graph = trace(
                example.module, Arguments.of(example.args, example.kwargs), example.loss, device=device, values=False
            )
        result = captured(graph, self.beside.of(graph), state=0 if own is None else own.state)
        self.works |= seconds.works(result)
        if own is not None:  # parameters and state are read and written, gradients read
            last = next(op for op in result.program.ops if op.name == GRADIENTS)
            held = sum(t.nbytes for t in result.program.persistent if t.role is Role.PARAM) + own.state
            self.works[last] = Work(0, last.nbytes + 2 * held, None, 1, own.scratch)
        return _with_lasting(result, self.beside.lasting)

    @contextlib.contextmanager
    def ops(self) -> Iterator[str]:
        """The device to trace for, within which PyTorch's functions take its ops."""
        if self.gpu is not None and torch_module().cuda.is_available():
            yield "cuda"
            return
        with contextlib.nullcontext() if self.gpu is None else as_cuda():
            yield "cpu"

    @cached_property
    def beside(self) -> Beside:
        """What ops take beside their results."""
        return Beside(self.gpu)

    @cached_property
    def optimizer(self) -> OptimizerBytes | None:
        """The bytes of the optimizer; None: there is none."""
        own = self.example.optimizer
        with _named(self.example.source):
            return None if own is None else bytes_of(own, self.example.module, "cpu" if self.gpu is None else "cuda")

    def on(self, gpu: str) -> Traces:
        """The captures for this GPU: these, unless its libraries take other bytes."""
        later = is_later(gpu)
        if later == is_later(self.gpu):
            return self
        if later not in self.others:
            self.others[later] = Traces(self.example, gpu, self.numbers)
        return self.others[later]

    def costs(self, gpu: str | None) -> Costs:
        """The costs of all ops of all captures, on a GPU; None: on this machine's CPU."""
        if gpu not in self.by_gpu:
            work = self.works.__getitem__
            self.by_gpu[gpu] = seconds.on_cpu(work) if gpu is None else seconds.on_gpu(gpu, work)
        return self.by_gpu[gpu]


def _with_lasting(capture: Capture, nbytes: int) -> Capture:
    """The capture with so many bytes that a library keeps on the device."""
    if not nbytes:
        return capture
    own, program = Tensor(LIBRARY, (nbytes,), "uint8", Role.WORKSPACE), capture.program
    persistent, held = (*program.persistent, own), (*program.held, own)
    return replace(capture, program=replace(program, persistent=persistent, held=held))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without the log of what fails: the error says it."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _named(source: str) -> Iterator[None]:
    """Let errors name the file that the module comes from, if there is one."""
    try:
        yield
    except InvalidInput as error:
        if ":" in source and source.rpartition(":")[0] not in str(error):
            error.args = (f"{source}: {error.args[0]}", *error.args[1:])
        raise
