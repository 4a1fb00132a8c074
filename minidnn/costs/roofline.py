"""The roofline of one GPU, as a value (docs/costs.md). profiles.py has the files that it is read from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minidnn import sizes
from minidnn.costs.costs import MOST_DRAG, READ_TWICE, Choice, Costs, remembering, traffic
from minidnn.costs.host import assumed
from minidnn.costs.reach import OWN, mma_sync
from minidnn.formats import TF32
from minidnn.program import ON_TENSOR_CORES, Algorithm, Op, Tensor

LEAST, MOST = 1e-30, 1e30  # of the numbers in a profile
TRANSFORMED = 4  # kernels of "fast" that changes layouts: one for each of x, y and w, and the product
# Bytes per second of one lane of PCI Express, each way, by generation: 8, 16 and 32 GT/s, of which 128/130 are data.
LANE = {"3": 8e9 / 8 * 128 / 130, "4": 16e9 / 8 * 128 / 130, "5": 32e9 / 8 * 128 / 130}


@dataclass(frozen=True)
class Number:
    """One number of a profile and its source: a profile without sources is a guess in disguise."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (read by pydantic, not a field)

    value: float
    source: str


@dataclass(frozen=True)
class Bytes:
    """A size in a profile, as people write it ("12GiB"), and its source."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    value: str
    source: str

    def __post_init__(self) -> None:
        sizes.parse(self.value)


@dataclass(frozen=True)
class PcieSlot:
    """The place of a card on PCI Express, "4 x16": its generation and its lanes, and their source."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    value: str
    source: str

    def __post_init__(self) -> None:
        if self.bandwidth is None:
            raise ValueError(
                f"{self.value!r} is not a PCI Express link; expected a generation and lanes, such as 4 x16"
            )

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second of its lanes, each way, which no copy reaches: its packets have heads."""
        generation, _, lanes = self.value.partition(" x")
        if generation not in LANE or not lanes.isdecimal():
            return None
        return LANE[generation] * int(lanes)


@dataclass(frozen=True)
class GPU:
    """A profile: the roofline of one GPU. docs/costs.md says how each number is used and how it was fitted.

    Convolutions have the algorithm "implicit_gemm", without workspace. With kernel > 1, stride 1 and dilation 1 they
    also have "fast" (Fourier or Winograd, or a layout change). It is quicker and needs a workspace of
        workspace_maps * (size of x + size of y) + workspace_filters * size of w
    where size is the tensor's bytes ("plain") or those of its half spectrum ("spectral").
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (read by pydantic, not a field)

    title: str
    memory: Bytes
    peak_flops: Number  # float32, without tensor cores
    memory_bandwidth: Number  # bytes per second
    link_out: Number  # bytes per second, pinned host memory
    link_in: Number
    link_latency: Number  # seconds
    launch_latency: Number  # seconds per kernel
    gemm: Number  # fraction of peak_flops, inner products
    implicit_gemm: Number  # fraction of peak_flops
    fast: Number  # fraction of peak_flops, counting the direct convolution's work; may exceed 1
    bandwidth: Number  # fraction of memory_bandwidth
    workspace_of: str  # "spectral" or "plain"
    workspace_maps: Number
    workspace_filters: Number
    # Convolutions and inner products on tensor cores: a peak without sparsity for each format of the operands, and
    # `tensor`, the fraction of the peak that "fast" reaches. "gemm" and "implicit_gemm" reach tensor * gemm / fast and
    # tensor * implicit_gemm / fast, but at most `tensor`. A format whose peak is None runs as fast as float32.
    tf32_flops: Number | None = None  # float32, rounded to TF32: used only if `tf32`
    float16_flops: Number | None = None
    bfloat16_flops: Number | None = None
    tensor: Number | None = None
    tf32: bool = TF32  # whether float32 ops may round their operands to TF32, where there is a tf32_flops
    # The part of its rate that a copy (out, in) keeps while one runs in the other direction; None: all of it.
    duplex_out: Number | None = None
    duplex_in: Number | None = None
    host_memory: Bytes | None = None  # of the host, where the card itself says so: it shares its memory with the CPU
    # A block of a product makes so many outputs, and sums up so many products, and keeps a multiprocessor busy. A
    # product of fewer blocks than multiprocessors leaves some without work. None: it does not.
    tile: Number | None = None
    split: Number | None = None
    multiprocessors: Number | None = None
    # What the numbers above come from. Nothing is planned by them.
    clock: Number | None = None  # cycles per second
    l2: Bytes | None = None
    pcie: PcieSlot | None = None
    called: tuple[str, ...] = ()  # further names that the profile is found by (profiles.py)

    def __post_init__(self) -> None:
        if self.workspace_of not in ("spectral", "plain"):
            raise ValueError(f"workspace_of is {self.workspace_of!r}; expected spectral or plain")
        for name, number in vars(self).items():
            if isinstance(number, Number) and not LEAST < number.value < MOST:  # sums and products of them are finite
                raise ValueError(f"{name} is {number.value}; it must be between {LEAST:g} and {MOST:g}")
        for name in ("duplex_out", "duplex_in"):
            if (part := getattr(self, name)) is not None and part.value > 1:
                raise ValueError(f"{name} is {part.value}; it is a part, at most 1: no copy is quicker beside another")
        peaks = [name for name in ("tf32_flops", "float16_flops", "bfloat16_flops") if getattr(self, name) is not None]
        if peaks and self.tensor is None:
            raise ValueError(f"{peaks[0]} is given, but not which fraction of it is reached: tensor")

    def peak(self, format: str) -> float | None:
        """The tensor cores' operations per second in this number format; None: they have none."""
        number = getattr(self, f"{'tf32' if format == 'float32' else format}_flops", None)
        return number.value if number is not None and (format != "float32" or self.tf32) else None

    def rate(self, format: str | None, efficiency: float) -> float:
        """Operations per second of an algorithm that reaches a fraction `efficiency` of the float32 peak.

        format: that of a product's operands, which tensor cores may multiply; None: no product"""
        peak, rate = None if format is None else self.peak(format), self.peak_flops.value * efficiency
        if peak is None or self.tensor is None:
            return rate
        return max(rate, peak * self.tensor.value * min(1.0, efficiency / self.fast.value))  # they need not be used

    def own_rate(self, format: str, tensor_cores: float, without: float) -> float:
        """Operations per second of kernels that reach these parts of the peaks (reach.py) for operands of a format."""
        rate, peak = self.peak_flops.value * without, self.peak(format)
        return rate if peak is None else max(rate, peak * self.mma_sync * tensor_cores)

    @property
    def mma_sync(self) -> float:
        """The part of the tensor cores' peak that mma.sync reaches; all of it where the card does not say enough."""
        half = self.float16_flops
        if half is None or self.multiprocessors is None or self.clock is None:
            return 1.0
        return mma_sync(half.value / (self.multiprocessors.value * self.clock.value))

    def busy(self, flops: float, outputs: int) -> float:
        """The part of the multiprocessors that have work in a product with so many outputs.

        It falls with the outputs, and with the length of the sums. So a product of some of the rows never takes less
        than its share of the seconds."""
        if self.tile is None or self.split is None or self.multiprocessors is None or not outputs:
            return 1.0
        blocks = max(1.0, outputs / self.tile.value) * max(1.0, flops / (2 * outputs) / self.split.value)
        return min(1.0, blocks / self.multiprocessors.value)

    def roofline(self, algorithm: Algorithm, flops: float, rate: float, nbytes: float, launches: int = 1) -> Choice:
        """The choice of an algorithm. Its seconds are the larger of arithmetic's and memory's, plus the launches of
        kernels. A copy takes its rate from the memory's bandwidth, or twice that if it stays within the memory: that is
        its drag."""
        bandwidth = self.memory_bandwidth.value * self.bandwidth.value
        arithmetic, moved, launching = flops / rate, nbytes / bandwidth, launches * self.launch_latency.value
        seconds = max(arithmetic, moved) + launching

        def lost(copy: float) -> float:
            left = 1 - min(MOST_DRAG, copy * (1 if self.host_memory is None else 2) / bandwidth)
            slower = max(arithmetic, moved / left) + launching
            return 1 - seconds / slower if slower > seconds else 0.0

        return Choice(algorithm, seconds, (lost(self.link_out.value), lost(self.link_in.value)))

    def choice(
        self, op: Op, algorithm: Algorithm, efficiency: float, nbytes: float | None = None, launches: int = 1
    ) -> Choice:
        """The choice of an algorithm for an op.

        efficiency: the fraction of the float32 peak that the algorithm reaches; not of minidnn's own kernels of
                    products, which have theirs (reach.py)
        nbytes:     the bytes that it moves; None: the least that its kernels move
        launches:   its kernels, one after another; an op that reads some tensors twice has one more"""
        product, own = op.family in ON_TENSOR_CORES, OWN.get(op.family)
        rate = self.rate(op.reads[0].dtype if product else None, efficiency)
        if own is not None:
            biased = op.kind.startswith("attention.") and getattr(op.attrs, "bias", None) is not None
            rate = self.own_rate(op.reads[0].dtype, 0.0 if biased else own.tensor_cores, own.without)
        rate *= self.busy(op.flops, op.writes[0].size) if product else 1.0
        launches += op.kind in READ_TWICE
        return self.roofline(algorithm, op.flops, rate, traffic(op) if nbytes is None else nbytes, launches)

    def choices(self, op: Op) -> tuple[Choice, ...]:
        """The op's algorithms with their seconds; the first is the default."""
        if op.kind not in _CONVOLUTIONS:
            return (self.choice(op, Algorithm("default", _scratch(op)), self.gemm.value),)
        slow = self.choice(op, Algorithm("implicit_gemm"), self.implicit_gemm.value)
        if not _transformable(op.attrs):
            return (slow,)
        space = self._workspace(op)
        # The transformed tensors, which fill the workspace, are written once and read once. Where "fast" was fitted to
        # steps with Fourier and Winograd, their kernels' launches are in its efficiency.
        launches = TRANSFORMED if self.workspace_of == "plain" else 1
        return (slow, self.choice(op, Algorithm("fast", space), self.fast.value, op.nbytes + 2 * space, launches))

    def _workspace(self, op: Op) -> int:
        x, y, w = _CONVOLUTIONS[op.kind](op)
        size = _spectrum(op, x) if self.workspace_of == "spectral" else _plain
        return int(self.workspace_maps.value * (size(x) + size(y)) + self.workspace_filters.value * size(w))

    def costs(self, name: str, choices: Callable[[Op], tuple[Choice, ...]] | None = None) -> Costs:
        """The Costs of this GPU; `name` is the device's name in reports. choices: the algorithms of ops, if they are
        not those of minidnn's own kernels"""
        return Costs(
            name,
            sizes.parse(self.memory.value),
            self.link_out.value,
            self.link_in.value,
            remembering(choices or self.choices),
            self.link_latency.value,
            origin="profile",
            by_host=assumed,
            duplex=(_part(self.duplex_out), _part(self.duplex_in)),
        )


def _part(number: Number | None) -> float:
    return 1.0 if number is None else number.value


# (x, y, w) or their gradients in each kind of convolution op, among its reads and writes
_CONVOLUTIONS: dict[str, Callable[[Op], tuple[Tensor, Tensor, Tensor]]] = {
    "convolution.forward": lambda op: (op.reads[0], op.writes[0], op.reads[1]),
    "convolution.forward_relu": lambda op: (op.reads[0], op.writes[0], op.reads[1]),
    "convolution.backward_filter": lambda op: (op.reads[0], op.reads[1], op.writes[0]),
    "convolution.backward_data": lambda op: (op.writes[0], op.reads[1], op.reads[0]),
}


def _transformable(attrs: Any) -> bool:
    """Whether a transform pays: FFT and Winograd need stride 1, no dilation, and a kernel above 1."""
    return max(attrs.kernel) > 1 and set(attrs.stride) == {1} and set(attrs.dilation) == {1}


def _scratch(op: Op) -> int:
    """Bytes that our own kernel for this op takes besides its operands (backends/cuda)."""
    if op.kind == "linear_loss.forward":  # twice the scores of some rows
        classes, inputs = op.reads[1].shape
        return 2 * 4 * classes * min(op.attrs.rows, op.reads[0].size // inputs)
    if op.kind == "attention.backward":  # a number for each query and head, and the bias's gradient in pieces
        a, samples = op.attrs, op.reads[0].shape[0]
        sums = a.pieces(samples) * op.writes[-1].size if a.bias_gradient else 0
        return 4 * (samples * a.queries * a.heads + sums)
    if op.kind in ("recurrent.forward", "recurrent.backward"):  # of a step, products and what a state hands on
        batch, (wide, width) = op.reads[0].shape[1], op.attrs.named(op.reads, op.writes)["w"].shape
        return 4 * batch * (width + (wide if op.kind == "recurrent.forward" else width))
    return 0


def _plain(t: Tensor) -> float:
    return t.nbytes


def _spectrum(op: Op, x: Tensor) -> Callable[[Tensor], float]:
    """A function for the bytes of a tensor if each of its planes is a complex half spectrum of the padded x."""
    h, w = x.shape[2] + 2 * op.attrs.pad[0], x.shape[3] + 2 * op.attrs.pad[1]
    return lambda t: t.shape[0] * t.shape[1] * h * (w // 2 + 1) * 8.0
