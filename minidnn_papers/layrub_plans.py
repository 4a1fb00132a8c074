"""What Layrub's rows plan: its networks with its facts, Caffe's choice of algorithms, and the bytes that it counts.

Figures 9 to 11 count data and diff of all blobs, and ReLU's masks. They do not count parameters, workspaces, and what
BatchNorm and Scale keep for themselves. A convolution uses the algorithm that Caffe chooses from cuDNN's: the fastest
that needs 8 MiB of workspace or less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from minidnn.costs import Choice, Costs, profile
from minidnn.jobs.outcome import nearest
from minidnn.jobs.solver_file import understand
from minidnn.layers import FACTS
from minidnn.memory.lowering.lower import lower
from minidnn.memory.lowering.placement import place
from minidnn.memory.plan import complete, in_place_sharing
from minidnn.memory.policies.papers.layrub import intra, over_activations
from minidnn.memory.policies.papers.layrub_2018 import BELOW, MAKERS, listed
from minidnn.memory.policies.shared.algorithms import choose
from minidnn.memory.schedule import Arrangement, Schedule
from minidnn.optimizers import SGD
from minidnn.program import Op, Program, Role
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn_papers.row import MIB

MAPS = frozenset({Role.INPUT, Role.ACTIVATION, Role.GRADIENT})
WORKSPACE = 8 * MIB  # the most that Caffe allows a convolution's algorithm
K40 = 11580 * MIB  # the memory of the paper's card
TRAINING = TrainSpec(SGD(momentum=0.9, weight_decay=1e-4))

CAFFE, INTRA, INTER, HYBRID = POLICIES = (
    "baseline_caffe:p", "layrub_2018_intra:p", "layrub_2018_inter:p", "layrub_2018:p",
)  # fmt: skip
OWN = "layrub:p"  # ours, which goes further than the authors' code
TITLES = {CAFFE: "Caffe", INTRA: "intra-layer", INTER: "inter-layer", HYBRID: "hybrid", OWN: "our layrub"}


def title(name: str) -> str:
    for prefix, long in (("resnet", "ResNet-"), ("wrn_", "WRN-"), ("vgg", "VGG-")):
        if name.startswith(prefix):
            return long + name.removeprefix(prefix).replace("_", "-")
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
    """The arrangement of a net under a policy, with the paper's memory facts for that policy."""
    facts = "caffe" if policy == CAFFE else "layrub2018"
    arrangement = nearest(lowered(name, batch, facts, train), policy, caffes(profile("k40"))).arrangement
    return arrangement


def without_sums(name: str, batch: int) -> Schedule:
    """The intra-layer schedule if no Eltwise were in the list of those that make an activation."""
    (program,), costs = lowered(name, batch, "layrub2018"), caffes(profile("k40"))
    accepts: Callable[..., bool] = listed(program, BELOW, MAKERS - {"eltwise"})
    share = over_activations(program, in_place_sharing(program), held=True, listed=accepts)
    plan = intra(choose(program, costs, "p"), program, share)
    return place(lower(program, complete(program, costs, plan)))


def data_and_diff(schedule: Schedule) -> int:
    """The most bytes live at once of the paper's "intermediate data": the batch, feature maps and their gradients, and
    the buffers of ReLU's masks."""
    masks = {t for op in schedule.program.ops if op.kind == "relu.forward" for t in op.writes if t.role is Role.EXTRA}
    held = sum(b.nbytes for b in schedule.buffers if any(s.tensor in masks for s in b.residencies))
    return int(schedule.curve(MAPS).max()) + held


def convolutions(program: Program) -> int:
    return sum(op.kind == "convolution.forward" for op in program.ops)
