"""Layrub (Jin et al., TACO 15(3), 2018): Figures 9 to 13 and Tables 5 to 8, on the profile of its K40 with its facts.

Bars were measured in raster pictures, to 10 MB (bars in GB: to 10 GB/1024). Its MB are MiB. Figures 9 to 11 count data
and diff of all blobs. They do not count parameters, workspaces, and the tensors that a layer keeps for itself (as
Caffe's BatchNorm and Scale do). Tables 6 and 7 are of whole training runs. A convolution uses the algorithm that Caffe
chooses from cuDNN's: the fastest that needs 8 MiB of workspace or less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from minidnn.costs import Choice, Costs, profile
from minidnn.layers import FACTS
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.schedule import Arrangement, Schedule
from minidnn.optimizers import SGD
from minidnn.program import Op, Program, Role
from minidnn.programs.build import programs
from minidnn.programs.updates import TrainSpec
from minidnn.study.compare import planned
from minidnn.study.reproduce.row import MIB, Row, Tell
from minidnn.study.search import Series, largest
from minidnn.training.solver_file import understand

SYSTEM = "layrub"
MAPS = frozenset({Role.INPUT, Role.ACTIVATION, Role.GRADIENT})
WORKSPACE = 8 * MIB  # the most that Caffe allows a convolution's algorithm
K40 = 11580 * MIB  # the memory of the paper's card
GB = 1024  # MiB, where the paper's scale is in GB
TRAINING = TrainSpec(SGD(momentum=0.9, weight_decay=1e-4))

CAFFE, INTRA, INTER, HYBRID = POLICIES = ("baseline_caffe:p", "layrub_intra:p", "layrub_inter:p", "layrub:p")
TITLES = {CAFFE: "Caffe", INTRA: "intra-layer", INTER: "inter-layer", HYBRID: "hybrid"}

# Figures 9 and 11: MB of data and diff under Caffe, intra, inter, hybrid
RESNETS = {
    ("resnet34", 32): (1740, 1415, 404, 284),
    ("resnet50", 32): (5374, 4341, 826, 759.5),
    ("resnet101", 32): (8.08 * GB, 6.47 * GB, 826, 759.5),
    ("resnet152", 32): (11.61 * GB, 9.31 * GB, 826, 759.5),
    ("resnet1001", 32): (67.2 * GB, 46.8 * GB, 826, 759.5),
}
OTHERS = {
    ("lenet", 5000): (720, 367, 548, 329),
    ("cifar10_quick", 5000): (2207, 1143, 1551, 940),
    ("caffenet", 256): (1890, 1400, 774, 631),
    ("vgg16", 32): (3700, 2267, 1656, 970),
    ("googlenet", 32): (2131, 1603, 540, 563),
    ("wrn_28_10", 128): (4756, 3662, 713, 653),
}
RECURRENT = {"LSTM-RNN (64, 512)": (759, 374, 631, 351), "LSTM-CNN (384, 16)": (6098, 3866, 2433, 2086)}
# Figure 10: the same of WRN-8-k
WIDE = {
    10: (360, 233, 205, 149), 16: (461, 294, 300, 211), 32: (718, 456, 456, 372), 64: (1230, 773, 1069, 690),
    128: (2255, 1213, 2094, 1130), 256: (3759, 1927, 3386, 1821),
}  # fmt: skip
# Figure 12: MB of the whole process under Layrub, by nvidia-smi
WHOLE = {
    ("caffenet", 256): 2264, ("vgg16", 32): 2358, ("googlenet", 32): 1506, ("resnet34", 32): 1482,
    ("resnet50", 32): 2047, ("wrn_28_10", 128): 1669,
}  # fmt: skip
# Table 5: seconds of 20 iterations under Caffe and Layrub
SECONDS = {
    ("lenet", 5000): (2.148, 2.342), ("cifar10_quick", 5000): (7.223, 8.178), ("caffenet", 256): (20.808, 25.355),
    ("vgg16", 32): (91.815, 110.759), ("googlenet", 32): (9.726, 12.392), ("resnet34", 32): (37.387, 46.928),
    ("resnet50", 32): (55.131, 86.425), ("wrn_28_10", 128): (79.397, 94.021),
}  # fmt: skip
# Figure 13: performance relative to Caffe
RELATIVE = {("alexnet", 128): 0.83, ("googlenet", 128): 0.78, ("vgg16", 64): 0.85}
# Table 6: MB of training at batch 32 on the K40M, Caffe and Layrub
RUNTIME = {
    34: (4430, 1257), 50: (11425, 1805), 302: (None, 3448), 695: (None, 5968), 1001: (None, 7901),
    1172: (None, 9022), 1304: (None, 9872), 1517: (None, 11239),
}  # fmt: skip
UNDEFINED = (302, 695)  # the authors' files have none of these depths
# Table 7: largest batches
LARGEST = {
    "caffenet": 2100, "vgg16": 240, "resnet34": 416, "resnet50": 272, "resnet56": 5000, "wrn_28_10": 1376,
}  # fmt: skip

READ = "read off a bar"
WHEREVER = "the paper aliases between the layer types that its code lists, here every gradient for which it is right"
FREED = "a map that backward does not read is not fetched, and gradients are freed as soon as nobody reads them"
TIGHT = f"{FREED}; {WHEREVER}"
DIFFERS = {CAFFE: READ, INTRA: WHEREVER, INTER: FREED, HYBRID: TIGHT}
NARROW = (
    "its bars grow by 16 MiB for each k, those of a WRN-8-k of that name and batch by 136: the paper's is another net, "
    "so compare the ratios to Caffe"
)
CARD = "the process's memory by nvidia-smi, with CUDA's context, cuDNN's handles and fragments of cudaMalloc"
COPIES = f"{CARD}; and Caffe's BatchNorm has three maps for itself (temp, and x_norm with its diff), here one"
MODEL = "simulated with the profile of the K40, whose rates were not fitted to this paper"
RUN_TIME = f"{MODEL}; Layrub's calls of cudaMalloc and its barriers on the host have no cost in it"


def rows(tell: Tell) -> Iterator[Row]:
    maps = {**RESNETS, **OTHERS}
    for (name, batch), bars in maps.items():
        tell(f"Layrub: {name}, batch {batch}")
        found = {policy: arranged(name, batch, policy) for policy in POLICIES}
        yield from _maps("Figure 9" if (name, batch) in RESNETS else "Figure 11", name, batch, bars, found)
        if (name, batch) in SECONDS:
            caffe, layrub = SECONDS[name, batch]
            yield _speed("Table 5", name, batch, layrub / caffe, found)
        if (name, batch) in WHOLE:
            yield Row(
                SYSTEM, "Figure 12", f"{_title(name)} ({batch}), Layrub", "in all, MiB", WHOLE[name, batch],
                found[HYBRID].arena / MIB, COPIES,
            )  # fmt: skip
    for case, paper in RECURRENT.items():
        for policy, bar in zip(POLICIES, paper, strict=True):
            why = "recurrent layers are not among those that there are"
            yield Row(SYSTEM, "Figure 11", f"{case}, {TITLES[policy]}", "data and diff, MiB", bar, None, why)
    yield from _wide(tell)
    for (name, batch), paper_speed in RELATIVE.items():
        tell(f"Layrub: time of {name}, batch {batch}")
        found = {policy: arranged(name, batch, policy) for policy in (CAFFE, HYBRID)}
        yield _speed("Figure 13", name, batch, 1 / paper_speed, found)
    yield from _runtime(tell)
    yield from _largest(tell)
    yield from _others()


def _title(name: str) -> str:
    for prefix, title in (("resnet", "ResNet-"), ("wrn_", "WRN-"), ("vgg", "VGG-")):
        if name.startswith(prefix):
            return title + name.removeprefix(prefix).replace("_", "-")
    known = {"lenet": "LeNet", "caffenet": "CaffeNet", "alexnet": "AlexNet", "googlenet": "GoogLeNet"}
    return known.get(name, name)


def lowered(name: str, batch: int, facts: str, train: TrainSpec | None = None) -> tuple[Program, ...]:
    net, _, _ = understand(name, batch=batch)
    return tuple(programs(net, train, ("TRAIN",), facts=FACTS[facts]).values())


def caffes(costs: Costs) -> Costs:
    """`costs` without algorithms that need more workspace than Caffe allows (WORKSPACE)."""

    def choices(op: Op) -> tuple[Choice, ...]:
        all_ = costs.choices(op)
        return tuple(c for c in all_ if c.algorithm.workspace <= WORKSPACE) or all_[:1]

    return replace(costs, choices=choices)


def arranged(name: str, batch: int, policy: str, train: TrainSpec | None = None) -> Arrangement:
    """The arrangement of a net under one of POLICIES, with the paper's memory facts for that policy."""
    facts = "caffe" if policy == CAFFE else "layrub2018"
    arrangement, _ = planned(lowered(name, batch, facts, train), policy, caffes(profile("k40")))
    return arrangement


def data_and_diff(schedule: Schedule) -> int:
    """The most bytes live at once of the paper's "intermediate data": the batch, feature maps and their gradients."""
    return int(schedule.curve(MAPS).max())


# ---- figures


def _maps(figure: str, name: str, batch: int, bars: Sequence[float], found: dict[str, Arrangement]) -> Iterator[Row]:
    for policy, paper in zip(POLICIES, bars, strict=True):
        ours = data_and_diff(found[policy].schedules["TRAIN"]) / MIB
        case = f"{_title(name)} ({batch}), {TITLES[policy]}"
        yield Row(SYSTEM, figure, case, "data and diff, MiB", paper, ours, DIFFERS[policy])


def _wide(tell: Tell) -> Iterator[Row]:
    for k, bars in WIDE.items():
        tell(f"Layrub: WRN-8-{k}, batch 128")
        caffe, *ours = (data_and_diff(arranged(f"wrn_8_{k}", 128, p).schedules["TRAIN"]) / MIB for p in POLICIES)
        yield Row(SYSTEM, "Figure 10", f"WRN-8-{k} (128), Caffe", "data and diff, MiB", bars[0], caffe, NARROW)
        for policy, paper, found in zip(POLICIES[1:], bars[1:], ours, strict=True):
            case = f"WRN-8-{k} (128), {TITLES[policy]}"
            yield Row(
                SYSTEM,
                "Figure 10",
                case,
                "data and diff over Caffe's",
                round(paper / bars[0], 3),
                found / caffe,
                NARROW,
            )


def _speed(figure: str, name: str, batch: int, paper: float, found: dict[str, Arrangement]) -> Row:
    costs = caffes(profile("k40"))
    caffe, layrub = (simulate(found[policy].schedules["TRAIN"], costs).seconds for policy in (CAFFE, HYBRID))
    case = f"{_title(name)} ({batch}), Layrub"
    return Row(SYSTEM, figure, case, "time over Caffe's", round(paper, 3), layrub / caffe, RUN_TIME)


def _runtime(tell: Tell) -> Iterator[Row]:
    for depth, (caffe, layrub) in RUNTIME.items():
        case = f"ResNet-{depth} (32)"
        if depth in UNDEFINED:
            why = "the paper does not say how its blocks are distributed, and its authors published no such file"
            yield Row(SYSTEM, "Table 6", f"{case}, Layrub", "in all, MiB", layrub, None, why)
            continue
        tell(f"Layrub: ResNet-{depth}, batch 32, with everything")
        for policy, paper in ((CAFFE, caffe), (HYBRID, layrub)):
            if paper is not None:
                ours = arranged(f"resnet{depth}", 32, policy, TRAINING).arena / MIB
                yield Row(SYSTEM, "Table 6", f"{case}, {TITLES[policy]}", "in all, MiB", paper, ours, COPIES)


def _largest(tell: Tell) -> Iterator[Row]:
    for name, paper in LARGEST.items():
        tell(f"Layrub: the largest batch of {name}")
        make = partial(_of_batch, name)
        series = Series(1, 1, 16 * paper)
        found = largest(make, series, HYBRID, caffes(profile("k40")), K40, (paper // 2, paper))
        why = f"the largest that fits into the card's 11580 MiB, to the byte; {FREED}"
        ours = None if found.size is None else float(found.size)
        yield Row(SYSTEM, "Table 7", f"{_title(name)}, Layrub", "largest batch", paper, ours, why)


def _of_batch(name: str, batch: int) -> Sequence[Program]:
    return lowered(name, batch, "layrub2018", TRAINING)


def _others() -> Iterator[Row]:
    why = "another system's program on the authors' machine"
    for who in ("TensorFlow", "GeePS", "MXNet memonger"):
        yield Row(SYSTEM, "Figure 12", who, "in all, MiB", None, None, why)
    for who in ("vDNN", "GeePS"):
        yield Row(SYSTEM, "Figure 13", who, "time over Caffe's", None, None, why)
    yield Row(SYSTEM, "Table 6", "MXNet", "in all, MiB", None, None, why)
    barrier = "gradients of filters and of data are ops of one stream here, so there is no overlap to lose"
    yield Row(SYSTEM, "section 3.2", "barrier between gradients, CIFAR-10", "time over none", 1.0305, None, barrier)
    yield Row(SYSTEM, "Table 7", "epoch time at the largest batch", "time", None, None, "needs training runs on a K40M")
    yield Row(SYSTEM, "Table 8", "two nodes", "speed-up", 1.98, None, "training on several nodes is not done")
