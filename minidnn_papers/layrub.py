"""Layrub (Jin et al., TACO 15(3), 2018): its abstract, Figures 9 to 13 and Tables 5 to 8, on the profile of its K40.

Its bytes are those of its authors' code, whose rules the policies `layrub_2018` follow. Its times are of `layrub`, and
so are the rows that say so. What is counted: layrub_plans.py. Whole training runs: layrub_process.py.
The systems that it beats: layrub_rivals.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from minidnn.costs import profile
from minidnn.costs.links import named
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.schedule import Arrangement
from minidnn.program import Program
from minidnn_papers.layrub_plans import (
    CAFFE,
    HYBRID,
    INTER,
    INTRA,
    OWN,
    POLICIES,
    TITLES,
    TRAINING,
    arranged,
    caffes,
    data_and_diff,
    lowered,
    title,
    without_sums,
)
from minidnn_papers.layrub_process import beside_vdnn, deepest, largest_batches, runtime, wholes
from minidnn_papers.layrub_rivals import rivals
from minidnn_papers.numbers import layrub as paper
from minidnn_papers.part import Part
from minidnn_papers.row import FAR, MIB, UNSTATED, Directed, Row, Tell, Trial, lower
from minidnn_papers.several import together

SYSTEM = "layrub"

READ = "read off a bar"
SUMS = "without Eltwise in the code's list of layers that make an activation"
TURNS = lower(
    "the code keeps a block for a map that backward does not read, and for two layers more; here its bytes are free"
)
OLDER = "the rule is the published code's; the figures are older than it"
DIFFERS: dict[str, str | Directed] = {CAFFE: READ, INTRA: OLDER, INTER: TURNS, HYBRID: TURNS}
WIDER = (
    "its bars grow by 16 MiB for each k, those of a WRN-8-k of that name and batch by 136: the paper's is another net, "
    "so only the ratios to Caffe can be compared"
)
MODEL = (
    "simulated with the profile of the K40, whose rates were not fitted to this paper; calls of cudaMalloc and "
    "barriers on the host have no cost in it. Nothing that was tried moves all nets"
)
NODES = (
    "simulated: {:.0f} MB that each node sends for an update take {:.1f} s at 1 Gb/s, beside a step of {:.1f} s, and "
    "{:.2f} s of them are not hidden"
)
QUICK = "with InfiniBand of 100 Gb/s"
UNKNOWN = "LSTM is a layer here, but which layers the paper's two recurrent nets have is not known to us"
BARS = "the paper's own bars of these nets have a mean of {:.1f} %, so the 58.2 % are of other cases than Figure 11's"


def _nets(tell: Tell) -> Iterator[Row]:
    savings: list[tuple[float, float, float]] = []  # of the nets of Figure 11: by the paper's bars, by ours, by layrub
    times: list[float] = []
    for (name, batch), bars in {**paper.RESNETS, **paper.OTHERS}.items():
        tell(f"Layrub: {name}, batch {batch}")
        result = {policy: arranged(name, batch, policy) for policy in (*POLICIES, OWN)}
        yield from _maps("Figure 9" if (name, batch) in paper.RESNETS else "Figure 11", name, batch, bars, result)
        took = {policy: data_and_diff(result[policy].schedules["TRAIN"]) / MIB for policy in (CAFFE, HYBRID, OWN)}
        saved = (1 - bars[-1] / bars[0], 1 - took[HYBRID] / took[CAFFE], 1 - took[OWN] / took[CAFFE])
        if (name, batch) in paper.SECONDS:
            savings.append(saved)
            caffe, layrub = paper.SECONDS[name, batch]
            times.append(_slower(result))
            yield _speed("Table 5", name, batch, layrub / caffe, times[-1])
        if name == "resnet1001":
            for how, ours in (("", saved[1]), (", our layrub", saved[2])):
                case = f"ResNet-1001 (32){how}"
                yield Row(SYSTEM, "abstract", case, "memory saved, %", 100 * paper.LARGEST_SAVING, 100 * ours, TURNS)
    yield from _averages(savings, times)


def _recurrent(tell: Tell) -> Iterator[Row]:
    for case, lstm in paper.RECURRENT.items():
        for policy, bar in zip(POLICIES, lstm, strict=True):
            yield Row(SYSTEM, "Figure 11", f"{case}, {TITLES[policy]}", "data and diff, MiB", bar, None, UNKNOWN)


def _relative(tell: Tell) -> Iterator[Row]:
    for (name, batch), speed in paper.RELATIVE.items():
        tell(f"Layrub: time of {name}, batch {batch}")
        result = {policy: arranged(name, batch, policy) for policy in (CAFFE, OWN)}
        yield _speed("Figure 13", name, batch, 1 / speed, _slower(result))


def _maps(figure: str, name: str, batch: int, bars: Sequence[float], found: dict[str, Arrangement]) -> Iterator[Row]:
    for policy, bar in zip(POLICIES, bars, strict=True):
        ours = data_and_diff(found[policy].schedules["TRAIN"]) / MIB
        case = f"{title(name)} ({batch}), {TITLES[policy]}"
        trial = None
        if policy == INTRA and abs(ours / bar - 1) > FAR:
            trial = Trial(SUMS, data_and_diff(without_sums(name, batch)) / MIB)
        yield Row(SYSTEM, figure, case, "data and diff, MiB", bar, ours, DIFFERS[policy], trial)
    if name in ("resnet50", "resnet1001"):
        ours = data_and_diff(found[OWN].schedules["TRAIN"]) / MIB
        why = "aliases wherever that is right, and maps of forks take turns with the others"
        yield Row(SYSTEM, figure, f"{title(name)} ({batch}), {TITLES[OWN]}", "data and diff, MiB", None, ours, why)


def _averages(savings: Sequence[tuple[float, float, float]], times: Sequence[float]) -> Iterator[Row]:
    bars, ours, own = (100 * fmean(column) for column in zip(*savings, strict=True))
    case, what = f"mean of the {len(savings)} nets of Figure 11 that are here", "memory saved, %"
    average = 100 * paper.AVERAGE_SAVING
    for how, result in (("", ours), (", our layrub", own)):
        yield Row(SYSTEM, "abstract", f"{case}{how}", what, average, result, BARS.format(bars))
        yield Row(SYSTEM, "Figure 11", f"{case}{how}", what, bars, result, READ)
    case = f"mean of the {len(times)} nets of Table 5"
    yield Row(SYSTEM, "abstract", case, "time over Caffe's", paper.AVERAGE_TIME, fmean(times), MODEL)


def _wide(tell: Tell) -> Iterator[Row]:
    for k, bars in paper.WIDE.items():
        tell(f"Layrub: WRN-8-{k}, batch 128")
        caffe, *ours = (data_and_diff(arranged(f"wrn_8_{k}", 128, p).schedules["TRAIN"]) / MIB for p in POLICIES)
        yield Row(SYSTEM, "Figure 10", f"WRN-8-{k} (128), Caffe", "data and diff, MiB", bars[0], caffe, WIDER)
        for policy, bar, result in zip(POLICIES[1:], bars[1:], ours, strict=True):
            case, what = f"WRN-8-{k} (128), {TITLES[policy]}", "data and diff over Caffe's"
            yield Row(SYSTEM, "Figure 10", case, what, round(bar / bars[0], 3), result / caffe, WIDER)


def _slower(found: dict[str, Arrangement]) -> float:
    """How many times as long a step of `layrub` takes as one of Caffe."""
    costs = caffes(profile("k40"))
    layrub, caffe = (simulate(found[policy].schedules["TRAIN"], costs).seconds for policy in (OWN, CAFFE))
    return layrub / caffe


def _speed(figure: str, name: str, batch: int, bar: float, ours: float) -> Row:
    return Row(SYSTEM, figure, f"{title(name)} ({batch}), Layrub", "time over Caffe's", round(bar, 3), ours, MODEL)


def _nodes(tell: Tell) -> Iterator[Row]:
    costs = caffes(profile("k40"))
    for (name, batch), paper_s in paper.NODES.items():
        tell(f"Layrub: two nodes with {name}, batch {batch}")

        def make(ranks: int, name: str = name, batch: int = batch) -> Sequence[Program]:
            return lowered(name, batch, "layrub2018", replace(TRAINING, ranks=ranks))

        result, quicker = (together(make, OWN, costs, named(link), 2, batch) for link in ("eth1", "ib100"))
        it = result.ranks
        why = NODES.format(it.sent / 1e6, it.busy, result.alone.seconds, it.exposed)
        case = f"{title(name)} ({batch}), two nodes"
        trial = Trial(QUICK, quicker.speed_up, UNSTATED)
        yield Row(SYSTEM, "Table 8", case, "speed-up", paper_s, result.speed_up, lower(why), trial)


def _barrier(tell: Tell) -> Iterator[Row]:
    why = "gradients of filters and of data are ops of one stream here, so there is no overlap to lose"
    yield Row(SYSTEM, "section 3.2", "barrier between gradients, CIFAR-10", "time over none", 1.0305, None, why)


PARTS = (
    Part(_nets, ("Figure 9", "Figure 11", "Table 5", "abstract")),
    Part(_recurrent, ("Figure 11",)),
    Part(wholes, ("Figure 12",)),
    Part(_wide, ("Figure 10",)),
    Part(_relative, ("Figure 13",)),
    Part(runtime, ("Table 6",)),
    Part(deepest, ("abstract",)),
    Part(beside_vdnn, ("ResNet-1517 beside vDNN",)),
    Part(largest_batches, ("Table 7",)),
    Part(_nodes, ("Table 8",)),
    Part(rivals, ("Figure 12", "Table 6", "Figure 13")),
    Part(_barrier, ("section 3.2",)),
)
