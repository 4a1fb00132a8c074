"""GPUs that need not be here: a roofline each, read from gpus/NAME.yaml (docs/costs.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minidnn import sizes
from minidnn.costs.costs import Choice, Costs, remembering
from minidnn.errors import BadInput, near
from minidnn.program import PRODUCTS, Algorithm, Op, Tensor

PROFILES = Path(__file__).with_name("gpus")
TF32 = ":tf32"


class ProfileError(BadInput, ValueError):
    """There is no such GPU profile, or its file is wrong."""


@dataclass(frozen=True)
class Number:
    """One number of a profile, with where it comes from: a profile without sources is a guess in disguise."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (read by pydantic, not a field)

    value: float
    source: str


@dataclass(frozen=True)
class Bytes:
    """A size of a profile, as people write it ("12GiB"), with where it comes from."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    value: str
    source: str

    def __post_init__(self) -> None:
        sizes.parse(self.value)


@dataclass(frozen=True)
class GPU:
    """A profile: the roofline of one GPU. docs/costs.md says how each number is used and how it was fitted.

    Convolutions have "implicit_gemm" (no workspace) and, where kernel > 1, stride 1 and dilation 1, "fast"
    (Fourier or Winograd, or a layout change): quicker, for a workspace of
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
    # Products on tensor cores: a peak per format of the operands, without sparsity, and the fraction of it that "fast"
    # reaches; "gemm" and "implicit_gemm" in the proportion that they have to "fast", at most that. None: as in float32.
    tf32_flops: Number | None = None  # float32, rounded to TF32: only where that is allowed
    float16_flops: Number | None = None
    bfloat16_flops: Number | None = None
    tensor: Number | None = None
    tf32: bool = False  # whether TF32 is allowed

    def __post_init__(self) -> None:
        if self.workspace_of not in ("spectral", "plain"):
            raise ValueError(f"workspace_of is {self.workspace_of!r}; expected spectral or plain")
        for name, number in vars(self).items():
            if isinstance(number, Number) and not number.value > 0:
                raise ValueError(f"{name} is {number.value}; it must be positive")
        peaks = [name for name in ("tf32_flops", "float16_flops", "bfloat16_flops") if getattr(self, name) is not None]
        if peaks and self.tensor is None:
            raise ValueError(f"{peaks[0]} is given, but not which fraction of it is reached: tensor")
        if self.tf32 and self.tf32_flops is None:
            raise ValueError("it has no tensor cores for TF32: there is no tf32_flops")

    def peak(self, op: Op) -> float | None:
        """Operations per second of the tensor cores that do this op; None: it is not for them."""
        if op.family not in PRODUCTS:
            return None
        format = op.reads[0].dtype
        number = getattr(self, f"{'tf32' if format == 'float32' else format}_flops", None)
        return number.value if number is not None and (format != "float32" or self.tf32) else None

    def seconds(self, op: Op, efficiency: float, nbytes: float | None = None) -> float:
        """The roofline: as long as the slower of arithmetic and memory takes, and a launch. `efficiency`: the fraction
        of float32's peak."""
        peak = self.peak(op)
        if peak is None or self.tensor is None:
            rate = self.peak_flops.value * efficiency
        else:
            rate = peak * self.tensor.value * min(1.0, efficiency / self.fast.value)
        traffic = (op.nbytes if nbytes is None else nbytes) / (self.memory_bandwidth.value * self.bandwidth.value)
        return max(op.flops / rate, traffic) + self.launch_latency.value

    def choices(self, op: Op) -> tuple[Choice, ...]:
        if op.kind not in _CONVOLUTIONS:
            return (Choice(Algorithm("default"), self.seconds(op, self.gemm.value)),)
        slow = Choice(Algorithm("implicit_gemm"), self.seconds(op, self.implicit_gemm.value))
        if not _transformable(op.attrs):
            return (slow,)
        space = self._workspace(op)
        # what is transformed is written and read again
        seconds = self.seconds(op, self.fast.value, op.nbytes + 2 * space)
        return (slow, Choice(Algorithm("fast", space), seconds))

    def _workspace(self, op: Op) -> int:
        x, y, w = _CONVOLUTIONS[op.kind](op)
        size = _spectrum(op, x) if self.workspace_of == "spectral" else _plain
        return int(self.workspace_maps.value * (size(x) + size(y)) + self.workspace_filters.value * size(w))

    def costs(self, name: str) -> Costs:
        return Costs(
            name,
            sizes.parse(self.memory.value),
            self.link_out.value,
            self.link_in.value,
            remembering(self.choices),
            self.link_latency.value,
            origin="profile",
        )


# x, y, w of a convolution pass, whichever of them it writes
_CONVOLUTIONS: dict[str, Callable[[Op], tuple[Tensor, Tensor, Tensor]]] = {
    "convolution.forward": lambda op: (op.reads[0], op.writes[0], op.reads[1]),
    "convolution.forward_relu": lambda op: (op.reads[0], op.writes[0], op.reads[1]),
    "convolution.backward_filter": lambda op: (op.reads[0], op.reads[1], op.writes[0]),
    "convolution.backward_data": lambda op: (op.writes[0], op.reads[1], op.reads[0]),
}


def _transformable(attrs: Any) -> bool:
    """Whether there is a transform that pays: FFT and Winograd want stride 1, no dilation, a real kernel."""
    return max(attrs.kernel) > 1 and set(attrs.stride) == {1} and set(attrs.dilation) == {1}


def _plain(t: Tensor) -> float:
    return t.nbytes


def _spectrum(op: Op, x: Tensor) -> Callable[[Tensor], float]:
    """Bytes of a tensor whose every plane is a complex half spectrum of the padded map."""
    h, w = x.shape[2] + 2 * op.attrs.pad[0], x.shape[3] + 2 * op.attrs.pad[1]
    return lambda t: t.shape[0] * t.shape[1] * h * (w // 2 + 1) * 8.0


def gpus() -> list[str]:
    """Names of the profiles that come with the package."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def gpu(name: str) -> GPU:
    """The profile called `name`, or read from a file of one's own; with TF32 allowed where ":tf32" follows. Raises
    ProfileError."""
    from pydantic import TypeAdapter, ValidationError
    from ruamel.yaml import YAML, YAMLError

    if name.endswith(TF32):
        try:
            return replace(gpu(name.removesuffix(TF32)), tf32=True)
        except ValueError as error:
            raise ProfileError(f"{name}: {str(error).removeprefix(f'{name}: ')}") from None
    path = Path(name) if name.endswith((".yaml", ".yml")) else PROFILES / f"{name}.yaml"
    if path.parent == PROFILES and not path.is_file():
        hint, there = near(name.replace("-", "_"), gpus(), 0.5), ", ".join(gpus())
        raise ProfileError(f"no GPU profile is called {name!r}{hint}; there are {there}, or give a file.yaml")
    try:
        data = YAML(typ="safe").load(path.read_text())
    except YAMLError as error:
        raise ProfileError(f"{path}: not YAML: {error}") from None
    try:
        return TypeAdapter(GPU).validate_python(data)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc'])) or 'profile'}: {e['msg']}" for e in error.errors())
        raise ProfileError(f"{path}: " + "; ".join(wrong)) from None


def profile(name: str) -> Costs:
    """What a program would cost on the GPU called `name`."""
    return gpu(name).costs(name)
