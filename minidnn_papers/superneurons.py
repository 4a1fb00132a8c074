"""SuperNeurons (Wang et al., PPoPP 2018): section 3's series, Tables 1 to 5 and Figures 11 to 14, on the profile of its
K40 of 12 GB.

Its MB are MiB. It sums feature maps and gradients (layer_steps.py), here of programs with its memory facts.
Tables 4 and 5 are about nets that train: these are planned with the default facts and with momentum, and proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from minidnn.costs import profile
from minidnn.jobs.search import Largest, largest
from minidnn.jobs.series import Series
from minidnn.jobs.solver_file import understand
from minidnn.layers import FACTS
from minidnn.memory.budget import BudgetError
from minidnn.memory.execution.simulator import simulate
from minidnn.memory.execution.trace import copied
from minidnn.memory.planning import arrange
from minidnn.memory.policies import CHOOSING
from minidnn.memory.schedule import Schedule
from minidnn.nets.net import Net
from minidnn.optimizers import SGD
from minidnn.program import Program
from minidnn.programs.build import programs
from minidnn.programs.spec import TrainSpec
from minidnn_papers.layer_steps import LayerSteps, layer_steps
from minidnn_papers.numbers import superneurons as papers
from minidnn_papers.part import Part
from minidnn_papers.row import MIB, TRAINS, UNFOUNDED, Directed, Row, Tell, Trial, lower

SYSTEM = "superneurons"
GB = 10**9
K40 = 12 * GB
ALL = 1 << 50  # bytes: no budget stands in the way
COSTS = replace(profile("k40"), memory=K40)
TRAINED = TrainSpec(SGD(momentum=0.9))

OTHERS = "another framework's, which is not run here"
STEP_OF_5 = lower("in the paper one map of 49.5 MB more, CONV4's, is on the device then; the peak is elsewhere")
POOL = (
    "between cudaMalloc at run time and a pool; here nothing is allocated while a step runs, so there is no other side"
)
BATCH = "the paper does not say the batch, nor which tensors its forks and joins have; ours is of batch 16"
HOST = 256 << 30  # bytes of the host that the search for a batch may use: it ends where the device is full
DEPTH = (
    "ours is the first depth of the family not below the paper's, planned and proved: how much deeper it goes is not "
    "searched here (`minidnn search --max depth`)"
)
LARGER = "the largest multiple of 16 that is planned and proved within 12 GB and 256 GiB of the host."
THREE = "with the paper's facts and its three techniques, without the cache"
BATCH_NORM = "with BatchNorm's three maps, in 12 GB to the byte; its grid of batches is not said"
CACHE = (
    "what convolutions write, out and back, in GiB; the paper's figures grow exactly twice as fast with the batch."
    " 0.25 GB remain at every batch then"
)
TWICE = "twice ours, as if each copy counted twice"
ALL_FITS = lower("all of it fits here beside its weights; the paper's pool was smaller than 12 GB")
SIMULATED = "simulated, from a roofline of the K40"
LINK = 8 * GB  # bytes per second, the paper's between CPU and GPU
WAITED = "with the paper's own bytes (Table 3), at its 8 GB/s, and nothing beside the copies"
FORESIGHT = (
    "ours: what it costs to begin a copy out when room is needed; superneurons, in the same bytes, begins ahead, or "
    "runs again"
)
PAPERS = "superneurons_on_demand"  # the policy whose cache is the paper's


def program(name: str, batch: int, facts: str = "superneurons", train: TrainSpec | None = None) -> Program:
    net, _, _ = understand(name, batch=batch)
    return programs(net, train, ("TRAIN",), facts=FACTS[facts])["TRAIN"]


def one_norm(name: str, batch: int) -> Program:
    """The program of a net without its Scale layers, because the paper's BN is one layer: BatchNorm with Scale."""
    net, _, _ = understand(name, batch=batch)
    layers = [layer for layer in net.parameter.layer if layer.type != "Scale"]
    net = Net.from_parameter(net.parameter.model_copy(update={"layer": layers}))
    return programs(net, None, ("TRAIN",), facts=FACTS["superneurons"])["TRAIN"]


def schedule(p: Program, policy: str, budget: int = ALL) -> Schedule:
    """The schedule of `p` under a policy; if that names and chooses no algorithms, with those of least workspace."""
    name = policy if ":" in policy or policy in CHOOSING else f"{policy}:m"
    return arrange([p], name, COSTS, budget).schedules["TRAIN"]


def moved(s: Schedule) -> int:
    """Bytes that swapping copies in a step, out and back: without the program's inputs and outputs."""
    result = copied(s.instructions, s)
    return result["offload_bytes"] + result["prefetch_bytes"]


Found = Iterator[tuple[Any, ...]]  # the fields of a Row behind the system's

# ---- bytes, from shapes --------------------------------------------------------------------------------------


def series(tell: Tell) -> Found:
    tell("SuperNeurons: the AlexNet series")
    p = program("superneurons_alexnet", 200)
    result = {
        policy: layer_steps(schedule(p, policy))
        for policy in ("baseline_sum", "liveness", "superneurons_offload", "superneurons_cost_aware")
    }

    def row(what: str, policy: str, quantity: str, paper: float, ours: float, reason: str | Directed = ""):  # type: ignore[no-untyped-def]
        return "section 3, Figure 10", f"AlexNet (200), {what}", quantity, paper, ours, reason

    def peak(of: LayerSteps) -> float:
        return round(of.peak / MIB, 3)

    base, live, pool, again = result.values()
    yield row("baseline", "baseline_sum", "tensors", 36, base.tensors)
    yield row("baseline", "baseline_sum", "peak, MiB", 2189.437, peak(base))
    yield row("liveness", "liveness", "peak, MiB", 1489.355, peak(live))
    yield row("liveness", "liveness", "step of the peak", 32, live.peak_step)
    why = "the sum of the shapes at step 39; the paper's own figures differ by as much between text and table elsewhere"
    yield row("offload and prefetch", "superneurons_offload", "peak, MiB", 1132.155, peak(pool), why)
    yield row("offload and prefetch", "superneurons_offload", "step of the peak", 39, pool.peak_step)
    at_pool5 = round(pool.bytes[31] / MIB, 1)
    yield row("offload and prefetch", "superneurons_offload", "step 32 (POOL5), MiB", 1075.9, at_pool5, STEP_OF_5)
    yield row("cost-aware recomputation", "superneurons_cost_aware", "peak, MiB", 886.23, peak(again))
    yield row("cost-aware recomputation", "superneurons_cost_aware", "step of the peak", 44, again.peak_step)


def table_1(tell: Tell) -> Found:
    made = {
        "AlexNet (200)": lambda: program("superneurons_alexnet", 200),
        "ResNet50": lambda: one_norm("resnet50", 16),
    }
    for name, wanted in papers.TABLE_1.items():
        tell(f"SuperNeurons: recomputation of {name}")
        p = made[name]()
        for how, (again, peak) in wanted.items():
            result = layer_steps(schedule(p, f"superneurons_{how}"))
            case = f"{name}, {how.replace('_', '-')}"
            yield "Table 1", case, "extra forwards", again, result.again, ""
            reason = "" if name.startswith("AlexNet") else BATCH
            yield "Table 1", case, "peak, MiB", peak, round(result.peak / MIB, 3), reason


def table_2(tell: Tell) -> Found:
    gains = {"AlexNet (128)": 1.12, "VGG16 (16)": 1.19, "InceptionV4 (16)": 1.48, "ResNet50 (16)": 1.53}
    for name, gain in (gains | {"ResNet101 (16)": 1.68, "ResNet152 (16)": 1.77}).items():
        yield "Table 2", name, "speed with a memory pool, relative", gain, None, POOL


def table_3(tell: Tell) -> Found:
    lost, waited = 0.0, 0.0
    for batch, (without, with_) in papers.TABLE_3.items():
        tell(f"SuperNeurons: transfers of AlexNet ({batch})")
        p = program("superneurons_alexnet", batch)
        pooled, cached = schedule(p, "superneurons_offload:p"), schedule(p, PAPERS, K40)
        case = f"AlexNet ({batch})"
        ours = moved(pooled) / 2**30
        yield (
            "Table 3",
            f"{case}, without cache",
            "moved a step, GB",
            without,
            round(ours, 2),
            CACHE,
            Trial(TWICE, 2 * ours, UNFOUNDED),
        )
        reason = ALL_FITS if with_ else ""
        yield "Table 3", f"{case}, with cache", "moved a step, GB", with_, round(moved(cached) / 2**30, 2), reason
        lost = max(lost, _loss(simulate(pooled, COSTS).seconds, cached))
        waited = max(waited, _loss(simulate(cached, COSTS).seconds + without * 2**30 / LINK, cached))
    case, what = "AlexNet (256 to 1024), without cache", "largest loss of speed"
    beside = lower(f"{SIMULATED}; our copies run beside compute from end to end, the paper's wait for host and driver")
    yield "Figure 11", case, what, 0.3333, round(lost, 4), beside, Trial(WAITED, round(waited, 4))
    yield from _on_demand()


def _loss(seconds: float, cached: Schedule) -> float:
    """The part of its speed that a step loses by taking so many seconds, against one with a cache."""
    return 1 - simulate(cached, COSTS).seconds / seconds


def _on_demand(batch: int = 256) -> Found:
    """What the paper's cache loses against copies out with foresight, in parts of the bytes that a step takes."""
    p = program("superneurons_alexnet", batch)
    whole = schedule(p, PAPERS, K40).arena
    for part in (0.8, 0.6):
        ours, ahead = (schedule(p, policy, int(part * whole)) for policy in (PAPERS, "superneurons"))
        case = f"AlexNet ({batch}), the cache in {part:.0%} of {whole / MIB:.0f} MiB"
        loss = _loss(simulate(ours, COSTS).seconds, ahead)
        yield "Figure 11", case, "loss of speed against foresight", None, round(loss, 4), FORESIGHT


# ---- what trains ---------------------------------------------------------------------------------------------


def figure_12(tell: Tell) -> Found:
    tell("SuperNeurons: workspaces of AlexNet")
    p = program("superneurons_alexnet", 300)
    for pool, speed in ((3, 203), (5, 240)):
        seconds = simulate(schedule(p, PAPERS, pool * GB), COSTS).seconds
        case = f"AlexNet (300), a pool of {pool} GB"
        yield "Figure 12", case, "images per second", speed, round(300 / seconds, 1), SIMULATED


def fits(name: str, batch: int) -> bool:
    """Whether a plan of superneurons for training the net fits into 12 GB, and is proved."""
    try:
        arrange([program(name, batch, "default", TRAINED)], "superneurons", COSTS, K40)
    except BudgetError:
        return False
    return True


def table_4(tell: Tell) -> Found:
    """The deepest ResNet of n1 = 6, n2 = 32, n4 = 6 blocks, by its n3."""
    tell("SuperNeurons: a ResNet of 1922 layers (one plan, about a minute)")
    ours = 1922 if fits("superneurons_resnet1922", 16) else None
    case = "ResNet, batch 16, SuperNeurons"
    reason = DEPTH if ours else "it does not fit"
    yield "Table 4", case, "layers", 1920, ours, reason, None, ours is not None
    for name, depth in papers.DEPTHS.items():
        yield "Table 4", f"ResNet, batch 16, {name}", "layers", depth, None, OTHERS
    deepest = max(papers.DEPTHS, key=papers.DEPTHS.__getitem__)
    what, other = f"depth over that of {deepest}, the deepest of the others", papers.DEPTHS[deepest]
    yield "abstract", case, what, papers.DEEPER, ours and ours / other, reason, None, ours is not None


def deepest(tell: Tell) -> Found:
    tell("SuperNeurons: a ResNet of 2500 units at batch 1 (one plan, two minutes or more)")
    deep = program(f"superneurons_resnet{3 * papers.UNITS + 2}", 1, "default", TrainSpec(SGD()))
    reason = "planned and proved, with plain SGD; with momentum its weights and history alone take 20 GiB"
    try:
        arrange([deep], "superneurons_cost_aware:m", COSTS, K40)
        ours = 1.0
    except BudgetError:
        ours = 0.0
    yield "abstract", f"ResNet of {papers.UNITS} units, batch 1", TRAINS, 1, ours, reason


GRID = 16  # the paper's batches are multiples of it, but for AlexNet's 8 of them


def table_5(tell: Tell) -> Found:
    for name, (title, caffe, paper) in papers.TABLE_5.items():
        tell(f"SuperNeurons: the largest batch of {title}")
        result = largest_batch(name, paper, "default", "superneurons")
        tried = largest_batch(name, paper, "superneurons", "superneurons_cost_aware:m")
        host = 0 if result.arrangement is None else result.arrangement.off_device / 2**30
        reason = f"{LARGER} It takes {host:.0f} GiB of the host"
        yield "Table 5", f"{title}, SuperNeurons", "largest batch", paper, result.size, reason, Trial(THREE, tried.size)
        why = f"by data and diff of every blob, {BATCH_NORM}"
        yield "Table 5", f"{title}, Caffe", "largest batch", caffe, caffes(name), why


def largest_batch(name: str, near: int, facts: str, policy: str) -> Largest:
    """The largest multiple of GRID at which the policy trains the net in 12 GB, with at most HOST bytes on the host."""

    def make(batch: int) -> list[Program]:
        return [program(name, batch, facts, TRAINED)]

    return largest(make, Series(GRID, GRID, 64 * near), policy, COSTS, K40, (near // 2, near), HOST)


def caffes(name: str) -> int:
    """The largest batch for which Caffe's own allocation fits into 12 GB: its bytes are linear in the batch."""
    few, many = (
        schedule(program(name, batch, "caffe", TRAINED), "baseline_caffe").arena for batch in (16, 32)
    )  # fmt: skip
    return int(16 + (K40 - few) / ((many - few) / 16))


def others(tell: Tell) -> Found:
    sizes = {"AlexNet": 3.2, "VGG16": 4.9, "ResNet50": 13.2, "ResNet101": 19.4, "ResNet152": 19.8}
    for name, times in sizes.items():
        yield "Figure 13", name, "size of the model over Caffe's", times, None, "how the paper takes a size is not said"


def _part(found: Callable[[Tell], Found], *figures: str) -> Part:
    return Part(lambda tell: (Row(SYSTEM, *fields) for fields in found(tell)), figures)


PARTS = (
    _part(series, "section 3, Figure 10"),
    _part(table_1, "Table 1"),
    _part(table_2, "Table 2"),
    _part(table_3, "Table 3", "Figure 11"),
    _part(figure_12, "Figure 12"),
    _part(table_4, "Table 4", "abstract"),
    _part(deepest, "abstract"),
    _part(table_5, "Table 5"),
    _part(others, "Figure 13"),
)
