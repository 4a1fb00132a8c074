"""The headlines of vDNN's abstracts: of the first version (arXiv, February 2016) on a K40, and of the published."""

from __future__ import annotations

from collections.abc import Iterator

from minidnn.costs import gpu, profile
from minidnn_papers.concat import sliced
from minidnn_papers.numbers import vdnn as paper
from minidnn_papers.row import MIB, TRAINS, Row, Tell, Trial, lower
from minidnn_papers.vdnn_counted import Counted, counted, program
from minidnn_papers.vdnn_trials import measured, speed

SYSTEM = "vdnn"
FIRST, PUBLISHED = "abstract of the first version", "abstract"
TRIED = ("vdnn_dyn", "vdnn_conv:p", "vdnn_all:p", "vdnn_all:m")
TITLES = {"alexnet": "AlexNet", "overfeat": "OverFeat", "vdnn_googlenet": "GoogLeNet"}

SAVING = "average memory saved, %"
DYNAMIC = "that version's text was not available, and its abstract does not say which policy saves this. By ours: {}"
MOST = "of vdnn_all:m against baseline:p, as Figure 11's bars have it"
BARS = "a thousand MiB each, as Figure 11's bars have it"
CLOSER = (
    "on the K40's profile the leanest algorithms have {:.2f} of the fastest ones' speed on this net, so they cost"
    " little"
)
TITAN = "with {:.2f}, that of the published paper's Titan X (Figure 14)"


def headlines(tell: Tell) -> Iterator[Row]:
    for (name, batch), saved in paper.SAVED.items():
        tell(f"vDNN: {name}, batch {batch}, on the K40")
        result = counted(program(name, batch), [*TRIED, "baseline:p"], profile("k40"))
        each = {policy: 100 * (1 - result[policy].average / result["baseline:p"].average) for policy in TRIED}
        why = DYNAMIC.format(", ".join(f"{policy} {value:.0f}" for policy, value in each.items()))
        case = f"{TITLES[name]} ({batch}) on the K40, vdnn_dyn"
        yield Row(SYSTEM, FIRST, case, SAVING, 100 * saved, each["vdnn_dyn"], why)
    yield _lost(tell)
    for (name, batch), saved in paper.SAVED_MOST.items():
        p, costs = program(name, batch), profile("titan_x")
        if name == "vdnn_googlenet":
            p, costs = sliced(p, costs)
        result = counted(p, ["vdnn_all:m", "baseline:p"], costs)
        ours = 100 * (1 - result["vdnn_all:m"].average / result["baseline:p"].average)
        yield Row(SYSTEM, PUBLISHED, f"{TITLES[name]} ({batch}), vdnn_all:m", SAVING, 100 * saved, ours, MOST)
    result = counted(program("vgg19", 256), ["vdnn_dyn", "baseline:p"], profile("titan_x"))
    case, needed = "VGG-16 (256)", result["baseline:p"].most / MIB / 1000
    yield Row(SYSTEM, PUBLISHED, f"{case}, baseline:p", "needs, GB", paper.NEEDED, needed, BARS)
    fits = float(result["vdnn_dyn"].result.fits)
    yield Row(SYSTEM, PUBLISHED, f"{case}, vdnn_dyn", TRAINS, 1, fits)
    why = "the profile's seconds (docs/costs.md), and its trials end with conv here"
    yield Row(SYSTEM, PUBLISHED, "VGG-16 (256) in 12 GB, vdnn_dyn", LOSS, 100 * paper.LOST_MOST, _loss(result), why)


LOSS = "speed lost, %"


def _loss(found: dict[str, Counted]) -> float:
    return 100 * (1 - found["baseline:p"].seconds / found["vdnn_dyn"].seconds)


def _lost(tell: Tell) -> Row:
    """The row of VGG-16 at batch 256, which the first version trained in 12 GB of a K40."""
    tell("vDNN: vgg19, batch 256, on the K40")
    p, wanted = program("vgg19", 256), paper.NETS["vgg19", 256]["baseline:m"][2]
    policies = ["vdnn_dyn", "baseline:p"]
    ours = _loss(counted(p, policies, profile("k40")))
    card, _ = measured(p, "k40", wanted)
    tried = _loss(counted(p, policies, card.costs("k40")))
    why, trial = lower(CLOSER.format(speed(p, gpu("k40")))), Trial(TITAN.format(wanted), tried)
    return Row(SYSTEM, FIRST, "VGG-16 (256) in 12 GB of a K40, vdnn_dyn", LOSS, 100 * paper.LOST, ours, why, trial)
