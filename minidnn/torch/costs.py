"""The costs of a module's ops: on a GPU by its profile, and on a CPU by the rates that all CPUs share (docs/costs.md).

What is assumed, since nothing is measured:
  * A product reaches the part of the peak that the profile has for minidnn's kernels of its family: `gemm`, and of
    convolutions `implicit_gemm`. Recurrent layers count as `gemm`, and attention does in float32. In 16 bits it is
    FlashAttention-2 (costs/reach.py).
  * Any other op is bound by memory. It reads and writes each element that its views show once.
  * A call is one launch of a kernel.
  * TF32 is used where PyTorch would use it: in convolutions, and in other products if
    torch.set_float32_matmul_precision allows it. :tf32 or :fp32 behind the GPU's name overrule that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minidnn.costs import BLOCKING, CPU, GPU, Choice, Costs, remembering
from minidnn.costs.profiles import WAYS, parted
from minidnn.costs.reach import TORCH_ATTENTION
from minidnn.formats import HALF
from minidnn.jobs.gpus import gpu
from minidnn.memory.execution.host import physical_memory
from minidnn.program import PRODUCTS, Algorithm, Op
from minidnn.torch.calls import views_of
from minidnn.torch.installed import torch_module

if TYPE_CHECKING:
    from minidnn.torch.calls import Call, Layout
    from minidnn.torch.capture import Capture


@dataclass(frozen=True)
class Work:
    """What an op takes of any device.

    nbytes:   bytes that it reads and writes
    format:   the number format of its operands, if it is a product
    outputs:  numbers that the product makes
    launches: kernels
    scratch:  bytes beside its results
    """

    flops: int
    nbytes: int
    format: str | None
    launches: int
    scratch: int = 0
    outputs: int = 0


def works(capture: Capture) -> dict[Op, Work]:
    """The work of each op of a capture."""
    return {op: work(op, capture.calls[op.name], capture.scratch[op.name]) for op in capture.program.ops}


def work(op: Op, calls: Sequence[Call], scratch: int = 0) -> Work:
    """The work of an op that makes these calls; none of one that makes no call, since the caller's code does."""
    layouts = [view.layout for call in calls for view in views_of((call.args, call.kwargs))]
    made = sum(t.nbytes for t in op.writes)
    read = made if op.kind == "embed.embedding" else sum(map(_bytes, layouts))  # it reads as many rows as it makes
    if not calls:
        return Work(0, 0, None, 0, scratch)
    operand = _operand(layouts) if op.family in PRODUCTS else None
    if operand is None:
        return Work(op.flops, read + made, None, len(calls), scratch)
    format = str(operand.dtype).removeprefix("torch.")
    return Work(op.flops, read + made, format, len(calls), scratch, made // int(operand.dtype.itemsize))


def _bytes(layout: Layout) -> int:
    """Bytes of the elements that a view shows, each once: a dimension that is expanded has one."""
    count = 1
    for size, stride in zip(layout.size, layout.stride, strict=True):
        count *= size if stride else 1
    return count * int(layout.dtype.itemsize)


def _operand(layouts: Iterable[Layout]) -> Layout | None:
    """The first operand that has floating-point numbers."""
    return next((layout for layout in layouts if layout.dtype.is_floating_point), None)


# ---- devices


def on_gpu(name: str, work: Callable[[Op], Work]) -> Costs:
    """The costs of a GPU that has a profile. name: as `gpus.named` gives it"""
    card = gpu(name)
    of_family = {family: card_for(name, family) for family in PRODUCTS}

    def choose(op: Op) -> tuple[Choice, ...]:
        own, one = work(op), of_family.get(op.family, card)
        efficiency = one.implicit_gemm.value if op.family == "convolution" else one.gemm.value
        algorithm, rate = Algorithm("default", own.scratch), one.rate(own.format, efficiency)
        if op.family == "attention" and own.format in HALF:
            rate = one.own_rate(own.format, TORCH_ATTENTION, efficiency)
        rate *= one.busy(own.flops, own.outputs)
        return (one.roofline(algorithm, own.flops, rate, own.nbytes, own.launches),)

    return card.costs(name, choose)


def card_for(name: str, family: str) -> GPU:
    """The GPU with TF32 as PyTorch has it for products of this family, unless the name says otherwise."""
    card = gpu(name)
    return card if parted(name)[1] in WAYS else replace(card, tf32=_tf32(family))


def _tf32(family: str) -> bool:
    backends = torch_module().backends
    allowed = backends.cudnn if family in ("convolution", "recurrent") else backends.cuda.matmul
    return bool(allowed.allow_tf32)


def here(capture: Capture) -> Costs:
    """The costs of a capture's ops on this machine's CPU."""
    return on_cpu(works(capture).__getitem__)


def on_cpu(work: Callable[[Op], Work]) -> Costs:
    """The costs of this machine's CPU: the rates of one core of any, and copies within its memory."""

    def choose(op: Op) -> tuple[Choice, ...]:
        own = work(op)
        seconds = max(own.flops / CPU.flops, own.nbytes / CPU.bandwidth) + own.launches * CPU.launch
        return (Choice(Algorithm("default", own.scratch), seconds if own.launches else 0.0),)

    return Costs(
        "cpu", physical_memory(), CPU.copy, CPU.copy, remembering(choose), CPU.launch, origin="estimated",
        drag=BLOCKING,  # copies and ops run one after the other (runtime.OnCPU)
    )  # fmt: skip
