"""Measures the numbers of a GPU's profile (costs/roofline.py) on the card at hand: all of them, by one command.

What the driver says of the card, and the peaks counted from that, stay (backends/cuda/at_hand.py). Each of the other
numbers is what makes the roofline right for one large op, or one small one. So on this card the roofline is as wrong
elsewhere as its form is, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from minidnn.costs import GPU
from minidnn.costs.roofline import TRANSFORMED, Number
from minidnn.errors import InvalidInput
from minidnn.layers.convolution import ConvolutionAttrs
from minidnn.measuring import bench
from minidnn.measuring.link import Link, link
from minidnn.memory.execution.device import Device, KernelFailed
from minidnn.program import Algorithm, Op, Pass, Tensor

FORMATS = ("float32", "float16", "bfloat16")
QUICKER = 1.05  # what is not so many times as quick on tensor cores may not have used them
Timed = Callable[[Device, bench.Ops], Iterator[tuple[str, float | KernelFailed]]]


@dataclass(frozen=True)
class Probes:
    """The sizes of what is timed. These fill any card of today; tests take small ones."""

    summed: int = 1 << 26  # values of each summand: far more than any L2 holds
    large: tuple[int, int, int] = (8192, 8192, 4096)  # rows, columns and the length of the sums of a product
    small: tuple[int, int, int] = (512, 512, 1024)  # fewer blocks than multiprocessors; sums too short to be split
    long: tuple[int, int, int] = (128, 128, 1 << 15)  # one block, but for its sums
    images: tuple[int, int, int] = (64, 256, 56)  # images, channels and pixels a side, of a convolution of 3x3

    def sum(self, count: int | None = None) -> Op:
        a, b, total = (Tensor(name, (count or self.summed,)) for name in ("a", "b", "total"))
        return Op("sum", "gradient.add", "card", Pass.BACKWARD, (a, b), (total,), flops=total.size)

    def convolution(self, format: str = "float32") -> Op:
        n, c, side = self.images
        x, y = (Tensor(name, (n, c, side, side), dtype=format) for name in "xy")
        w = Tensor("w", (c, c, 3, 3), dtype=format)
        attrs = ConvolutionAttrs((3, 3), pad=(1, 1))
        return Op("conv", "convolution.forward", "card", Pass.FORWARD, (x, w), (y,), attrs, flops=2 * 9 * c * y.size)


def product(rows: int, columns: int, length: int) -> Op:
    x, w, y = Tensor("x", (rows, length)), Tensor("w", (columns, length)), Tensor("y", (rows, columns))
    return Op("product", "inner_product.forward", "card", Pass.FORWARD, (x, w), (y,), flops=2 * y.size * length)


@dataclass
class _Bench:
    """Seconds of ops on one device, without what a launch takes."""

    device: Device
    timed: Timed
    launch: float = 0.0

    def seconds(self, op: Op) -> dict[Algorithm, float]:
        """Those of each algorithm that the device runs. Raises InvalidInput if it runs none."""
        named = {f"{op.name} {i}": (op, algorithm) for i, algorithm in enumerate(self.device.algorithms(op))}
        taken = dict(self.timed(self.device, named))
        found = {named[name][1]: s for name, s in taken.items() if not isinstance(s, KernelFailed)}
        if not found:
            raise InvalidInput(f"--profile: {self.device.name} runs no algorithm of {op.kind}; its profile needs one")
        return found

    def best(self, op: Op) -> float:
        return self._alone(min(self.seconds(op).values()))

    def _alone(self, seconds: float, launches: int = 1) -> float:
        return max(seconds - launches * self.launch, 1e-9)

    def convolution(self, op: Op, fast: int) -> tuple[float, float, int]:
        """(operations per second with the least workspace, with any, bytes of the workspace of the latter).

        fast: the kernels of an algorithm with more workspace than another"""
        found = self.seconds(op)
        lean = min(found, key=lambda a: (a.workspace, found[a]))
        quick = min(found, key=lambda a: (found[a], a.workspace))
        kernels = fast if quick.workspace > lean.workspace else 1
        slow, quickest = self._alone(found[lean]), self._alone(found[quick], kernels)
        return op.flops / slow, op.flops / quickest, quick.workspace


def card(
    base: GPU,
    device: Device,
    on_tensor_cores: Device | None,
    source: str,
    probes: Probes = Probes(),
    timed: Timed = bench.each,
    copies: Callable[[Device], Link] = link,
) -> GPU:
    """The profile `base` with all numbers of it that can be measured here.

    device:          computes float32 in full
    on_tensor_cores: the same card where float32 may be rounded to TF32; None: the card has no tensor cores
    source:          of the numbers, as the profile says it

    Raises InvalidInput if the device runs no algorithm of an op that is needed."""
    one = _Bench(device, timed)
    one.launch = one.best(probes.sum(64))
    numbers = _copies(copies(device)) | {"launch_latency": one.launch} | _full(base, one, probes)
    if on_tensor_cores is not None:
        without = numbers["fast"] * base.peak_flops.value
        numbers |= _tensor(base, _Bench(on_tensor_cores, timed, one.launch), without, probes)
    fields: dict[str, Any] = {name: Number(value, source) for name, value in numbers.items()}
    return replace(base, **fields)


def _copies(found: Link) -> dict[str, float]:
    return {
        "link_out": found.out, "link_in": found.back, "link_latency": found.latency,
        "duplex_out": min(1.0, found.out_beside / found.out), "duplex_in": min(1.0, found.back_beside / found.back),
    }  # fmt: skip


def _full(base: GPU, one: _Bench, probes: Probes) -> dict[str, float]:
    """What float32 in full shows: the memory, the efficiencies, and how a product fills the card."""
    peak, total, conv = base.peak_flops.value, probes.sum(), probes.convolution()
    large = product(*probes.large)
    rate = large.flops / one.best(large)
    slow, fast, workspace = one.convolution(conv, TRANSFORMED if base.workspace_of == "plain" else 1)
    result = {
        "bandwidth": total.nbytes / one.best(total) / base.memory_bandwidth.value,
        "gemm": rate / peak, "implicit_gemm": slow / peak, "fast": fast / peak,
    }  # fmt: skip
    if base.workspace_of == "plain" and workspace:
        part = workspace / conv.nbytes
        result |= {"workspace_maps": part, "workspace_filters": part}
    if base.multiprocessors is not None:
        result |= _blocks(base.multiprocessors.value, one, rate, probes)
    return result


def _blocks(multiprocessors: float, one: _Bench, rate: float, probes: Probes) -> dict[str, float]:
    """`tile` and `split`, from how many blocks the small and the long product have, by their operations per second."""
    small, long = product(*probes.small), product(*probes.long)
    many, sums = (multiprocessors * op.flops / one.best(op) / rate for op in (small, long))
    if max(many, sums) >= multiprocessors:  # they fill the card, so nothing is known
        return {}
    tile = small.writes[0].size / many
    return {"tile": tile, "split": probes.long[2] * max(1.0, long.writes[0].size / tile) / sums}


def _tensor(base: GPU, one: _Bench, without: float, probes: Probes) -> dict[str, float]:
    """The part of the tensor cores' peak that the quickest convolution reaches: the mean over the formats in which it
    is quicker than without them, where it has `without` operations per second."""
    launches = TRANSFORMED if base.workspace_of == "plain" else 1
    reached = []
    for format in FORMATS:
        if (peak := replace(base, tf32=True).peak(format)) is not None:
            _, fast, _ = one.convolution(probes.convolution(format), launches)
            if fast > QUICKER * without:
                reached.append(fast / peak)
    return {"tensor": sum(reached) / len(reached)} if reached else {}


def changes(before: GPU, after: GPU) -> Mapping[str, tuple[float | None, float]]:
    """{number: (what the profile had before, what was measured)}."""

    def value(number: Any) -> float | None:
        return None if number is None else number.value

    return {
        name: (value(vars(before)[name]), number.value)
        for name, number in vars(after).items()
        if isinstance(number, Number) and number != vars(before)[name]
    }
