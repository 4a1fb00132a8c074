"""vDNN (Rhu et al., MICRO 2016): Figures 1, 4, 11, 12, 14 and 15, on the profile of its Titan X with its memory facts.

Bars were measured in the paper's vector drawings, where one pixel is some 10 to 25 MB. Its MB are MiB. Memory is
counted as in the paper: feature maps, gradient maps and workspaces over time, plus weights (under vDNN, only those of
the feature extraction). Weight gradients are in none of its bars. Only the feature extraction is timed. Our vgg19 is
the paper's VGG-16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minidnn.costs import profile
from minidnn.layers import FACTS
from minidnn.memory.policies.vdnn import feature_extraction
from minidnn.memory.schedule import Schedule
from minidnn.program import Pass, Program, Role, nbytes
from minidnn.programs.build import programs
from minidnn.study.compare import Result, simulated
from minidnn.study.reproduce.row import MIB, Row, Tell
from minidnn.training.solver_file import understand

FEATURE_MAPS = frozenset({Role.INPUT, Role.ACTIVATION})
GRADIENT_MAPS = frozenset({Role.GRADIENT})
WORKSPACES = frozenset({Role.WORKSPACE})

ORACLE = "baseline:p"  # planned with as much memory as it needs: the paper's oracle

# Figure 11 (average and maximum, MB) and Figure 14 (performance relative to the oracle)
NETS: dict[tuple[str, int], dict[str, tuple[float, float, float]]] = {
    ("alexnet", 128): {
        "vdnn_all:m": (115, 270, 0.363), "vdnn_all:p": (193, 543, 0.776), "vdnn_conv:m": (232, 309, 0.399),
        "vdnn_conv:p": (309, 582, 0.956), "vdnn_dyn": (387, 660, 1.0), "baseline:m": (776, 776, 0.401),
        "baseline:p": (1127, 1127, 1.0),
    },
    ("overfeat", 128): {
        "vdnn_all:m": (387, 1282, 0.539), "vdnn_all:p": (465, 2333, 0.906), "vdnn_conv:m": (893, 1360, 0.564),
        "vdnn_conv:p": (971, 2411, 0.975), "vdnn_dyn": (1127, 2411, 1.0), "baseline:m": (2800, 2800, 0.570),
        "baseline:p": (4356, 4356, 1.0),
    },
    ("vgg19", 64): {
        "vdnn_all:m": (582, 2450, 0.440), "vdnn_all:p": (971, 2917, 0.843), "vdnn_conv:m": (1671, 2800, 0.476),
        "vdnn_conv:p": (2060, 4279, 1.0), "vdnn_dyn": (3695, 6341, 1.0), "baseline:m": (6146, 6146, 0.470),
        "baseline:p": (8598, 8598, 1.0),
    },
    ("vgg19", 128): {
        "vdnn_all:m": (1088, 4862, 0.396), "vdnn_all:p": (1632, 4862, 0.843), "vdnn_conv:m": (3267, 5563, 0.421),
        "vdnn_conv:p": (3850, 6341, 1.0), "vdnn_dyn": (3850, 6341, 1.0), "baseline:m": (12411, 12411, 0.423),
        "baseline:p": (14474, 14474, 1.0),
    },
    ("vgg19", 256): {
        "vdnn_all:m": (2099, 9610, 0.357), "vdnn_all:p": (2994, 14085, 0.787), "vdnn_conv:m": (6146, 10193, 0.371),
        "vdnn_conv:p": (7197, 17198, 0.917), "vdnn_dyn": (2761, 9610, 0.818), "baseline:m": (22957, 22957, 0.385),
        "baseline:p": (27976, 27976, 1.0),
    },
}  # fmt: skip
# Figure 12: offloaded, MB
OFFLOADED = {
    ("alexnet", 128): (154, 350),
    ("overfeat", 128): (383, 1149),
    ("vgg19", 64): (2535, 4019),
    ("vgg19", 128): (5062, 8062),
    ("vgg19", 256): (10133, 16116),
}
# Figure 4: weights, feature maps, gradient maps, workspace, MB
PARTS = {
    ("alexnet", 128): (231, 366, 193, 328),
    ("overfeat", 128): (559, 1176, 1080, 1581),
    ("vgg19", 64): (559, 4029, 1581, 2448),
    ("vgg19", 128): (None, 8078, 3123, 2738),
    ("vgg19", 256): (None, 16155, 6266, 5012),
}
# Figure 15: GPU under vDNN_dyn, CPU side, baseline, MB, at batch 32
DEEP = {"vgg116": (3001, 16968, 21032), "vgg316": (3859, 46815, 51738), "vgg416": (4268, 61780, 67111)}
FITS = {"vdnn_all:m", "vdnn_dyn"}  # the policies that train vgg19 at batch 256 in 12 GB (section V)

MODEL = "workspaces and seconds are the profile's, fitted to Figures 4 and 14 as a whole (docs/costs.md)"
PREFETCH = "Figure 10 taken literally prefetches one map earlier than the paper's largest layer holds"
READ = "read off a bar"
DYNAMIC = f"its trials pass earlier here, since bytes are packed and freed to the byte: it offloads less; {MODEL}"
REASONS = {"baseline:m": READ, "vdnn_all:m": PREFETCH, "vdnn_conv:m": PREFETCH, "vdnn_dyn": DYNAMIC}


def rows(tell: Tell) -> Iterator[Row]:
    for (name, batch), bars in NETS.items():
        tell(f"vDNN: {name}, batch {batch}")
        found = _planned(name, batch, bars)
        case = f"{_title(name)} ({batch})"
        yield from _memory(case, bars, found)
        yield from _speed(case, bars, found)
        yield from _offloaded(case, OFFLOADED[name, batch], found)
        yield from _parts(case, PARTS[name, batch], found[ORACLE].schedule)
        if (name, batch) == ("vgg19", 256):
            yield from _fitting(case, found)
    for name, deep in DEEP.items():
        tell(f"vDNN: {name}, batch 32")
        yield from _deep(name, deep)
    for figure, what in (("section V", "power"), ("section V", "DRAM interference")):
        yield Row("vdnn", figure, what, "measured on the card", None, None, "needs the card and its sensors")


def _title(name: str) -> str:
    return {"alexnet": "AlexNet", "overfeat": "OverFeat", "vgg19": "VGG-16"}.get(name, name.replace("vgg", "VGG-"))


def _planned(name: str, batch: int, policies: Iterable[str]) -> dict[str, _Found]:
    net, _, _ = understand(name, batch=batch)
    lowered = programs(net, None, ("TRAIN",), facts=FACTS["vdnn2016"])
    results = simulated(tuple(lowered.values()), list(policies), profile("titan_x"))
    return {r.policy: _found(r) for r in results}


# ---- the paper's accounting


@dataclass(frozen=True, eq=False)
class _Found:
    """A policy's result, and its memory and time as the paper counts them."""

    result: Result
    most: float  # bytes
    average: float  # bytes
    seconds: float  # of the feature extraction

    @property
    def schedule(self) -> Schedule:
        return self.result.schedule


def _found(r: Result) -> _Found:
    schedule = r.schedule
    features = {layer.name for layer in feature_extraction(schedule.program)}
    weights = _weights(schedule.program, features if r.policy.startswith("vdnn") else None)
    curve = schedule.curve(FEATURE_MAPS | GRADIENT_MAPS | WORKSPACES)
    took = np.array([s.end - s.start for s in r.trace.spans if s.stream == "compute"])
    managed = np.array([op.layer in features and op.during is not Pass.UPDATE for op in schedule.plan.order])
    # The mean over ops, not over seconds: this mean gives the paper's bars, to a per cent for (m).
    average = curve[managed].mean() if r.policy.startswith("vdnn") else curve.max()
    return _Found(r, float(curve.max()) + weights, float(average) + weights, r.trace.seconds - took[~managed].sum())


def _weights(program: Program, of: set[str] | None) -> int:
    """Bytes of the weights that the layers `of` read; of all layers, if None."""
    owner = {t: op.layer for op in program.ops for t in op.reads if t.role is Role.PARAM}
    return nbytes(t for t, layer in owner.items() if of is None or layer in of)


# ---- figures


def _memory(case: str, bars: dict[str, tuple[float, float, float]], found: dict[str, _Found]) -> Iterator[Row]:
    for policy, (average, most, _) in bars.items():
        f = found[policy]
        why = REASONS.get(policy, MODEL)
        yield Row("vdnn", "Figure 11", f"{case}, {policy}", "maximum, MiB", most, f.most / MIB, why)
        if policy.startswith("vdnn"):
            why = READ if policy.endswith(":m") else why
            yield Row("vdnn", "Figure 11", f"{case}, {policy}", "average, MiB", average, f.average / MIB, why)


def _speed(case: str, bars: dict[str, tuple[float, float, float]], found: dict[str, _Found]) -> Iterator[Row]:
    oracle = found[ORACLE].seconds
    for policy, (_, _, speed) in bars.items():
        if policy != ORACLE:
            yield Row(
                "vdnn", "Figure 14", f"{case}, {policy}", "relative speed", speed, oracle / found[policy].seconds, MODEL
            )


def _offloaded(case: str, bars: tuple[float, float], found: dict[str, _Found]) -> Iterator[Row]:
    for policy, paper in zip(("vdnn_conv:m", "vdnn_all:m"), bars, strict=True):
        ours = found[policy].result.row()["offload_bytes"]
        assert isinstance(ours, int)
        yield Row("vdnn", "Figure 12", f"{case}, {policy[:-2]}", "offloaded, MiB", paper, ours / MIB, READ)


def _parts(case: str, bars: Sequence[float | None], schedule: Schedule) -> Iterator[Row]:
    program = schedule.program
    ours = {
        "weights": _weights(program, None),
        "feature maps": int(schedule.curve(FEATURE_MAPS).max()),
        "gradient maps": int(schedule.curve(GRADIENT_MAPS).max()),
        "workspace": max(a.workspace for a in schedule.plan.algorithm.values()),
    }
    for (part, value), paper in zip(ours.items(), bars, strict=True):
        if paper is not None:
            yield Row(
                "vdnn", "Figure 4", case, f"{part}, MiB", paper, value / MIB, MODEL if part == "workspace" else READ
            )


def _fitting(case: str, found: dict[str, _Found]) -> Iterator[Row]:
    for policy, f in found.items():
        paper = float(policy in FITS)
        if not policy.startswith("baseline:m") and policy != "vdnn_conv:m":
            yield Row("vdnn", "section V", f"{case}, {policy}", "trains in 12 GB", paper, float(f.result.fits))


def _deep(name: str, bars: tuple[float, float, float]) -> Iterator[Row]:
    found = _planned(name, 32, ["vdnn_dyn", "vdnn_all:m", "baseline:p"])
    case = f"{_title(name)} (32)"
    offloaded = found["vdnn_all:m"].result.row()["offload_bytes"]
    assert isinstance(offloaded, int)
    gpu, host, base = bars
    yield Row("vdnn", "Figure 15", f"{case}, vdnn_dyn", "on the GPU, MiB", gpu, found["vdnn_dyn"].most / MIB, MODEL)
    yield Row("vdnn", "Figure 15", f"{case}, vdnn_all", "on the host, MiB", host, offloaded / MIB, READ)
    yield Row("vdnn", "Figure 15", f"{case}, baseline", "on the GPU, MiB", base, found["baseline:p"].most / MIB, MODEL)
