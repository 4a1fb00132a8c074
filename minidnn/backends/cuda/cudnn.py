"""cuDNN's graphs and their execution plans, through nvidia-cudnn-frontend 1.23.

A Convolution says what to compute, and a Target for which GPU. A Target has a GPU's handle, or only a GPU's properties:
from these cuDNN lists the same plans without a GPU, but they cannot be executed. `Cudnn.plans` lists the useful plans,
best first by cuDNN's own heuristics. Each geometry is worked out once; ops of the same geometry share its graph and its
plans.

Three sorts of plans are not listed. The sums of some depend on the order in which threads arrive (these can be asked
for). Some accumulate in less than float32. And some round float32 operands; they are left out if TF32 is forbidden.
Plans that cuDNN would have to compile (half a second each) are considered only if there is no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

from minidnn.backends.cuda.packages import CudaUnavailable
from minidnn.backends.layout import strides
from minidnn.errors import BadInput
from minidnn.formats import TF32
from minidnn.spoken import option

FORWARD, BACKWARD_DATA, BACKWARD_FILTER = "forward", "backward_data", "backward_filter"
# The uids of a graph's tensors; dx, dw and dy have the numbers of x, w and y.
X, W, Y, B = 1, 2, 3, 4
LITTLE = 1024  # up to so many bytes of workspace count as none: cuDNN often asks for 131
LESS = 0.9  # a later plan is listed only if it needs less than this part of the least workspace so far
BFLOAT16 = (8, 0)  # the first compute capability with bfloat16
COMPILED = 2  # runtime-compiled plans to build if there are no others

_TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}


class NoPlan(BadInput, RuntimeError):
    """cuDNN has no plan for a geometry on a card. The message says which, and what to do."""


@dataclass(frozen=True)
class Settings:
    """The limits of the plans that are listed."""

    tf32: bool = TF32  # float32 operands of products may be rounded to 10 bits of mantissa
    deterministic: bool = True  # the same bits each time
    limit: int | None = None  # bytes of workspace
    most: int = 8  # plans per geometry that are listed whatever their workspace
    avoid: tuple[str, ...] = ()  # plans whose names contain one of these are not listed

    def __str__(self) -> str:
        words = ["TF32 allowed" if self.tf32 else "TF32 forbidden"]
        words += ["deterministic only"] if self.deterministic else []
        words += [f"at most {self.limit} B of workspace"] if self.limit is not None else []
        words += [f"none of {', '.join(self.avoid)}"] if self.avoid else []
        return ", ".join(words)

    @property
    def description(self) -> str:
        """For a device's description, under which measurements are kept. `avoid` is left out, since it changes no
        measurement."""
        words = ["TF32 allowed" if self.tf32 else "TF32 forbidden"]
        words += [] if self.deterministic else ["also plans that are not deterministic"]
        return ", ".join(words)


@dataclass(frozen=True)
class Convolution:
    """One of a convolution's three passes. Shapes are logical (N, C, H, W; weights O, C / group, kh, kw). In memory
    x and y are NHWC, and w is OHWI. The number of groups follows from the channels of x and w."""

    which: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    bias: bool = False
    dtype: str = "float32"  # of x, w, y and b in memory
    compute: str = "float32"  # of products and sums
    relu: bool = False  # y = max(0, x * w + b); whether NaN stays NaN depends on the kernel (nan.py)

    def __str__(self) -> str:
        x, w, y = ("x".join(map(str, shape)) for shape in (self.x, self.w, self.y))
        group = self.x[1] // self.w[1]
        window = f"stride {self.stride} pad {self.pad} dilation {self.dilation} group {group}"
        more = (", b" if self.bias else "") + (", ReLU" if self.relu else "")
        return f"convolution {self.which} of x {x}, w {w}, y {y}{more} ({self.dtype}, {window})"


@dataclass(frozen=True, eq=False)
class Target:
    """The card that graphs are made for. `handle`: cuDNN's, of a GPU; None if there are only a GPU's properties."""

    card: str
    capability: tuple[int, int]
    keywords: Mapping[str, Any] = field(repr=False)
    handle: int | None = None

    @classmethod
    def gpu(cls, cudnn: ModuleType, card: str, capability: tuple[int, int]) -> Target:
        """The current GPU. cuDNN's handle takes some of its memory. Raises CudaUnavailable if cuDNN cannot start."""
        try:
            handle = cudnn.create_handle()
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise CudaUnavailable(
                f"cuDNN {cudnn.backend_version_string()} cannot be started on {card} ({text}): if its memory is in "
                "use, `nvidia-smi` shows by which program"
            ) from None
        return cls(card, capability, {"handle": handle}, handle)

    @classmethod
    def properties(cls, cudnn: ModuleType, properties: Mapping[str, Any]) -> Target:
        """A GPU that this machine need not have, from cuDNN's list of its properties."""
        version = properties["deviceVer"]
        device = cudnn.create_device_properties(json.dumps(dict(properties)))
        capability = (version // 100, version % 100 // 10)
        return cls(properties["deviceName"], capability, {"device_property": device})


def properties(cudnn: ModuleType, number: int = 0) -> dict[str, Any]:
    """A GPU's properties as cuDNN lists them. Target.properties takes them on a machine without this GPU."""
    return json.loads(cudnn.create_device_properties(number).serialize())


@dataclass(frozen=True)
class CudnnPlan:
    """One way to execute a graph. `name`, cuDNN's own, gives the engine and its knobs; it stays the same for a card and
    a version of cuDNN. `index` is the plan's place in its graph's list."""

    problem: Convolution
    name: str
    workspace: int
    index: int
    graph: Any = field(repr=False, compare=False)

    @property
    def engine(self) -> str:
        """ "eng67" of "eng67_k2=7_k13=0"."""
        return self.name.split("_")[0]


class Cudnn:
    """Plans for one target under one set of settings."""

    def __init__(self, cudnn: ModuleType, target: Target, settings: Settings | None = None) -> None:
        self.module, self.target, self.settings = cudnn, target, settings or Settings()
        self._plans: dict[Convolution, tuple[CudnnPlan, ...]] = {}

    @cached_property
    def version(self) -> str:
        return self.module.backend_version_string()

    def plans(self, problem: Convolution) -> tuple[CudnnPlan, ...]:
        """The useful plans, best first, each name once. Raises NoPlan if there is none."""
        if problem not in self._plans:
            result = useful(self.permitted(problem), self.settings.most)
            if not result:
                raise NoPlan(self._none(problem))
            self._plans[problem] = result
        return self._plans[problem]

    def set_stream(self, stream: int) -> None:
        """Send all later executions to that stream."""
        self.module.set_stream(handle=self.target.handle, stream=stream)

    def execute(self, plan: CudnnPlan, pack: dict[int, int], workspace: int) -> None:
        """Enqueue a plan. `pack`: uid -> address; `workspace`: the address of plan.workspace bytes. All addresses are
        multiples of 256, but those of slices (slices.py), of 16. This allocates nothing and waits for nothing."""
        plan.graph._execute_plan_at_index(pack, workspace, plan.index, self.target.handle, None, None, None)

    def close(self) -> None:
        """Give the handle back. Graphs must not be executed afterwards."""
        self._plans.clear()
        if self.target.handle is not None:
            self.module.destroy_handle(self.target.handle)

    # ---- listing

    def listed(self, problem: Convolution) -> list[CudnnPlan]:
        """Every permitted plan, as a list. Raises NoPlan if cuDNN does not accept the graph."""
        return list(self.permitted(problem))

    def permitted(self, problem: Convolution) -> Iterator[CudnnPlan]:
        """Every permitted plan, best first: the precompiled ones, or, if there are none, some that must be compiled.
        Each is built when it is asked for: a net's geometries have two thousand of them.

        Raises NoPlan if cuDNN does not accept the graph."""
        if problem.dtype == "bfloat16" and self.target.capability < BFLOAT16:
            return  # cuDNN lists plans that it must compile, and may crash while it does
        try:
            graph = self._graph(problem)
        except (RuntimeError, ValueError, self.module.cudnnGraphNotSupportedError) as error:
            raise NoPlan(f"{self._none(problem)} (cuDNN says: {str(error).strip().splitlines()[0]})") from None
        compiled: list[int] = []
        found = 0
        for index in range(graph.get_execution_plan_count()):
            if self._is_compiled(graph, index):
                compiled.append(index)
            elif plan := self._build(graph, problem, index):
                found += 1
                yield plan
        if found:
            return
        for index in compiled:
            if found < COMPILED and (plan := self._build(graph, problem, index)):
                found += 1
                yield plan

    def _is_compiled(self, graph: Any, index: int) -> bool:
        return self.module.behavior_note.RUNTIME_COMPILATION in graph.get_behavior_notes_for_plan_at_index(index)

    def _build(self, graph: Any, problem: Convolution, index: int) -> CudnnPlan | None:
        """The plan of that index; None if the settings bar it, or if cuDNN finds that it cannot do it after all."""
        name = graph.get_plan_name_at_index(index)
        if any(part in name for part in self.settings.avoid):
            return None
        try:
            graph.build_plan_at_index(index)
        except (RuntimeError, self.module.cudnnGraphNotSupportedError):
            return None
        return CudnnPlan(problem, name, graph.get_workspace_size_plan_at_index(index), index, graph)

    def _graph(self, problem: Convolution) -> Any:
        """The graph with its plans listed and the unwanted ones barred; none is built yet."""
        cudnn = self.module
        dtype, compute = (getattr(cudnn.data_type, _TYPES[name]) for name in (problem.dtype, problem.compute))
        graph = cudnn.pygraph(
            io_data_type=dtype, intermediate_data_type=compute, compute_data_type=compute, **self.target.keywords
        )

        def tensor(uid: int, shape: tuple[int, ...]) -> Any:
            return graph.tensor(uid=uid, dim=list(shape), stride=list(strides(shape)), data_type=dtype)

        window = {k: list(getattr(problem, v)) for k, v in _WINDOW.items()}
        if problem.which == FORWARD:
            uid, shape = Y, problem.y
            out = graph.conv_fprop(image=tensor(X, problem.x), weight=tensor(W, problem.w), **window)
            if problem.bias:
                out = graph.bias(input=out, bias=tensor(B, (1, problem.w[0], 1, 1)))
            if problem.relu:
                out = graph.relu(input=out)
        elif problem.which == BACKWARD_DATA:
            uid, shape = X, problem.x
            out = graph.conv_dgrad(loss=tensor(Y, problem.y), filter=tensor(W, problem.w), **window)
        else:
            uid, shape = W, problem.w
            out = graph.conv_wgrad(image=tensor(X, problem.x), loss=tensor(Y, problem.y), **window)
        out.set_output(True).set_uid(uid).set_dim(list(shape)).set_stride(list(strides(shape))).set_data_type(dtype)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        if barred := self._barred(problem):
            graph.deselect_numeric_notes(barred)
        if self.settings.limit is not None:
            graph.deselect_workspace_greater_than(self.settings.limit)
        return graph

    def _barred(self, problem: Convolution) -> list[Any]:
        note = self.module.numerical_note
        barred = [note.REDUCED_PRECISION_REDUCTION]
        if self.settings.deterministic:
            barred.append(note.NONDETERMINISTIC)
        if problem.dtype == "float32" and not self.settings.tf32:
            barred += [note.TENSOR_CORE, note.DOWN_CONVERT_INPUTS]
        return barred

    def _none(self, problem: Convolution) -> str:
        capability = ".".join(map(str, self.target.capability))
        advice = []
        if problem.dtype == "bfloat16" and self.target.capability < BFLOAT16:
            advice.append("bfloat16 needs compute capability 8.0, use float32 or float16")
        if self.settings.limit is not None:
            advice.append("allow more workspace")
        if self.settings.avoid:
            advice.append("avoid fewer plans")
        if problem.dtype == "float32" and not self.settings.tf32:
            advice.append("allow TF32")
        advice.append(f"change the layer's geometry, or use {option('device', 'cpu')}")
        return (
            f"cuDNN {self.version} has no plan for {problem} on {self.target.card} (compute capability {capability}; "
            f"{self.settings}): {'; or '.join(advice)}"
        )


_WINDOW = {"padding": "pad", "stride": "stride", "dilation": "dilation"}  # the frontend's words -> ours


def useful(plans: Iterable[CudnnPlan], most: int) -> tuple[CudnnPlan, ...]:
    """The useful ones of `plans`, which are listed best first; each name once. These are the first `most` of them, and
    each later one that needs clearly less workspace than all kept before, down to one that needs (nearly) none. No plan
    is asked for that cannot be among them."""
    kept: dict[str, CudnnPlan] = {}
    least = float("inf")
    for plan in plans:
        size = plan.workspace if plan.workspace > LITTLE else 0
        if (len(kept) < most or size < LESS * least) and plan.name not in kept:
            kept[plan.name] = plan
            least = min(least, size)
        if len(kept) >= most and not least:
            break
    return tuple(kept.values())
