"""The systems that Layrub beats in its Figures 12 and 13 and Table 6, by the policies that imitate them.

`sqrt_n` is MXNet's memonger: Chen et al., whose code it is. `liveness` is TensorFlow, which gives bytes back after
their last use. Both have our own memory facts, since theirs are not said. vDNN's speeds are its own paper's, of another
card, and are counted as there: its VGG-16 is our vgg19. GeePS has no policy here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from minidnn.costs import profile
from minidnn.jobs.outcome import nearest
from minidnn_papers import vdnn
from minidnn_papers.concat import sliced
from minidnn_papers.layrub_plans import TRAINING, caffes, lowered, title
from minidnn_papers.numbers import layrub as paper
from minidnn_papers.row import MIB, Row, Tell, lower
from minidnn_papers.vdnn_counted import counted, program

SYSTEM = "layrub"
MEMONGER, TENSORFLOW = "sqrt_n:p", "liveness:p"
ARENA = lower("the process's memory by nvidia-smi, of which the framework takes an unknown part; ours is the arena")
COPIED = "the paper copied vDNN's figures; ours are vDNN's policies on the profile of its Titan X, by its accounting"


def rivals(tell: Tell) -> Iterator[Row]:
    yield from _whole(tell, "Figure 12", "TensorFlow", paper.TENSORFLOW, TENSORFLOW)
    yield from _whole(tell, "Figure 12", "MXNet", paper.MEMONGER, MEMONGER)
    deep = {(f"resnet{depth}", 32): mib for depth, mib in paper.MXNET.items()}
    yield from _whole(tell, "Table 6", "MXNet", deep, MEMONGER)
    yield from _vdnn(tell)


def _whole(tell: Tell, figure: str, who: str, bars: Mapping[tuple[str, int], float], policy: str) -> Iterator[Row]:
    for (name, batch), bar in bars.items():
        tell(f"Layrub: {who} with {name}, batch {batch}")
        case = f"{title(name)} ({batch}), {who}"
        yield Row(SYSTEM, figure, case, "in all, MiB", bar, _arena(name, batch, policy), ARENA)


@cache
def _arena(name: str, batch: int, policy: str) -> float:
    """MiB; some nets are in the figure and in the table."""
    result = nearest(lowered(name, batch, "default", TRAINING), policy, caffes(profile("k40"))).arrangement
    return result.arena / MIB


def _vdnn(tell: Tell) -> Iterator[Row]:
    for (name, batch), speeds in paper.VDNN.items():
        tell(f"Layrub: vDNN with {name}, batch {batch}")
        p, costs = program(name, batch), profile("titan_x")
        if name == "vdnn_googlenet":
            p, costs = sliced(p, costs)
        result = counted(p, ["vdnn_all:m", "vdnn_all:p", "baseline:p"], costs)
        for algorithms, speed in zip("mp", speeds, strict=True):
            ours = result[f"vdnn_all:{algorithms}"].seconds / result["baseline:p"].seconds
            case = f"{vdnn.title(name)} ({batch}), vDNN ({algorithms})"
            yield Row(SYSTEM, "Figure 13", case, "time over its baseline", round(1 / speed, 3), ours, COPIED)
