"""vDNN (Rhu et al., MICRO 2016): its abstracts and Figures 4, 11, 12, 14 and 15, on the profile of its Titan X with its
memory facts. What is counted: vdnn_counted.py. Our vgg19 is the paper's VGG-16.

GoogLeNet is the one of convnet-benchmarks. Its Concat layers copy nothing here (concat.py): with the copies, vDNN_all
would offload a third more than the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from minidnn.costs import gpu, profile
from minidnn_papers.concat import sliced
from minidnn_papers.numbers import vdnn as paper
from minidnn_papers.part import Part
from minidnn_papers.row import FITTED, MIB, TRAINS, Directed, Row, Tell, Trial, higher
from minidnn_papers.vdnn_counted import FEATURE_MAPS, GRADIENT_MAPS, Counted, counted, program, weights
from minidnn_papers.vdnn_headlines import FIRST, PUBLISHED, headlines
from minidnn_papers.vdnn_trials import ended, measured

SYSTEM = "vdnn"
CARD = "titan_x"
ORACLE = "baseline:p"  # planned with as much memory as it needs: the paper's oracle
TITLES = {"alexnet": "AlexNet", "overfeat": "OverFeat", "vgg19": "VGG-16", "vdnn_googlenet": "GoogLeNet"}

READ = "read off a bar"
PREFETCH = higher("Figure 10 taken literally prefetches one map earlier than the paper's largest layer holds")
EXACT: dict[str, str | Directed] = {"baseline:m": READ, "vdnn_all:m": PREFETCH, "vdnn_conv:m": PREFETCH}
PROFILE = "workspaces and seconds are the profile's, fitted to all nets as a whole (docs/costs.md)"
TRIED = "with this net's own largest workspace (Figure 4) and speed of baseline:m (Figure 14)"
EFFICIENCY = "one efficiency of implicit GEMM, {}, is fitted to all nets (docs/costs.md); this net's would be {:.2f}"
LARGEST = "one formula gives all workspaces (docs/costs.md); cuDNN 4 chose algorithms layer by layer"
ENDED = (
    "its trials end with no offload or conv here, since bytes are packed and freed to the byte, with {} in the paper"
)
DEEP = "with workspaces scaled to the paper's baseline it is further off"
SLICES = "Concat's inputs are slices of its output, in which the paper's bytes fit best. {}"
SHORT = "156 MiB less is what the 3x3 convolutions read behind their reductions, but nothing says so"
MEAN = "The mean over this net's ops; how the paper weighs its many small layers is not said"


def _nets(tell: Tell) -> Iterator[Row]:
    for (name, batch), bars in paper.NETS.items():
        tell(f"vDNN: {name}, batch {batch}")
        yield from _net(name, batch, bars)


def title(name: str) -> str:
    return TITLES.get(name, name.replace("vgg", "VGG-"))


def _net(name: str, batch: int, bars: dict[str, tuple[float, float, float]]) -> Iterator[Row]:
    p, costs = program(name, batch), profile(CARD)
    result = counted(p, bars, costs)
    card, efficiency = measured(p, CARD, bars["baseline:m"][2], paper.PARTS[name, batch][3])
    trial = counted(p, bars, card.costs(CARD))
    why, what_is_tried = dict.fromkeys(bars, PROFILE), dict.fromkeys(bars, TRIED)
    if end := paper.ENDS.get((name, batch)):
        other = ended(p, card.costs(CARD), end)
        trial = {**trial, **({"vdnn_dyn": other} if other else {})}
        why["vdnn_dyn"], what_is_tried["vdnn_dyn"] = ENDED.format(end), f"{TRIED}, and with that plan"
    case = f"{title(name)} ({batch})"
    for policy, (average, most, _) in bars.items():
        f, t, what = result[policy], trial[policy], f"{case}, {policy}"
        exact = EXACT.get(policy)
        reason: str | Directed = exact or why[policy]
        tried = None if exact else Trial(what_is_tried[policy], t.most / MIB)
        yield Row(SYSTEM, "Figure 11", what, "maximum, MiB", most, f.most / MIB, reason, tried)
        if policy.startswith("vdnn"):
            reason, tried = READ if exact else why[policy], tried and replace(tried, ours=t.average / MIB)
            yield Row(SYSTEM, "Figure 11", what, "average, MiB", average, f.average / MIB, reason, tried)
    for policy, (_, _, bar) in bars.items():
        if policy != ORACLE:
            ours = result[ORACLE].seconds / result[policy].seconds
            tried = Trial(what_is_tried[policy], trial[ORACLE].seconds / trial[policy].seconds, FITTED)
            own = EFFICIENCY.format(gpu(CARD).implicit_gemm.value, efficiency)
            reason = own if policy == "baseline:m" else why[policy]
            yield Row(SYSTEM, "Figure 14", f"{case}, {policy}", "relative speed", bar, ours, reason, tried)
    yield from _offloaded(case, paper.OFFLOADED[name, batch], result, (READ, READ))
    yield from _parts(case, paper.PARTS[name, batch], result[ORACLE])
    if (name, batch) == ("vgg19", 256):
        yield from _fitting(case, result)


def _offloaded(case: str, bars: tuple[float, float], found: dict[str, Counted], why: Sequence[str]) -> Iterator[Row]:
    for family, bar, reason in zip(("vdnn_conv", "vdnn_all"), bars, why, strict=True):
        ours = next(f for policy, f in found.items() if policy.startswith(family)).offloaded
        yield Row(SYSTEM, "Figure 12", f"{case}, {family}", "offloaded, MiB", bar, ours / MIB, reason)


def _parts(case: str, bars: Sequence[float | None], oracle: Counted) -> Iterator[Row]:
    schedule = oracle.schedule
    ours = {
        "weights": weights(schedule.program, None),
        "feature maps": int(schedule.curve(FEATURE_MAPS).max()),
        "gradient maps": int(schedule.curve(GRADIENT_MAPS).max()),
        "workspace": max(a.workspace for a in schedule.plan.algorithm.values()),
    }
    for (part, value), bar in zip(ours.items(), bars, strict=True):
        if bar is not None:
            why = LARGEST if part == "workspace" else READ
            yield Row(SYSTEM, "Figure 4", case, f"{part}, MiB", bar, value / MIB, why)


def _fitting(case: str, found: dict[str, Counted]) -> Iterator[Row]:
    for policy, f in found.items():
        trains = float(policy in paper.FITS)
        if not policy.startswith("baseline:m") and policy != "vdnn_conv:m":
            yield Row(SYSTEM, "section V", f"{case}, {policy}", TRAINS, trains, float(f.result.fits))


def _googlenet(tell: Tell) -> Iterator[Row]:
    tell("vDNN: GoogLeNet, batch 128")
    p, costs = sliced(program("vdnn_googlenet", 128), profile(CARD))
    result = counted(p, paper.GOOGLENET, costs)
    copied = counted(program("vdnn_googlenet", 128), paper.GOOGLENET, profile(CARD))
    case = "GoogLeNet (128)"
    for policy, (average, most) in paper.GOOGLENET.items():
        f, c = result[policy], copied[policy]
        why = SLICES.format(f"With copies: {c.most / MIB:.0f}")
        yield Row(SYSTEM, "Figure 11", f"{case}, {policy}", "maximum, MiB", most, f.most / MIB, why)
        if average is not None:
            why = SLICES.format(f"With copies: {c.average / MIB:.0f}. {MEAN}")
            yield Row(SYSTEM, "Figure 11", f"{case}, {policy}", "average, MiB", average, f.average / MIB, why)
    everything = f"With copies: {copied['vdnn_all:m'].offloaded / MIB:.0f}"
    yield from _offloaded(case, paper.GOOGLENET_OFFLOADED, result, (SHORT, SLICES.format(everything)))


def _deep(tell: Tell) -> Iterator[Row]:
    for name, (card, host, base) in paper.DEEP.items():
        tell(f"vDNN: {name}, batch 32")
        result = counted(program(name, 32), ["vdnn_dyn", "vdnn_all:m", "baseline:p"], profile(CARD))
        case, ours = f"{title(name)} (32)", result["vdnn_all:m"].offloaded / MIB
        kept, most = (result[policy].most / MIB for policy in ("vdnn_dyn", "baseline:p"))
        yield Row(SYSTEM, "Figure 15", f"{case}, vdnn_dyn", "on the GPU, MiB", card, kept, DEEP)
        yield Row(SYSTEM, "Figure 15", f"{case}, vdnn_all", "on the host, MiB", host, ours, READ)
        yield Row(SYSTEM, "Figure 15", f"{case}, baseline", "on the GPU, MiB", base, most, READ)


PARTS = (
    Part(_nets, ("Figure 11", "Figure 14", "Figure 12", "Figure 4", "section V")),
    Part(_googlenet, ("Figure 11", "Figure 12")),
    Part(_deep, ("Figure 15",)),
    Part(headlines, (FIRST, PUBLISHED)),
)
