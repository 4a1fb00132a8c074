"""AccUDNN (Guo et al., ICCD 2019, arXiv 1901.06773): the claims of its abstracts. Its text was not available.

So its GPU, the batch of its ResNet-152 and the links of its cluster are not known. Here the GPU is the profile of the
Titan X, because the abstract names 12 GB as a budget. Original Caffe keeps the data and diff of all blobs for the whole
step, with Caffe's memory facts. A convolution takes at most 8 MiB of workspace. AccUDNN was built on Caffe, so its
facts and workspaces are the same here. What a larger batch does to accuracy is trained for: accuracy.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

from minidnn.costs import Costs, profile
from minidnn.costs.links import named
from minidnn.costs.net import Link
from minidnn.jobs.search import largest
from minidnn.jobs.series import Series
from minidnn.jobs.solver_file import understand
from minidnn.jobs.tune import Curve, sweep
from minidnn.layers import FACTS
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.planning import arrange
from minidnn.optimizers import SGD
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.programs.ranks import BUCKET
from minidnn.programs.spec import TrainSpec
from minidnn_papers import accuracy
from minidnn_papers.layrub_plans import caffes
from minidnn_papers.part import Part
from minidnn_papers.row import MIB, Row, Tell, Trial
from minidnn_papers.several import MOST, Together, together

SYSTEM = "accudnn"
NETWORK = "resnet152"
GPU = "titan_x"
GIB = 1024 * MIB
FIRST, GRID = 32, 8  # the first batch that is tried, and how closely the best one is found
CAFFE, SWAPPING = "baseline_caffe:p", "accudnn:p"
TRAINING = TrainSpec(SGD(momentum=0.9, weight_decay=1e-4))

BATCH = "the abstract does not say at which batch: this is the smallest at which original Caffe needs more than 24 GiB"
STYLE = "AccUDNN-style: how the original chooses what it swaps is not known"
GIVEN = "8 GiB are the budget that is asked for"
NO_SPEED = f"the abstracts give no slowdown; {STYLE}"
GRADUAL = (
    "by model the throughput rises only as long as launches count, and the best batch is the largest whose copies are "
    f"all hidden; on the original's GPU small batches may have run less well than the profile says. {STYLE}"
)
LINK, TRIED = "pcie3", "eth10"
CLUSTER = (
    "simulated with {}: {:.1f} of {:.0f} ms of an iteration are communication that is not hidden. The original's "
    "cluster is not known"
)
BOTH = (
    "{}. Original Caffe sends all gradients at once, after backward. With a batch of 4.2 times the size, an iteration "
    "of 4.2 times the seconds and one sum of gradients for each, 1.9 times the efficiency means at most 5.8 times the "
    "speed of one GPU, not 7.7: the two abstracts speak of different clusters or batches"
)


def _batches(tell: Tell) -> Iterator[Row]:
    costs = caffes(profile(GPU))
    tell(f"AccUDNN: throughput of {NETWORK} in 12 GiB")
    caffe = _largest(costs, 12 * GIB)
    curve = sweep(_programs, FIRST, SWAPPING, costs, 12 * GIB, grid=GRID)
    yield from _minibatch(caffe, curve)
    yield from _cluster(caffe, curve, costs)


@cache
def _programs(batch: int, training: TrainSpec = TRAINING) -> Sequence[Program]:
    net, _, _ = understand(NETWORK, batch=batch)
    return tuple(programs(net, training, ("TRAIN",), facts=FACTS["caffe"]).values())


def _largest(costs: Costs, budget: int) -> int:
    """The largest batch that original Caffe trains in `budget` bytes; 0: none."""
    result = largest(_programs, Series(1, 1, 1 << 20), CAFFE, costs, budget, (FIRST, 2 * FIRST))
    return result.size or 0


def _memory(tell: Tell) -> Iterator[Row]:
    costs = caffes(profile(GPU))
    tell(f"AccUDNN: {NETWORK} in 24 GiB and in 8")
    batch = _largest(costs, 24 * GIB) + 1
    case = f"{NETWORK} ({batch})"
    base = arrange(_programs(batch), CAFFE, costs, 1 << 62)
    result = arrange(_programs(batch), SWAPPING, costs, 8 * GIB)
    whole = arrange(_programs(batch), "liveness:p", costs, 1 << 62)
    for who, theirs, ours, why in (
        ("original Caffe", 24, base.arena, BATCH), ("AccUDNN-style in 8 GiB", 8, result.arena, f"{GIVEN}. {STYLE}"),
    ):  # fmt: skip
        yield Row(SYSTEM, "abstract", f"{case}, {who}", "needs, GiB", theirs, ours / GIB, why, constructed=True)
    seconds = [simulate(a.schedules["TRAIN"], costs).seconds for a in (result, whole)]
    yield Row(
        SYSTEM, "abstract", f"{case}, AccUDNN-style in 8 GiB", "time over that without swapping", None,
        seconds[0] / seconds[1], NO_SPEED,
    )  # fmt: skip


def _minibatch(caffe: int, curve: Curve) -> Iterator[Row]:
    best, unmoved = curve.best, curve.unmoved
    case = f"{NETWORK} in 12 GiB"
    what = "efficiency-optimal batch over original Caffe's largest"
    if best is None or not caffe:
        yield Row(SYSTEM, "abstract", case, what, 4.2, None, "nothing fits")
        return
    reason = f"{best.batch} to within {curve.grid}, and {caffe}; {GRADUAL}"
    yield Row(SYSTEM, "abstract", case, what, 4.2, best.batch / caffe, reason)
    if unmoved is not None:
        reason = f"the largest batch that AccUDNN-style planning places without swapping is {unmoved.batch}; {GRADUAL}"
        what = "efficiency-optimal batch over the largest without swapping"
        yield Row(SYSTEM, "abstract", case, what, None, best.batch / unmoved.batch, reason)


def _cluster(caffe: int, curve: Curve, costs: Costs) -> Iterator[Row]:
    best, link, other = curve.best, named(LINK), named(TRIED)
    if best is None or not caffe:
        return
    size = best.batch

    def theirs(between: Link) -> Together:
        """Original Caffe, which sends all gradients at once."""
        return together(partial(_of_ranks, caffe, bucket=MOST), CAFFE, costs, between, 8, caffe)

    def swapping(between: Link) -> Together:
        return together(partial(_of_ranks, size), SWAPPING, costs, between, 8, size, 12 * GIB)

    result, tried = swapping(link), swapping(other)
    text = CLUSTER.format(link.title, 1e3 * result.ranks.exposed, 1e3 * result.ranks.seconds)
    with_ = f"with {other.title}"
    case = f"{NETWORK} ({size}) on 8 GPUs"
    yield Row(
        SYSTEM, "abstract", case, "speed-up over one GPU", 7.7, result.speed_up, text, Trial(with_, tried.speed_up)
    )
    what = f"scaling efficiency over that of original Caffe ({caffe})"
    ratios = [ours.efficiency / theirs(one).efficiency for ours, one in ((result, link), (tried, other))]
    yield Row(SYSTEM, "abstract of ICCD", case, what, 1.9, ratios[0], BOTH.format(text), Trial(with_, ratios[1]))


def _of_ranks(batch: int, ranks: int, bucket: int = BUCKET) -> Sequence[Program]:
    return _programs(batch, replace(TRAINING, ranks=ranks, bucket=bucket))


PARTS = (
    Part(_memory, ("abstract",)),
    Part(_batches, ("abstract", "abstract of ICCD")),
    Part(accuracy.rows, (accuracy.FIGURE, "abstract")),
)
