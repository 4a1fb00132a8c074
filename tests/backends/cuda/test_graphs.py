"""What is said to cuDNN, by a frontend that only writes it down: shapes, strides, windows, uids, what is barred; and
which of its answers are taken. Needs no CUDA package. (What cuDNN answers: tests/backends/cuda/test_cudnn.py.)
"""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace

import pytest

from minidnn.backends import layout
from minidnn.backends.cuda import convolution, inner_product
from minidnn.backends.cuda.cudnn import (
    BACKWARD_DATA,
    BACKWARD_FILTER,
    FORWARD,
    B,
    Convolution,
    Cudnn,
    CudnnPlan,
    NoPlan,
    Settings,
    Target,
    W,
    X,
    Y,
    useful,
)
from minidnn.backends.cuda.packages import CudaUnavailable
from minidnn.backends.cuda.recipe import Read, Space, Write
from minidnn.program import Op, Pass, Tensor
from tests.support.op_examples import attrs


class Note(Enum):
    TENSOR_CORE = 1
    DOWN_CONVERT_INPUTS = 2
    REDUCED_PRECISION_REDUCTION = 3
    NONDETERMINISTIC = 4
    RUNTIME_COMPILATION = 5


class NotSupported(Exception):
    pass


class Graph:
    """Writes down what it is told. `plans`: (name, workspace, notes), best first."""

    def __init__(self, plans, **keywords) -> None:
        self.keywords, self.plans = keywords, plans
        self.tensors: dict[int, SimpleNamespace] = {}
        self.calls: list[tuple[str, dict]] = []
        self.built: list[int] = []
        self.barred: set[Note] = set()
        self.most: float = float("inf")
        self.executed: list[tuple] = []

    def tensor(self, uid, dim, stride, data_type):
        self.tensors[uid] = SimpleNamespace(uid=uid, dim=dim, stride=stride, dtype=data_type)
        return self.tensors[uid]

    def __getattr__(self, name):
        if name not in ("conv_fprop", "conv_dgrad", "conv_wgrad", "bias", "relu", "validate", "build_operation_graph"):
            raise AttributeError(name)

        def call(**arguments):
            self.calls.append((name, arguments))
            return Out(self)

        return call

    def create_execution_plans(self, modes):
        if not self.plans:
            raise NotSupported("no engine\n{much more}")

    def deselect_numeric_notes(self, notes):
        self.barred |= set(notes)

    def deselect_workspace_greater_than(self, most):
        self.most = most

    def get_execution_plan_count(self):
        return len(self.plans)

    def get_behavior_notes_for_plan_at_index(self, index):
        return [note for note in self.plans[index][2] if note is Note.RUNTIME_COMPILATION]

    def build_plan_at_index(self, index):
        _, workspace, notes = self.plans[index]
        if workspace > self.most or self.barred & set(notes):
            raise RuntimeError("deselected")
        self.built.append(index)

    def get_plan_name_at_index(self, index):
        return self.plans[index][0]

    def get_workspace_size_plan_at_index(self, index):
        return self.plans[index][1]

    def _execute_plan_at_index(self, *arguments):
        self.executed.append(arguments)


class Out:
    """The result of a graph's last operation, described link by link."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.said = graph, SimpleNamespace()

    def set_output(self, yes):
        assert yes
        return self

    def set_uid(self, uid):
        self.graph.tensors[uid] = self.said
        self.said.uid = uid
        return self

    def set_dim(self, dim):
        self.said.dim = dim
        return self

    def set_stride(self, stride):
        self.said.stride = stride
        return self

    def set_data_type(self, dtype):
        self.said.dtype = dtype
        return self


def library(plans, **settings) -> tuple[Cudnn, list[Graph]]:
    graphs: list[Graph] = []

    def pygraph(**keywords):
        graphs.append(Graph(plans, **keywords))
        return graphs[-1]

    module = SimpleNamespace(
        pygraph=pygraph,
        data_type=SimpleNamespace(FLOAT="FLOAT", HALF="HALF", BFLOAT16="BFLOAT16"),
        heur_mode=SimpleNamespace(A="A", FALLBACK="FALLBACK"),
        numerical_note=Note,
        behavior_note=Note,
        cudnnGraphNotSupportedError=NotSupported,
        backend_version_string=lambda: "9.0.0",
    )
    target = Target("A card", (8, 0), {"handle": 77}, 77)
    return Cudnn(module, target, Settings(**settings)), graphs  # type: ignore[arg-type]


ONE = [("eng1_k2=3", 131, ())]
KINDS = {**convolution.OF_CUDNN, **inner_product.OF_CUDNN}
x, w, b, y = (
    Tensor("x", (2, 6, 9, 10)),
    Tensor("w", (8, 3, 5, 3)),
    Tensor("b", (8,)),
    Tensor("y", (2, 8, 4, 6)),
)
A = attrs(kernel=(5, 3), stride=(2, 1), pad=(2, 0), dilation=(1, 2), group=2)

MIB = 1 << 20


def op(kind: str, reads, writes, a=None) -> Op:
    return Op(f"conv1.{kind}", kind, "conv1", Pass.FORWARD, tuple(reads), tuple(writes), a)


@pytest.mark.parametrize(
    "kind, reads, write, operation, named, pack",
    [
        ("forward", (x, w), y, "conv_fprop", {"image": X, "weight": W}, {X: Read(0), W: Read(1), Y: Write(0)}),
        ("forward", (x, w, b), y, "bias", {"bias": B}, {X: Read(0), W: Read(1), B: Read(2), Y: Write(0)}),
        ("forward_relu", (x, w, b), y, "relu", {}, {X: Read(0), W: Read(1), B: Read(2), Y: Write(0)}),
        ("backward_data", (w, y), x, "conv_dgrad", {"loss": Y, "filter": W}, {W: Read(0), Y: Read(1), X: Write(0)}),
        ("backward_filter", (x, y), w, "conv_wgrad", {"image": X, "loss": Y}, {X: Read(0), Y: Read(1), W: Write(0)}),
    ],
)
def test_a_convolution_is_said_as_it_is(kind, reads, write, operation, named, pack):
    cudnn, graphs = library(ONE)
    (recipe,) = KINDS[f"convolution.{kind}"](cudnn, op(f"convolution.{kind}", reads, [write], A))
    (graph,) = graphs
    assert graph.keywords == {
        "io_data_type": "FLOAT", "intermediate_data_type": "FLOAT", "compute_data_type": "FLOAT", "handle": 77,
    }  # fmt: skip
    called = dict(graph.calls)
    assert {name: called[operation][name].uid for name in named} == named
    assert ("relu" in called) == kind.endswith("_relu") and ("bias" in called) == (b in reads)
    (convolved,) = (said for name, said in graph.calls if name.startswith("conv_"))
    window = (convolved["padding"], convolved["stride"], convolved["dilation"])
    assert window == ([2, 0], [2, 1], [1, 2])  # height, width
    for uid, pointer in pack.items():
        tensor = write if isinstance(pointer, Write) else reads[pointer.index]
        shape = (1, 8, 1, 1) if uid == B else tensor.shape
        said = graph.tensors[uid]
        assert (tuple(said.dim), tuple(said.stride)) == (shape, layout.strides(shape))
    assert set(graph.tensors) == set(pack)
    (step,) = recipe.steps
    assert dict(step.pack) == pack
    assert recipe.algorithm.name == "eng1_k2=3" and step.plan.engine == "eng1"
    assert step.workspace == Space(0, 131) and recipe.algorithm.workspace == 256


@pytest.mark.parametrize("shapes", [((5, 12), (7, 12)), ((5, 3, 2, 2), (7, 3, 2, 2))])
def test_an_inner_product_is_said_in_two_ways(shapes):
    x, w, y = Tensor("x", shapes[0]), Tensor("w", shapes[1]), Tensor("y", (5, 7))
    cudnn, graphs = library(ONE)
    recipes = inner_product.forward(cudnn, op("inner_product.forward", (x, w), (y,)))
    assert [r.algorithm.name for r in recipes] == ["line.eng1_k2=3", "images.eng1_k2=3"]
    assert [tuple(graph.tensors[uid].dim) for graph in graphs for uid in (X, W, Y)] == [
        (1, 12, 1, 5), (7, 12, 1, 1), (1, 7, 1, 5), (5, 12, 1, 1), (7, 12, 1, 1), (5, 7, 1, 1),
    ]  # fmt: skip
    for graph in graphs:  # the rows lie one behind the other, either way
        for uid, row in ((X, 12), (Y, 7)):
            n = 0 if graph.tensors[uid].dim[0] == 5 else 3
            assert graph.tensors[uid].stride[n] == row and graph.tensors[uid].stride[1] == 1


def test_the_gradients_of_an_inner_product():
    x, w, dy = Tensor("x", (5, 12)), Tensor("w", (7, 12)), Tensor("dy", (5, 7))
    for kind, reads, write, pack in [
        ("backward_data", (w, dy), x, {W: Read(0), Y: Read(1), X: Write(0)}),
        ("backward_filter", (x, dy), w, {X: Read(0), Y: Read(1), W: Write(0)}),
    ]:
        cudnn, graphs = library(ONE)
        recipes = inner_product.OF_CUDNN[f"inner_product.{kind}"](cudnn, op(f"inner_product.{kind}", reads, (write,)))
        assert [dict(r.steps[0].pack) for r in recipes] == [pack, pack]
        assert [graph.calls[0][0] for graph in graphs] == [
            {"backward_data": "conv_dgrad", "backward_filter": "conv_wgrad"}[kind]
        ] * 2


def test_the_way_that_moves_fewer_bytes_comes_first():
    cudnn, _ = library(ONE)
    plan = {
        1: CudnnPlan(Convolution(FORWARD, (), (), ()), "far", 1 << 20, 0, None),
        5: CudnnPlan(Convolution(FORWARD, (), (), ()), "near", 131, 0, None),
    }
    cudnn.plans = lambda problem: (plan[problem.x[0]],)  # type: ignore[method-assign]
    tensors = Tensor("x", (5, 12)), Tensor("w", (7, 12)), Tensor("y", (5, 7))
    recipes = inner_product.forward(cudnn, op("inner_product.forward", tensors[:2], tensors[2:]))
    assert [r.algorithm.name for r in recipes] == ["images.near", "line.far"]


@pytest.mark.parametrize(
    "dtype, settings, barred",
    [
        ("float32", {}, {Note.REDUCED_PRECISION_REDUCTION, Note.NONDETERMINISTIC}),
        ("float32", {"deterministic": False}, {Note.REDUCED_PRECISION_REDUCTION}),
        ("float32", {"tf32": False}, set(Note) - {Note.RUNTIME_COMPILATION}),
        ("float16", {"tf32": False}, {Note.REDUCED_PRECISION_REDUCTION, Note.NONDETERMINISTIC}),
    ],
)
def test_what_is_barred(dtype, settings, barred):
    cudnn, graphs = library(ONE, **settings)
    cudnn.plans(Convolution(FORWARD, (1, 8, 4, 4), (8, 8, 1, 1), (1, 8, 4, 4), dtype=dtype))
    assert graphs[0].barred == barred
    assert graphs[0].keywords["compute_data_type"] == "FLOAT"


def test_compiled_plans_are_built_only_where_there_is_no_other():
    problem = Convolution(BACKWARD_DATA, (1, 8, 4, 4), (8, 8, 1, 1), (1, 8, 4, 4))
    compiled = (f"eng9_k={i}" for i in range(9))
    slow = [(name, 0, (Note.RUNTIME_COMPILATION,)) for name in compiled]
    cudnn, graphs = library([slow[0], ("eng1", 0, ()), slow[1], ("eng2", 0, (Note.NONDETERMINISTIC,))])
    assert [p.name for p in cudnn.plans(problem)] == ["eng1"]
    assert graphs[0].built == [1]
    cudnn, graphs = library(slow)
    assert [p.name for p in cudnn.plans(problem)] == ["eng9_k=0", "eng9_k=1"]
    assert graphs[0].built == [0, 1]


def test_plans_that_cannot_be_useful_are_not_built():
    problem = Convolution(FORWARD, (1, 8, 4, 4), (8, 8, 1, 1), (1, 8, 4, 4))
    sizes = [9 * MIB, MIB, 0, 0, 2 * MIB]
    cudnn, graphs = library([(f"eng{i}", size, ()) for i, size in enumerate(sizes)], most=2)
    assert [p.name for p in cudnn.plans(problem)] == ["eng0", "eng1", "eng2"]
    assert graphs[0].built == [0, 1, 2]
    assert len(cudnn.listed(problem)) == 5


def test_avoided_plans_are_not_offered():
    problem = Convolution(FORWARD, (1, 8, 4, 4), (8, 8, 1, 1), (1, 8, 4, 4))
    plans = [("eng34_k2=1", 0, ()), ("eng3_k2=1", 0, ()), ("eng34_k2=2", 0, ())]
    cudnn, graphs = library(plans, avoid=("eng34", "k9=9"))
    assert [p.name for p in cudnn.plans(problem)] == ["eng3_k2=1"]
    assert graphs[0].built == [1], "an avoided plan is not built either: cuDNN may crash while it is"
    cudnn, _ = library(plans, avoid=("eng34", "eng3_"))
    with pytest.raises(NoPlan, match=r"layer conv1.*none of eng34, eng3_.*avoid fewer plans"):
        convolution.forward(cudnn, op("convolution.forward", (x, w), (y,), A))


@pytest.mark.parametrize("plans", [[], [("eng1", 0, (Note.NONDETERMINISTIC,))], [("eng1", 4096, ())]])
def test_no_plan(plans):
    cudnn, _ = library(plans, limit=1024)
    with pytest.raises(NoPlan) as error:
        convolution.backward_filter(cudnn, op("convolution.backward_filter", (x, y), (w,), A))
    said = str(error.value)
    for words in (
        "layer conv1", "conv1.convolution.backward_filter", "x 2x6x9x10, w 8x3x5x3, y 2x8x4x6", "group 2", "A card",
        "cuDNN 9.0.0", "compute capability 8.0", "allow more workspace", 'device="cpu"',
    ):  # fmt: skip
        assert words in said
    assert ("cuDNN says: no engine)" in said) == (not plans)


def test_a_geometry_is_asked_for_once_and_executed_as_told():
    cudnn, graphs = library([("eng1", 0, ()), ("eng2", 256, ())])
    first, second = (
        convolution.forward(cudnn, op("convolution.forward", (a, w), (y,), A)) for a in (x, Tensor("z", x.shape))
    )
    (graph,) = graphs
    assert [r.steps[0].plan for r in first] == [r.steps[0].plan for r in second]
    cudnn.execute(second[1].steps[0].plan, {X: 512, W: 1024, Y: 4096}, 8192)
    assert graph.executed == [({X: 512, W: 1024, Y: 4096}, 8192, 1, 77, None, None, None)]


def test_a_handle_that_cannot_be_made():
    def fail():
        raise RuntimeError("CUDNN_STATUS_NOT_INITIALIZED\n")

    module = SimpleNamespace(create_handle=fail, backend_version_string=lambda: "9.0.0")
    with pytest.raises(CudaUnavailable, match=r"cuDNN 9.0.0 cannot be started on A card \(CUDNN_STATUS_NOT_INIT.*smi"):
        Target.gpu(module, "A card", (8, 0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "listed, most, kept",
    [
        ("a4 b3 c2 d1", 8, "abcd"),
        ("a4 b4 c4 d4", 2, "ab"),  # no use for more of the same
        ("a4 b4 c4 d1", 2, "abd"),  # but for one that is leaner
        ("a4 b4 c1 d0 e0 f0", 2, "abcd"),
        ("a0 b0 c0 d9", 2, "ab"),
        ("a4 a4 a4 b4", 2, "ab"),  # a name once
        ("a100 b95 c94 d89", 1, "ad"),  # clearly leaner
        ("a9", 1, "a"),
        ("", 8, ""),
    ],
)
def test_a_useful_handful(listed, most, kept):
    problem = Convolution(BACKWARD_FILTER, (), (), ())
    plans = [CudnnPlan(problem, name[0], int(name[1:]) * MIB, i, None) for i, name in enumerate(listed.split())]
    found = useful(plans, most)
    assert "".join(p.name for p in found) == kept
    first = {p.name: p.index for p in reversed(plans)}
    assert [p.index for p in found] == [first[name] for name in kept]


def test_a_little_workspace_counts_as_none():
    problem = Convolution(BACKWARD_FILTER, (), (), ())
    plans = [
        CudnnPlan(problem, name, size, i, None) for i, (name, size) in enumerate([("a", 131), ("b", 0), ("c", 1024)])
    ]
    assert [p.name for p in useful(plans, 1)] == ["a"]
