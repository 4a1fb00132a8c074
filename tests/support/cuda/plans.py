"""Checks of cuDNN's plans, without a GPU.

tests/backends/cuda/test_cudnn.py runs each check in a process of its own, because cuDNN ends the process on some
errors. A check asserts, and prints its counts.

    python -m tests.support.cuda.plans DRIVER CHECK [ARGUMENT...]

DRIVER: the library made of tests/support/cuda/driver.c, with which cuDNN also lists plans that it would have to
compile, as on a GPU; or "none".
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from time import perf_counter

from ruamel.yaml import YAML

from minidnn.backends.cuda import Planner, convolution, inner_product, packages
from minidnn.backends.cuda.cudnn import LITTLE, B, Cudnn, NoPlan, Settings, Target, W, X, Y
from minidnn.backends.cuda.nan import one_image
from minidnn.backends.cuda.recipe import Execute, Pointer, Read, Recipe, Write
from minidnn.costs import Costs, estimate
from minidnn.formats import FORMATS
from minidnn.jobs.solver_file import understand
from minidnn.memory.budget import BudgetError
from minidnn.memory.planning import arrange
from minidnn.memory.schedule import ALIGNMENT, Arrangement
from minidnn.optimizers import SGD
from minidnn.program import Op, Pass, Program, Tensor
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.programs.fusion.activation import FORWARD
from minidnn.programs.spec import TrainSpec
from minidnn.sizes import text
from tests.support.op_examples import Maker, attrs, convolutions, products

KINDS = {**convolution.OF_CUDNN, **inner_product.OF_CUDNN}
GPUS = YAML(typ="safe").load(Path(__file__).with_name("gpus.yaml"))["gpus"]
NETS = {"vgg19": 64, "resnet50": 32, "googlenet": 32}
POLICIES = ("baseline:m", "baseline:p", "liveness:m", "vdnn_all:m", "vdnn_all:p", "vdnn_dyn")
EVERY = 10**6  # plans: more than exist


def of_ampere(card: str) -> bool:
    """Whether the card has TF32 and bfloat16, which came with compute capability 8.0."""
    return bool(GPUS[card]["deviceVer"] >= 800)


def formats_of(card: str) -> tuple[str, ...]:
    return tuple(FORMATS) if of_ampere(card) else ("float32", "float16")


def library(card: str, **settings) -> Cudnn:
    module = packages.load(gpu=False).cudnn
    return Cudnn(module, Target.properties(module, GPUS[card]), Settings(**settings))


@cache
def lowered(net: str, format: str = "float32") -> tuple[Program, ...]:
    """The programs for training a net, TRAIN and TEST."""
    found, _, _ = understand(net, batch=NETS[net])
    train = TrainSpec(SGD(momentum=0.9, weight_decay=5e-4))
    return tuple(programs(found, train, ("TRAIN", "TEST"), format=format, fuses=as_cuda).values())


def computed(net: str) -> list[Op]:
    return [op for program in lowered(net) for op in program.ops if op.kind in KINDS]


def whole(op: Op, recipes: list[Recipe]) -> int:
    """Check an op's recipes for properties that all must have. Returns how many there are."""
    assert recipes, op
    names = [r.algorithm.name for r in recipes]
    assert len(set(names)) == len(names), (op, names)
    assert len(recipes) <= 40, (op, len(recipes))
    for recipe in recipes:
        (step,) = recipe.steps
        assert isinstance(step, Execute)
        assert step.plan.workspace <= step.workspace.nbytes
        assert step.workspace.offset + step.workspace.nbytes <= recipe.algorithm.workspace
        assert recipe.algorithm.workspace % ALIGNMENT == 0
        pointers = {pointer for _, pointer in step.pack}
        assert pointers == {*map(Read, range(len(op.reads))), *map(Write, range(len(op.writes)))}, op
        for uid, pointer in step.pack:
            assert size(step.plan.problem, uid) == tensor(op, pointer).size, (op, uid)
    return len(recipes)


def size(problem, uid: int) -> int:
    """Elements of a graph's tensor."""
    shape = {X: problem.x, W: problem.w, Y: problem.y, B: problem.w[:1]}[uid]
    total = 1
    for n in shape:
        total *= n
    return total


def tensor(op: Op, pointer: Pointer) -> Tensor:
    assert isinstance(pointer, Read | Write)
    return (op.reads if isinstance(pointer, Read) else op.writes)[pointer.index]


def best_first(recipes: list[Recipe]) -> bool:
    """Whether the recipes of each problem are in cuDNN's order."""
    ways: dict[object, list[int]] = {}
    for recipe in recipes:
        plan = recipe.steps[0].plan
        ways.setdefault(plan.problem, []).append(plan.index)
    return all(found == sorted(found) for found in ways.values())


# ---- checks ----------------------------------------------------------------------------------------------------


def nets(card: str) -> None:
    """Every convolution and product of real nets, all passes, has plans in cuDNN's order, one with little workspace."""
    for tf32, net in product((True, False), NETS):
        cudnn = library(card, tf32=tf32)
        start, plans, ops = perf_counter(), 0, computed(net)
        most = least = 0
        geometries = set()
        for op in ops:
            recipes = KINDS[op.kind](cudnn, op)
            plans += whole(op, recipes)
            assert best_first(recipes), op
            sizes = [r.algorithm.workspace for r in recipes]
            assert min(sizes) <= LITTLE, (op, sizes)
            most, least = max(most, *sizes), max(least, min(sizes))
            geometries |= {r.steps[0].plan.problem for r in recipes}
        print(
            f"{GPUS[card]['deviceName']}, {cudnn.settings}: {net} (batch {NETS[net]}): {len(ops)} ops, "
            f"{len(geometries)} graphs, {plans} plans in {perf_counter() - start:.2f} s; "
            f"an op's least workspace at most {text(least)}, the greatest listed {text(most)}"
        )


def large(card: str) -> None:
    """A batch of 2^31 elements or more has the plans of its slices: as many as the largest batch below."""
    cudnn = library(card)
    for format in [f for f in formats_of(card) if f != "float32"]:
        for kind in ("convolution.backward_filter", "convolution.forward", "convolution.backward_data"):
            counts = [len(_recipes_of(cudnn, kind, batch, format)) for batch in (668, 669, 1400)]
            assert min(counts) > 1 and max(counts) - min(counts) <= max(counts) // 10, (kind, format, counts)
            print(
                f"{GPUS[card]['deviceName']}, {format}: {kind} of 64x224x224: plans at batch 668, 669, 1400: {counts}"
            )
        x, w, y = (Tensor(n, s, format) for n, s in (("x", (65536, 768)), ("w", (50257, 768)), ("y", (65536, 50257))))
        for kind, reads, written in (
            ("inner_product.forward", (x, w), y),
            ("inner_product.backward_data", (w, y), x),
            ("inner_product.backward_filter", (x, y), w),
        ):
            op = Op(f"head.{kind}", kind, "head", Pass.FORWARD, reads, (written,))
            recipes = KINDS[kind](cudnn, op)
            steps = {len(r.steps) for r in recipes}
            assert len(recipes) > 8 and steps == {3 if kind.endswith("filter") else 2}, (op, len(recipes), steps)
            print(f"{GPUS[card]['deviceName']}, {format}: {kind} of 65536 x 50257: {len(recipes)} plans, in two slices")


def _recipes_of(cudnn: Cudnn, kind: str, batch: int, format: str) -> list[Recipe]:
    """The recipes for vgg's second convolution."""
    op = conv(kind, (batch, 64, 224, 224), 64, (3, 3), (1, 1), (1, 1), (1, 1), 1, format)
    recipes = KINDS[kind](cudnn, op)
    for recipe in recipes:
        for step in recipe.steps:
            assert not isinstance(step, Execute) or all(size(step.plan.problem, uid) < 2**31 for uid, _ in step.pack)
    return recipes


def limits(card: str) -> None:
    """A limit of workspace is obeyed, and some plans remain."""
    for limit in (LITTLE, 64 << 20):
        cudnn = library(card, limit=limit)
        plans = 0
        for op in computed("vgg19"):
            for recipe in KINDS[op.kind](cudnn, op):
                plans += 1
                assert recipe.steps[0].plan.workspace <= limit, (op, recipe)
        print(f"{GPUS[card]['deviceName']}: {plans} plans within {text(limit)}")


def same_each_time(card: str) -> None:
    """The names and workspaces of plans do not change from one time to the next: files and caches keep them."""
    first, second = library(card), library(card)
    for op in computed("resnet50"):
        a, b = ([r.algorithm for r in KINDS[op.kind](c, op)] for c in (first, second))
        assert a == b, op


def barred(card: str) -> None:
    """Without TF32 there are fewer plans and no new ones; the same if only deterministic ones are allowed."""
    every = library(card, deterministic=False, most=EVERY)
    for what, fewer in {
        "without TF32": library(card, deterministic=False, tf32=False, most=EVERY),
        "deterministic": library(card, most=EVERY),
    }.items():
        gone = 0
        for op in computed("vgg19"):
            all_, some = (KINDS[op.kind](c, op) for c in (every, fewer))
            names = [{r.algorithm.name for r in recipes} for recipes in (all_, some)]
            assert names[1] <= names[0], op
            gone += len(names[0] - names[1])
        print(f"{GPUS[card]['deviceName']}: {gone} plans are gone {what}")
        assert gone or (what == "without TF32" and not of_ampere(card))  # tensor cores before Ampere take no float32


def compiled() -> None:
    """Plans that cuDNN would compile are recognised before they are built, and used only if there are no others."""
    cudnn, seen = library("h200"), []
    is_compiled = cudnn._is_compiled

    def recorded(graph, index):
        seen.append(is_compiled(graph, index))
        return seen[-1]

    cudnn._is_compiled = recorded  # type: ignore[method-assign]
    ops = [in_format(op, "float16") for op in known_geometries()]
    start = perf_counter()
    plans = [r.steps[0].plan for op in ops for r in KINDS[op.kind](cudnn, op)]
    seconds = perf_counter() - start
    names = {note.name for p in plans for note in p.graph.get_behavior_notes_for_plan_at_index(p.index)}
    print(f"float16: {len(ops)} ops, {len(seen)} plans in {seconds:.2f} s, {sum(seen)} of them would be compiled")
    assert sum(seen) > 0, "none to recognise"
    assert "RUNTIME_COMPILATION" not in names
    # If all plans have to be compiled, the first ones are.
    alone = library("h200")
    alone._is_compiled = lambda graph, index: True  # type: ignore[method-assign]
    assert [len(KINDS[op.kind](alone, op)) for op in ops[:2]] == [2, 2]


def shared() -> None:
    """Ops of one geometry share one graph; a forward pass in TRAIN and TEST does, too."""
    cudnn = library("h200")
    made = 0
    graph = cudnn._graph

    def counted(problem):
        nonlocal made
        made += 1
        return graph(problem)

    cudnn._graph = counted  # type: ignore[method-assign]
    ops = computed("vgg19")
    plans = [r.steps[0].plan for op in ops for r in KINDS[op.kind](cudnn, op)]
    assert made == len({p.problem for p in plans}) == len({id(p.graph) for p in plans}) < len(ops)
    print(f"{len(ops)} ops of vgg19, {made} graphs")


def odd(card: str) -> None:
    """Groups, dilation, 1x1, 7x7 stride 2, 11x11 stride 4, rectangular windows, products of few rows: all passes."""
    maker = Maker(0)
    ops = [e.op for found in (convolutions(maker), products(maker)) for e in found if e.op.kind in KINDS]
    ops += known_geometries()
    count = 0
    for settings in ({}, {"tf32": False}):
        cudnn = library(card, **settings)
        for op in ops:
            recipes = KINDS[op.kind](cudnn, op)
            count += whole(op, recipes)
            assert best_first(recipes)
            assert min(r.algorithm.workspace for r in recipes) <= LITTLE, op
    print(f"{GPUS[card]['deviceName']}: {len(ops)} odd ops, {count} plans with and without TF32")


def formats(*cards: str) -> None:
    """float16 on all cards; bfloat16 from compute capability 8.0 on, and a clear refusal before."""
    for card in cards:
        for dtype in ("float16", "bfloat16"):
            cudnn, count, refused = library(card), 0, 0
            ops = [in_format(op, dtype) for op in (*known_geometries(), *computed("resnet50"))]
            for op in ops:
                try:
                    count += whole(op, KINDS[op.kind](cudnn, op))
                except NoPlan as error:
                    refused += 1
                    assert op.name in str(error) and GPUS[card]["deviceName"] in str(error), error
                    assert "bfloat16 needs compute capability 8.0" in str(error), error
            print(f"{GPUS[card]['deviceName']}, {dtype}: {len(ops)} ops, {count} plans, {refused} ops refused")
            assert refused == (0 if dtype in formats_of(card) else len(ops))


def halved(card: str) -> None:
    """Whole nets in 16 bits: every op has recipes, and schedules are planned, placed and proved, in fewer bytes."""
    device = Planner(library(card), GPUS[card]["totalGlobalMem"], GPUS[card]["deviceName"])
    costs = estimate(device)
    for net in ("vgg19", "resnet50"):
        arenas: dict[str, list[int]] = {}
        for format in formats_of(card):
            for policy in ("liveness:m", "vdnn_all:m", "vdnn_all:p"):
                arrangement = arrange(lowered(net, format), policy, costs)
                within(arrangement, costs)
                arenas.setdefault(format, []).append(arrangement.arena)
        whole = arenas.pop("float32")
        for format, found in arenas.items():
            assert all(half < 0.8 * full for half, full in zip(found, whole, strict=True)), arenas
            sizes = ", ".join(f"{text(half)} of {text(full)}" for half, full in zip(found, whole, strict=True))
            print(f"{device.description}: {net} (batch {NETS[net]}) in {format}: arenas {sizes}")


def refusals() -> None:
    """The message for a geometry without a plan names the op, the geometry, the card, and a remedy."""
    op = conv("convolution.forward", (2, 8, 9, 9), 16, (3, 3), (1, 1), (1, 1), (1, 1), 1, "float32")
    nothing = library("a100", limit=-1)  # no plan has that little workspace
    for cudnn, advice in ((nothing, "allow more workspace"), (library("t4", tf32=False, limit=-1), "allow TF32")):
        try:
            KINDS[op.kind](cudnn, op)
        except NoPlan as error:
            for word in (op.name, "x 2x8x9x9, w 16x8x3x3", cudnn.target.card, f"cuDNN {cudnn.version}", advice):
                assert word in str(error), word
        else:
            raise AssertionError("planned without workspace")
    x, w, y = Tensor("x", (2, 3, 4, 5)), Tensor("w", (7, 60)), Tensor("y", (2, 7))
    half = Tensor("w", (7, 3, 4, 5), "float16")
    mixed, several = (
        Op("fc.forward", "inner_product.forward", "fc", Pass.FORWARD, (x, weights), (y,)) for weights in (w, half)
    )
    for op, word in ((mixed, "lie in different orders"), (several, "several")):
        try:
            KINDS[op.kind](library("h200"), op)
        except NoPlan as error:
            assert word in str(error) and "fc" in str(error), error
        else:
            raise AssertionError(f"planned {op.reads}")


def schedules(card: str) -> None:
    """With these workspaces whole steps are planned, placed and proved, also under a budget."""
    device = Planner(library(card), GPUS[card]["totalGlobalMem"], GPUS[card]["deviceName"])
    costs = estimate(device)
    for net in NETS:
        arenas: dict[str, int] = {}
        proved, most = 0, 0
        for op in {op for program in lowered(net) for op in program.ops}:
            workspaces = [a.workspace for a in device.algorithms(op)]
            if op.kind not in KINDS:  # computed by our own kernels, whose workspace holds sums
                most = max(most, *workspaces)
                assert max(workspaces) <= max(t.nbytes for t in op.tensors), op
        for policy in POLICIES:
            arrangement = arrange(lowered(net), policy, costs)
            arenas[policy] = arrangement.arena
            proved += within(arrangement, costs)
        # vdnn_dyn must keep the budget that vdnn_all needs with the fastest algorithms
        arrangement = arrange(lowered(net), "vdnn_dyn", costs, arenas["vdnn_all:p"])
        assert arrangement.arena <= arenas["vdnn_all:p"]
        proved += within(arrangement, costs)
        assert arenas["vdnn_all:m"] < arenas["liveness:m"] <= arenas["baseline:m"], arenas
        assert arenas["vdnn_all:m"] <= arenas["vdnn_all:p"], arenas
        try:
            arrange(lowered(net), "baseline:m", costs, arenas["vdnn_all:m"])
        except BudgetError:
            pass
        else:
            raise AssertionError("baseline keeps vdnn_all's budget")
        sizes = ", ".join(f"{policy} {text(arena)}" for policy, arena in arenas.items())
        print(
            f"{device.description}: {net} (batch {NETS[net]}): {proved} schedules proved; arenas: {sizes}; "
            f"the greatest workspace of our own kernels {text(most)}"
        )


def within(arrangement: Arrangement, costs: Costs) -> int:
    """Check that each op has an algorithm that the device offers, and room for its workspace.

    `arrange` has proved the schedules. Returns how many there are."""
    for schedule in arrangement.schedules.values():
        for op, algorithm in schedule.plan.algorithm.items():
            assert algorithm in {c.algorithm for c in costs.choices(op)}, op
            room = sum(t.nbytes for t in op.tensors) + algorithm.workspace
            assert room <= schedule.live_peak <= schedule.arena <= arrangement.arena, op
    return len(arrangement.schedules)


def fusing(card: str) -> None:
    """A forward pass with a bias has the same plans with its ReLU as without: fusing does not reduce the choice.

    One image, with which a GPU shows how cuDNN treats NaN, has plans of the same engines."""
    for format in formats_of(card):
        cudnn, plans, named, engines = library(card), 0, 0, 0
        ops = [op for net in ("vgg19", "googlenet") for p in lowered(net, format) for op in p.ops]
        ops = [op for op in ops if op.kind in FORWARD.values()]
        problems = {r.steps[0].plan.problem for op in ops for r in KINDS[op.kind](cudnn, op)}
        for problem in problems:
            assert problem.relu and problem.bias
            found = cudnn.plans(problem)
            apart = cudnn.plans(replace(problem, relu=False))
            assert [(p.name, p.workspace) for p in found] == [(p.name, p.workspace) for p in apart], problem
            one = {p.name for p in cudnn.listed(one_image(problem))}
            plans += len(found)
            named += sum(p.name in one for p in found)
            engines += sum(p.engine in {name.split("_")[0] for name in one} for p in found)
        assert engines > 0.9 * plans and named > 0.4 * plans
        print(
            f"{GPUS[card]['deviceName']}, {format}: {len(ops)} fused forward passes, {len(problems)} graphs, {plans} "
            f"plans, the same as without a ReLU; one image has {named} of them, and of their engines {engines}"
        )
    biasless = [op for op in computed("resnet50") if op.kind == "convolution.forward" and len(op.reads) == 2]
    assert biasless and "convolution.forward_relu" not in {op.kind for op in computed("resnet50")}
    device = Planner(library(card), GPUS[card]["totalGlobalMem"], GPUS[card]["deviceName"])
    refused = [op for op in biasless if not device.fuses(replace(op, kind="convolution.forward_relu"))]
    print(f"{GPUS[card]['deviceName']}: {len(refused)} of {len(biasless)} passes without a bias are not fused")
    assert refused == biasless, "as fusion.as_cuda says"


# ---- geometries ------------------------------------------------------------------------------------------------


def known_geometries() -> list[Op]:
    """Convolutions of known nets, all passes: AlexNet's (two groups), first layers, dilated, factored, depthwise."""
    table = [  # x, outputs, kernel, stride, pad, dilation, group
        ((128, 3, 227, 227), 96, (11, 11), (4, 4), (0, 0), (1, 1), 1),
        ((128, 96, 27, 27), 256, (5, 5), (1, 1), (2, 2), (1, 1), 2),
        ((128, 384, 13, 13), 384, (3, 3), (1, 1), (1, 1), (1, 1), 2),
        ((32, 3, 224, 224), 64, (7, 7), (2, 2), (3, 3), (1, 1), 1),
        ((32, 512, 28, 28), 512, (3, 3), (1, 1), (2, 2), (2, 2), 1),
        ((32, 256, 56, 56), 64, (1, 1), (1, 1), (0, 0), (1, 1), 1),
        ((32, 256, 56, 56), 512, (1, 1), (2, 2), (0, 0), (1, 1), 1),
        ((32, 128, 17, 17), 192, (1, 7), (1, 1), (0, 3), (1, 1), 1),
        ((32, 128, 17, 17), 192, (7, 1), (1, 1), (3, 0), (1, 1), 1),
        ((32, 64, 28, 29), 96, (5, 3), (2, 1), (1, 1), (1, 2), 1),
        ((32, 64, 28, 28), 64, (3, 3), (1, 1), (1, 1), (1, 1), 64),
        ((32, 96, 28, 28), 192, (3, 3), (2, 2), (1, 1), (1, 1), 32),
    ]
    return [conv(kind, *row, "float32") for row in table for kind in convolution.OF_CUDNN]


def conv(kind: str, x, outputs, kernel, stride, pad, dilation, group, dtype: str) -> Op:
    sizes = zip(x[2:], kernel, stride, pad, dilation, strict=True)
    out = tuple((h + 2 * p - (d * (k - 1) + 1)) // s + 1 for h, k, s, p, d in sizes)
    t = {
        "x": Tensor("x", tuple(x), dtype),
        "w": Tensor("w", (outputs, x[1] // group, *kernel), dtype),
        "b": Tensor("b", (outputs,), dtype),
        "y": Tensor("y", (x[0], outputs, *out), dtype),
    }
    reads, writes = {
        "convolution.forward": ("xwb", "y"),
        "convolution.forward_relu": ("xwb", "y"),
        "convolution.backward_data": ("wy", "x"),
        "convolution.backward_filter": ("xy", "w"),
    }[kind]
    a = attrs(kernel=kernel, stride=stride, pad=pad, dilation=dilation, group=group)
    return Op(f"conv1.{kind}", kind, "conv1", Pass.FORWARD, tuple(t[n] for n in reads), tuple(t[n] for n in writes), a)


def in_format(op: Op, dtype: str) -> Op:
    def cast(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(Tensor(t.name, t.shape, dtype, t.role) for t in tensors)

    return Op(op.name, op.kind, op.layer, op.during, cast(op.reads), cast(op.writes), op.attrs)


def without_cublas() -> None:
    """Without libcublasLt cuDNN would end the process; loading refuses before that."""
    folders = packages.folders
    packages.folders = lambda cuda: (f for f in folders(cuda) if not _has(f, "libcublasLt"))  # type: ignore[assignment]
    try:
        packages.load(gpu=False)
    except packages.CudaUnavailable as error:
        assert "cublasLt" in str(error) and "would end the process" in str(error) and "pip install" in str(error)
    else:
        raise AssertionError("loaded without cublasLt")


def _has(folder: str, stem: str) -> bool:
    return any(Path(folder).glob(f"{stem}.so*"))


def in_pieces() -> None:
    """If libraries of cuDNN are missing, the refusal names one."""
    import shutil
    import tempfile

    folders = packages.folders
    with tempfile.TemporaryDirectory() as name:
        source = next(f for f in map(Path, folders(packages.installed_cuda(None))) if (f / "libcudnn.so.9").exists())
        shutil.copy(source / "libcudnn.so.9", name)
        (Path(name) / "libcudnn_graph.so.9").symlink_to(source / "libcudnn_graph.so.9")
        packages.folders = lambda cuda: (name, *folders(cuda))  # type: ignore[assignment]
        try:
            packages.load(gpu=False)
        except packages.CudaUnavailable as error:
            wheel = packages._pip("cudnn", packages.installed_cuda(None))
            assert "libcudnn_heuristic.so.9" in str(error) and f"--force-reinstall {wheel}" in str(error)
        else:
            raise AssertionError("loaded half a cuDNN")


if __name__ == "__main__":
    if sys.argv[1] != "none":
        ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
    globals()[sys.argv[2]](*sys.argv[3:])
