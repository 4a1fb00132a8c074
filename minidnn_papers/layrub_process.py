"""Layrub's figures of whole training runs: Figure 12 and Tables 6 and 7.

A process takes more than its arena. Table 6 exceeds ours by a line in the number of convolutions, drawn through
ResNet-50 and ResNet-1001: a constant for CUDA and its libraries, and the same for every convolution, such as cuDNN's
workspaces, one for each of Caffe's three streams. The other depths are then off by less than 1 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

from minidnn.costs import profile
from minidnn.jobs.outcome import nearest
from minidnn.jobs.search import largest
from minidnn.jobs.series import Series
from minidnn.memory.schedule import Arrangement
from minidnn.program import Program
from minidnn_papers.layrub_plans import (
    CAFFE,
    HYBRID,
    K40,
    OWN,
    TITLES,
    TRAINING,
    arranged,
    caffes,
    convolutions,
    lowered,
    title,
)
from minidnn_papers.numbers import layrub as paper
from minidnn_papers.row import FITTED, MIB, TRAINS, Row, Tell, Trial, higher, lower

SYSTEM = "layrub"
DRAWN = ("resnet50", "resnet1001")  # the nets of Table 6 through which the line is drawn
BATCH = 32
OF_PROCESS = lower("the process's memory by nvidia-smi; ours is the arena")
VDNN = (
    "with the facts of vDNN's own paper, whose arena takes {:.0f} MiB; with Caffe's facts it takes {:.0f}. The paper "
    "does not say which vDNN it means"
)
TO_THE_BYTE = higher("the largest that fits into the card's 11580 MiB, to the byte")


@dataclass(frozen=True)
class Process:
    """What a process takes beside the arena, MiB: `fixed`, and `each` for every convolution."""

    fixed: float
    each: float

    def beside(self, name: str) -> float:
        return self.fixed + self.each * convolutions(lowered(name, 1, "layrub2018")[0])

    def __str__(self) -> str:
        return f"{self.fixed:.0f} MiB for the process and {self.each:.2f} MiB for each convolution"


@cache
def _arena(name: str, batch: int, policy: str) -> float:
    return arranged(name, batch, policy, TRAINING).arena / MIB


@cache
def process() -> Process:
    """The line through the two nets of DRAWN in Table 6."""
    (few, a), (many, b) = (
        (convolutions(lowered(name, 1, "layrub2018")[0]), layrub - _arena(name, BATCH, HYBRID))
        for name in DRAWN
        for _, layrub in [paper.RUNTIME[int(name.removeprefix("resnet"))]]
    )
    each = (b - a) / (many - few)
    return Process(a - few * each, each)


def wholes(tell: Tell) -> Iterator[Row]:
    for name, batch in paper.WHOLE:
        tell(f"Layrub: the process of {name}, batch {batch}")
        yield whole(name, batch)


def whole(name: str, batch: int) -> Row:
    """The row of Figure 12."""
    ours, beside = _arena(name, batch, HYBRID), process()
    shown = paper.WHOLE["resnet50", 32] - paper.RUNTIME[50][1]
    what = f"with {beside}, as in Table 6, and {shown:.0f} MiB that ResNet-50 takes more here than there"
    result = ours + beside.beside(name) + shown
    return Row(
        SYSTEM, "Figure 12", f"{title(name)} ({batch}), Layrub", "in all, MiB", paper.WHOLE[name, batch], ours,
        OF_PROCESS, Trial(what, result, FITTED if name == "resnet50" else ""),
    )  # fmt: skip


def runtime(tell: Tell) -> Iterator[Row]:
    for depth, (caffe, layrub) in paper.RUNTIME.items():
        name, case = f"resnet{depth}", f"ResNet-{depth} ({BATCH})"
        if depth in paper.UNDEFINED:
            why = "the paper does not say how its blocks are distributed, and its authors published no such file"
            yield Row(SYSTEM, "Table 6", f"{case}, Layrub", "in all, MiB", layrub, None, why)
            continue
        tell(f"Layrub: ResNet-{depth}, batch {BATCH}, with everything")
        for policy, bar in ((CAFFE, caffe), (HYBRID, layrub)):
            if bar is not None:
                ours = _arena(name, BATCH, policy)
                what = f"with {process()}, a line through ResNet-50 and ResNet-1001 of this table"
                drawn = name in DRAWN and policy == HYBRID  # on the line whatever happens
                trial = Trial(what, ours + process().beside(name), FITTED if drawn else "")
                case_ = f"{case}, {TITLES[policy]}"
                yield Row(SYSTEM, "Table 6", case_, "in all, MiB", bar, ours, OF_PROCESS, trial)
        own = _arena(name, BATCH, OWN)
        yield Row(SYSTEM, "Table 6", f"{case}, {TITLES[OWN]}", "in all, MiB", None, own, "the arena, of everything")


def deepest(tell: Tell) -> Iterator[Row]:
    """ResNet-1517, which the abstract trains in 12 GB where other systems cannot."""
    tell("Layrub: ResNet-1517, batch 32, in 12 GB")
    ours = _arena("resnet1517", BATCH, HYBRID) + process().beside("resnet1517")
    why = f"the arena with {process()} (Table 6) takes {ours:.0f} of the card's 11580 MiB"
    yield Row(SYSTEM, "abstract", f"ResNet-1517 ({BATCH}), {TITLES[HYBRID]}", TRAINS, 1, float(ours <= K40 / MIB), why)
    arena, caffes_facts = _vdnn("vdnn2016").arena, _vdnn("caffe").arena
    why = VDNN.format(arena / MIB, caffes_facts / MIB)
    yield Row(SYSTEM, "abstract", f"ResNet-1517 ({BATCH}), vDNN", TRAINS, 0, float(arena <= K40), why)


@cache
def _vdnn(facts: str) -> Arrangement:
    programs = lowered("resnet1517", BATCH, facts, TRAINING)
    return nearest(programs, "vdnn_all:m", caffes(profile("k40"))).arrangement


def beside_vdnn(tell: Tell) -> Iterator[Row]:
    """ResNet-1517, which the paper trains in 12 GB, under vDNN with each set of facts."""
    for facts in ("caffe", "layrub2018", "vdnn2016", "default"):
        tell(f"Layrub: ResNet-1517 under vDNN, facts {facts}")
        arena = _vdnn(facts).arena
        why = f"the arena; it {'fits' if arena <= K40 else 'does not fit'} into the card's 11580 MiB"
        case, ours = f"ResNet-1517 ({BATCH}), vdnn_all:m, facts {facts}", arena / MIB
        yield Row(SYSTEM, "ResNet-1517 beside vDNN", case, "in all, MiB", None, ours, why)


def largest_batches(tell: Tell) -> Iterator[Row]:
    for name, bar in paper.LARGEST.items():
        tell(f"Layrub: the largest batch of {name}")
        beside = process().beside(name)
        ours, tried = (_largest(name, bar, int(K40 - less * MIB)) for less in (0.0, beside))
        what = f"into what the process leaves, which itself takes {process()} (Table 6)"
        case = f"{title(name)}, Layrub"
        yield Row(SYSTEM, "Table 7", case, "largest batch", bar, ours, TO_THE_BYTE, Trial(what, tried))


def _largest(name: str, near: int, budget: int) -> float | None:
    series = Series(1, 1, 16 * near)
    result = largest(partial(_of_batch, name), series, HYBRID, caffes(profile("k40")), budget, (near // 2, near))
    return None if result.size is None else float(result.size)


def _of_batch(name: str, batch: int) -> Sequence[Program]:
    return lowered(name, batch, "layrub2018", TRAINING)
