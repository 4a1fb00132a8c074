"""What ops and copies cost: seconds and workspace per (op, algorithm), link bandwidths, device memory.

Values only; nothing here runs an op. A Costs comes from one of three places, and says which:
  profile("titan_x")   predicted for a GPU that need not be here: gpus/*.yaml, a roofline (docs/costs.md)
  measured(device, …)  from seconds that study/measure.py took on the machine at hand, kept in a cache file
  estimate(device)     one fixed roofline for any CPU: right in order, not in number; the same on every
                       machine, so that plans made with it are too
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from minidnn import sizes
from minidnn.errors import BadInput, near
from minidnn.files import replacing
from minidnn.program import Algorithm, Op, Tensor


@dataclass(frozen=True)
class Choice:
    """One algorithm an op may use, and the seconds one run of it takes."""

    algorithm: Algorithm
    seconds: float


@dataclass(frozen=True)
class Staging:
    """How bytes lie on the host: a ring of pinned memory, and behind it ordinary memory (memory/staging.py).

    The rates are bytes of a tensor per second of the one thread that does this. They are assumed: some of any CPU of
    the last ten years; a measured step counts what it takes.
    """

    ring: int  # bytes; what travels at once must fit
    compress: bool = False  # what is stashed is packed without its zeros (memory/packing.py)
    copy_rate: float = 6e9
    pack_rate: float = 2e9
    unpack_rate: float = 2e9

    def stash_seconds(self, nbytes: int) -> float:
        return nbytes / (self.pack_rate if self.compress else self.copy_rate)

    def fetch_seconds(self, nbytes: int) -> float:
        return nbytes / (self.unpack_rate if self.compress else self.copy_rate)


@dataclass(frozen=True, eq=False)
class Costs:
    """Everything a policy or the simulator may know about a device.

    `choices(op)` lists the op's algorithms; the first is the default. It never returns an empty tuple.
    """

    device: str
    memory: int  # bytes the device offers
    bandwidth_out: float  # bytes per second, device to host
    bandwidth_in: float  # bytes per second, host to device
    choices: Callable[[Op], tuple[Choice, ...]]
    latency: float = 0.0  # seconds before a copy's first byte
    measured: bool = False
    own_memory: bool = False  # the arena is the device's, and not a part of the host's memory
    origin: str = "given"  # "profile", "measured" or "estimated": what a report says of its seconds
    staging: Staging | None = None  # None: everything that travels has a pinned place of its own

    def seconds(self, op: Op, algorithm: Algorithm) -> float:
        for c in self.choices(op):
            if c.algorithm == algorithm:
                return c.seconds
        raise KeyError(f"{self.device} has no algorithm {algorithm.name} for {op.name}")

    def least_memory(self, op: Op) -> Algorithm:
        """The algorithm of least workspace; among equals the fastest (a paper's "(m)")."""
        return min(self.choices(op), key=lambda c: (c.algorithm.workspace, c.seconds)).algorithm

    def fastest(self, op: Op) -> Algorithm:
        """The fastest algorithm; among equals the one of least workspace (a paper's "(p)")."""
        return min(self.choices(op), key=lambda c: (c.seconds, c.algorithm.workspace)).algorithm


def remembering(choose: Callable[[Op], tuple[Choice, ...]]) -> Callable[[Op], tuple[Choice, ...]]:
    """`choose`, worked out once per op: policies ask many times."""
    known: dict[Op, tuple[Choice, ...]] = {}

    def choices(op: Op) -> tuple[Choice, ...]:
        if op not in known:
            known[op] = choose(op)
        return known[op]

    return choices


# ---- a GPU that need not be here: profiles -----------------------------------------------------------------

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
        if not op.kind.startswith(PRODUCTS):
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


PRODUCTS = ("convolution.", "inner_product.")  # kinds that tensor cores do

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


# ---- a machine that is here: measured, or estimated --------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """A device in a few numbers. `launch`: seconds of anything at least."""

    flops: float  # per second
    bandwidth: float  # bytes per second, of its memory
    copy: float  # bytes per second, to the host and back
    launch: float
    products: Mapping[str, float] = field(default_factory=dict)  # flops of convolutions and inner products, by format

    def arithmetic(self, op: Op) -> float:
        """Operations per second of this op."""
        product = op.kind.startswith(PRODUCTS)
        return self.products.get(op.reads[0].dtype, self.flops) if product else self.flops


# One core's worth, roughly, of any CPU of the last ten years. Fixed on purpose: see `estimate`.
CPU = Rates(40e9, 8e9, 4e9, 5e-6)


def estimate(device: Any) -> Costs:
    """A guess for the machine at hand that measures nothing, so that its plans are the same at every start.

    By the device's own `rates` where it has some (a GPU, by its kind). A backend lists the algorithm it would choose
    first; each later one is taken to be 10 % slower.
    """
    rates: Rates = getattr(device, "rates", CPU)

    def choose(op: Op) -> tuple[Choice, ...]:
        seconds = max(op.flops / rates.arithmetic(op), op.nbytes / rates.bandwidth) + rates.launch
        return tuple(Choice(a, seconds * (1 + 0.1 * i)) for i, a in enumerate(device.algorithms(op)))

    return Costs(
        device.name, device.memory, rates.copy, rates.copy, remembering(choose), rates.launch,
        own_memory=hasattr(device, "runtime"), origin="estimated",
    )  # fmt: skip


def geometry(op: Op) -> str:
    """What an op's seconds depend on besides the device and the algorithm: its kind, constants and shapes."""

    def shapes(tensors: Iterable[Tensor]) -> str:
        return " ".join(f"{t.dtype}{'x'.join(map(str, t.shape))}" for t in tensors)

    return f"{op.kind} {op.attrs!r} {shapes(op.reads)} -> {shapes(op.writes)}"


def key(op: Op, algorithm: Algorithm) -> str:
    return f"{geometry(op)} [{algorithm.name} {algorithm.workspace}]"


class NotKept(BadInput, OSError):
    """What is measured could not be kept, and measuring takes minutes."""


@dataclass(eq=False)
class Measurements:
    """Seconds measured on one device (described with library, version and threads), kept in one file."""

    device: str  # name and description
    path: Path
    bandwidth_out: float = 0.0  # bytes per second; 0: not measured yet
    bandwidth_in: float = 0.0
    latency: float = 0.0
    beside: list[dict[str, Any]] = field(default_factory=list)  # copies while it computes (study/link.py); not used
    seconds: dict[str, float] = field(default_factory=dict)
    problem: str | None = None  # why a file that was there could not be used, for people

    def covers(self, ops: Iterable[Op], algorithms: Callable[[Op], Iterable[Algorithm]]) -> bool:
        known = self.seconds
        return self.bandwidth_out > 0 and all(key(op, a) in known for op in ops for a in algorithms(op))

    def check_writable(self) -> None:
        """Raise NotKept where `save` would fail."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path.parent):
                return
        except OSError as error:
            why = f"{error.filename or self.path.parent}: {error.strerror}"
        raise NotKept(f"costs cannot be kept: {why}; XDG_CACHE_HOME names another folder for the cache")

    def save(self) -> None:
        """Write the file whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {name: getattr(self, name) for name in _SAVED}
        with replacing(self.path) as file:
            json.dump({"format": FORMAT, **content}, file, indent=1)


FORMAT = 1
_SAVED = ("device", "bandwidth_out", "bandwidth_in", "latency", "beside", "seconds")


def measurements(device: Any, directory: Path | None = None) -> Measurements:
    """What was measured before on `device`, from the user's cache directory; empty if unusable."""
    if directory is None:
        import platformdirs

        directory = Path(platformdirs.user_cache_dir("minidnn")) / "costs"
    identity = f"{device.name}: {device.description}"
    path = directory / f"{device.name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.json"
    empty = Measurements(identity, path)
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return empty
    except (OSError, ValueError, RecursionError) as error:
        empty.problem = f"{path} cannot be read ({error}); its costs are measured again"
        return empty
    try:
        if content["format"] != FORMAT or content["device"] != identity:
            raise ValueError(f"it is of format {content['format']} for {content['device']}")
        out, back, latency = (float(content[name]) for name in _SAVED[1:4])
        found = Measurements(identity, path, out, back, latency, _beside(content.get("beside", [])))
        found.seconds = {str(k): float(v) for k, v in content["seconds"].items()}
        if not all(v > 0 for v in (*found.seconds.values(), found.bandwidth_out, found.bandwidth_in)):
            raise ValueError("a number in it is not positive")
        return found
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        empty.problem = f"{path} is damaged ({error!r}); its costs are measured again"
        return empty


def _beside(found: Any) -> list[dict[str, Any]]:
    """Copies while the device computes; a file of an older version has none."""
    numbers = ("bandwidth_out", "bandwidth_in", "slower")
    return [
        {"bound_by": str(b["bound_by"]), "op": str(b["op"])} | {name: float(b[name]) for name in numbers} for b in found
    ]


def measured(device: Any, known: Measurements) -> Costs:
    """Costs from measurements alone. Asking for an op that was not measured raises ValueError."""

    def choose(op: Op) -> tuple[Choice, ...]:
        try:
            return tuple(Choice(a, known.seconds[key(op, a)]) for a in device.algorithms(op))
        except KeyError:
            why = f"{op.name} has not been measured on {device.name}: run `minidnn profile` again"
            raise ValueError(why) from None

    return Costs(
        device.name, device.memory, known.bandwidth_out, known.bandwidth_in, remembering(choose),
        known.latency, measured=True, own_memory=hasattr(device, "runtime"), origin="measured",
    )  # fmt: skip
