"""Measured seconds of this machine's devices, and the cache file that keeps them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

from minidnn.costs.costs import ARITHMETIC, MEMORY, MOST_DRAG, Choice, Costs, Drag, remembering
from minidnn.costs.device_spec import DeviceSpec
from minidnn.costs.estimates import DOUBT, by_host
from minidnn.costs.parts import large_copy, part_copy, share
from minidnn.errors import BadInput
from minidnn.files import cache
from minidnn.program import Algorithm, Op, Program, Tensor


def geometry(op: Op) -> str:
    """A text of all that an op's seconds depend on, device and algorithm apart: its kind, constants, types, shapes."""

    def shapes(tensors: Iterable[Tensor]) -> str:
        return " ".join(f"{t.dtype}{'x'.join(map(str, t.shape))}" for t in tensors)

    return f"{op.kind} {op.attrs!r} {shapes(op.reads)} -> {shapes(op.writes)}"


def key(op: Op, algorithm: Algorithm) -> str:
    """The name of an op's seconds with this algorithm in Measurements.seconds."""
    return f"{geometry(op)} [{algorithm.name} {algorithm.workspace}]"


def whole(program: Program) -> str:
    """The name of a program in Measurements.copies: a digest of the geometry of its ops."""
    return hashlib.sha256("\n".join(map(geometry, program.ops)).encode()).hexdigest()[:16]


class NotKept(BadInput, OSError):
    """Measurements could not be saved. This is checked first, since measuring takes minutes."""


@dataclass(eq=False)
class Measurements:
    """Seconds measured on one device, kept in one file. `seconds` has them by `key`, `refused` the messages of the
    algorithms that the device refused to run."""

    device: str  # name and description: library, version, threads
    path: Path
    bandwidth_out: float = 0.0  # bytes per second; 0: not measured yet
    bandwidth_in: float = 0.0
    latency: float = 0.0
    # how fast copies are while the device computes, and how much they slow it down (measuring/link.py)
    beside: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    # {`whole` of a program: (how many times as long as predicted copies take in its steps, and the doubt in that)}
    copies: dict[str, tuple[float, float]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    problem: str | None = None  # a sentence for the user: why an existing file could not be used

    def lacking(self, ops: Iterable[Op], algorithms: Callable[[Op], Iterable[Algorithm]]) -> list[str]:
        """The copies, and the names of those of these ops of which an algorithm was neither measured nor refused."""
        known = self.seconds.keys() | self.refused.keys()
        own = (op for op in ops if not op.on_net)
        copies = [] if self.bandwidth_out > 0 else ["copies"]
        return copies + [op.name for op in own if any(key(op, a) not in known for a in algorithms(op))]

    @property
    def digest(self) -> str:
        """A digest of what plans depend on."""
        content = {name: getattr(self, name) for name in _SAVED}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def check_writable(self) -> None:
        """Raise NotKept if `save` would fail now."""
        with self._warning():
            cache.make_folder(self.path)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass

    def save(self) -> None:
        """Write the file as a whole or not at all. Raises NotKept."""
        content = {name: getattr(self, name) for name in _SAVED}
        with self._warning():
            cache.write(self.path, json.dumps({"format": FORMAT, **content}, indent=1).encode())

    @contextlib.contextmanager
    def _warning(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise NotKept(f"costs cannot be kept: {cache.reason(error, self.path)}") from None


FORMAT = 1
_SAVED = ("device", "bandwidth_out", "bandwidth_in", "latency", "beside", "seconds", "copies", "refused")


def measurements(device: DeviceSpec, directory: Path | None = None) -> Measurements:
    """The measurements of `device` from its file in the user's cache directory; empty without a usable file.

    If there is a file that cannot be used, `problem` says why."""
    if directory is None:
        directory = cache.home() / "costs"
    identity = f"{device.name}: {device.description}"
    path = directory / f"{device.name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.json"
    empty = Measurements(identity, path)
    try:
        content = json.loads(cache.read(path))
    except FileNotFoundError:
        return empty
    except cache.Refused as error:
        empty.problem = f"{error}; its costs are measured again"
        return empty
    except (OSError, ValueError, RecursionError) as error:
        empty.problem = f"{path} cannot be read ({error}); its costs are measured again"
        return empty
    try:
        if content["format"] != FORMAT or content["device"] != identity:
            raise ValueError(f"it is of format {content['format']} for {content['device']}")
        out, back = positive(content["bandwidth_out"]), positive(content["bandwidth_in"])
        result = Measurements(identity, path, out, back, _least0(content["latency"]))
        result.beside = _concurrent_rates(content.get("beside", []))
        if "copies" not in content:  # a file of a version whose latency was another
            result.beside = []
        result.copies = {str(k): (positive(a), _least0(b)) for k, (a, b) in content.get("copies", {}).items()}
        result.seconds = {str(k): positive(v) for k, v in content["seconds"].items()}
        result.refused = {str(k): str(v) for k, v in content.get("refused", {}).items()}  # older files have none
        return result
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        empty.problem = f"{path} is damaged ({error!r}); its costs are measured again"
        return empty


def positive(value: Any) -> float:
    """A number that was kept. Raises ValueError if it is none, not positive, or not finite."""
    if not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise ValueError(f"a number in it is not positive and finite: {str(value)[:20]}")
    return float(value)


def _least0(value: Any) -> float:
    """The same of a number that may be 0."""
    return 0.0 if value == 0 else positive(value)


def _concurrent_rates(values: Any) -> list[dict[str, Any]]:
    """The rates of copies while the device computes, checked. A file of an older version lacks some, and then has none:
    they are measured again."""
    if any("drag_out" not in b for b in values):
        return []
    return [
        {
            "bound_by": str(b["bound_by"]),
            "op": str(b["op"]),
            **{name: positive(b[name]) for name in ("bandwidth_out", "bandwidth_in", "slower")},
            **{name: _least0(b[name]) for name in ("drag_out", "drag_in")},
        }
        for b in values
    ]


def measured(device: DeviceSpec, measurements: Measurements, programs: Iterable[Program] = ()) -> Costs:
    """Costs from measurements alone, of whole ops and by these of their parts (costs/parts.py). Their `choices` raises
    ValueError for an op that was not measured.

    programs: those that are planned; where copies were measured in steps of theirs, they take as long as there, and
    else the doubt is assumed"""
    start = min(measurements.seconds.values(), default=0.0)

    def part_seconds(op: Op, algorithm: Algorithm) -> float | None:
        """None: the whole op has no such algorithm, or it was refused."""
        whole = op.whole if op.part is None else op.part.origin
        alike = [key(whole, a) for a in device.algorithms(whole) if a.name == algorithm.name]
        return next((share(op, measurements.seconds[k], start) for k in alike if k in measurements.seconds), None)

    def choices_of(op: Op) -> Iterator[Choice]:
        for algorithm in device.algorithms(op):
            k = key(op, algorithm)
            if k in measurements.refused:
                continue
            if k in measurements.seconds:
                yield Choice(algorithm, measurements.seconds[k])
            elif op.part is not None:
                if (seconds := part_seconds(op, algorithm)) is not None:
                    yield Choice(algorithm, seconds)
            else:
                large = large_copy(op)
                yield Choice(
                    algorithm, part_copy(op, measurements.seconds[key(large, device.algorithms(large)[0])], start)
                )

    def choose(op: Op) -> tuple[Choice, ...]:
        try:
            result = tuple(choices_of(op))
        except KeyError:
            result = ()
        if not result:
            raise ValueError(f"{op.name} has not been measured on {device.name}: run `minidnn profile` again")
        return result

    out, out_drags = _rates_during_ops(measurements, "out")
    back, in_drags = _rates_during_ops(measurements, "in")
    drags = [pair for pair in zip(out_drags, in_drags, strict=True)]
    choices = remembering(choose)
    known = [measurements.copies[name] for name in map(whole, programs) if name in measurements.copies]
    stretch, doubt = map(max, zip(*(known or [(1.0, 0.0 if device.own_memory else DOUBT)]), strict=True))
    return Costs(
        device.name,
        device.memory,
        out / stretch,
        back / stretch,
        choices,
        measurements.latency * stretch,
        own_memory=device.own_memory,
        origin="measured",
        drag=Drag(*drags) if measurements.beside else None,
        doubt=doubt,
        **by_host(device, choices),
    )


def _rates_during_ops(measurements: Measurements, way: str) -> tuple[float, list[float]]:
    """The rate of copies in one direction, and the drag on ops bound by memory and by arithmetic.

    Most copies run while the device computes, so the rate is the mean of those beside both kinds of ops. Each drag is
    chosen so that a byte costs as much as it did there. Where a copy takes more than MOST_DRAG of an op's work, it
    lasts longer instead."""
    kinds = {b["bound_by"]: b for b in measurements.beside}
    if not kinds:
        return getattr(measurements, f"bandwidth_{way}"), [0.0, 0.0]
    result = [kinds.get(kind) or next(iter(kinds.values())) for kind in (MEMORY, ARITHMETIC)]
    lost = [b[f"drag_{way}"] / b[f"bandwidth_{way}"] for b in result]  # seconds per byte
    rate = harmonic_mean([b[f"bandwidth_{way}"] * min(1.0, MOST_DRAG / (b[f"drag_{way}"] or 1.0)) for b in result])
    return rate, [min(MOST_DRAG, each * rate) for each in lost]
