"""The contract of a layer: shape rule + parameters + the ops it lowers to + what its backward reads.

A layer file has the same parts in the same order, so that two can be read side by side:
`attrs` dataclass(es), then one class per type with `shapes`, `parameters`, `forward`, `backward`.
A layer never touches an array: kernels live in the backends, looked up by `Op.kind`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from minidnn.errors import BadInput
from minidnn.formats import floating
from minidnn.layers.facts import Facts
from minidnn.program import Op, Pass, Role, Tensor

Shape = tuple[int, ...]
SampleShape = Callable[[Any, Any, str], Shape]  # (data_param, transform_param, phase) -> one sample's shape
ELEMENTS = 2**45  # of float32, in the 47 bits of a process's addresses


class ShapeError(BadInput, ValueError):
    """Bottoms that a layer cannot take; the message says which number is wrong and what would fit."""


@dataclass(frozen=True)
class Parameter:
    """A learnable blob, or (learnable=False) a running statistic. `blob_shape` is Caffe's shape in files."""

    name: str  # "w", "b", "gamma", "mean"; the tensor is "<layer>.<name>"
    shape: Shape
    filler: Any = None  # schema.FillerParameter, or None for zeros
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    learnable: bool = True
    blob_shape: Shape | None = None


@dataclass(eq=False)
class Site:
    """Where a layer is lowered: its tensors, and what is wanted of it. Made by autodiff, read by layers.

    dx[i] is None where no gradient of bottom i is wanted; dp[name] is None where a parameter is frozen.
    In `backward`, dy[i] is None where no gradient reaches top i.
    x and p are as ops read them: parameters in the number format of x, but statistics float32, and all of a loss.
    """

    layer: str
    train: bool
    facts: Facts
    x: list[Tensor]
    y: list[Tensor]
    p: dict[str, Tensor]
    iteration: Tensor  # int64 (1,), a CONTROL input: the step's number, for counter-based random numbers
    dy: list[Tensor | None] = field(default_factory=list)
    dx: list[Tensor | None] = field(default_factory=list)
    dp: dict[str, Tensor | None] = field(default_factory=dict)
    survivor: list[Tensor] = field(default_factory=list)  # what backward finds in y's place: see Layer.keeps_sign
    seed: int = 0
    extras: dict[str, Tensor] = field(default_factory=dict)  # shared by forward and backward

    def __post_init__(self) -> None:
        self.survivor = self.survivor or list(self.y)

    @property
    def arriving(self) -> list[Tensor]:
        """The gradients that reach tops, in the tops' order."""
        return [t for t in self.dy if t is not None]

    @property
    def wanted(self) -> list[Tensor]:
        """The gradients of bottoms that are wanted, in the bottoms' order."""
        return [t for t in self.dx if t is not None]

    def extra(self, name: str, shape: Shape, dtype: str = "float32", role: Role = Role.EXTRA) -> Tensor:
        """The tensor `<layer>.<name>` that forward keeps for backward; the same one on both sides."""
        if name not in self.extras:
            self.extras[name] = Tensor(f"{self.layer}.{name}", tuple(shape), dtype, role)
        return self.extras[name]

    def op(
        self,
        kind: str,
        reads: Iterable[Tensor],
        writes: Iterable[Tensor],
        attrs: Any = None,
        inplace: Iterable[tuple[Tensor, Tensor]] = (),
        flops: int = 0,
        name: str | None = None,
        during: Pass | None = None,
    ) -> Op:
        """An op of this layer, called `<layer>.<verb>` after the kind's verb unless `name` is given."""
        verb = kind.split(".", 1)[1]
        if during is None:
            during = Pass.BACKWARD if verb.startswith("backward") else Pass.FORWARD
        return Op(
            f"{self.layer}.{name or verb}", kind, self.layer, during,
            tuple(reads), tuple(writes), attrs,
            tuple(p for p in self.facts.pairs(kind, inplace) if p[0].dtype == p[1].dtype), flops,
        )  # fmt: skip

    def pass_through(self, i: int, gradient: Tensor) -> None:
        """Say that bottom i's gradient IS `gradient` (no op, no copy), as for a sum of coefficient 1."""
        self.dx[i] = gradient


class Layer:
    """One layer of a net in one phase. Subclasses are looked up by `type` in `layers.LAYERS`.

    `param` is the layer's own message of the schema (`convolution_param`, ...), already validated;
    `spec` is the whole LayerParameter (name, bottom, top, param multipliers, loss_weight).
    """

    type: ClassVar[str] = ""
    field_name: ClassVar[str | None] = None  # schema field that holds `param`, e.g. "convolution_param"
    bottoms: ClassVar[tuple[int, int | None]] = (1, 1)  # least and most bottoms
    tops: ClassVar[tuple[int, int | None]] = (1, 1)
    in_place: ClassVar[bool] = False  # whether `top: same as bottom` is allowed in a file
    # y > 0 only where x > 0, and elsewhere no gradient comes back: a ReLU below, whose top this layer overwrites in
    # place, may read y instead of x in its backward
    keeps_sign: ClassVar[bool] = False
    loss: ClassVar[bool] = False  # the first top carries loss_weight 1 by default
    also: ClassVar[tuple[str, ...]] = ()  # further messages that the type takes; read from `spec`
    message: ClassVar[Any] = None  # a user's own pydantic class for `field_name`, where the schema has none
    batch_field: ClassVar[str | None] = None  # the field of `param` that is the batch size
    labels: ClassVar[int | None] = None  # the bottom that holds class numbers; bottom 0 then holds a score per class
    may_hold_labels: ClassVar[bool] = False  # of a layer without bottoms: its tops are labels where others read them so
    probabilities: ClassVar[bool] = False  # the top holds a probability per class

    def __init__(self, spec: Any, param: Any, phase: str) -> None:
        self.spec = spec
        self.param = param
        self.phase = phase  # "TRAIN" or "TEST"
        self.name: str = spec.name

    @classmethod
    def with_batch(cls, spec: Any, batch: int) -> Any:
        """The LayerParameter with another batch size, where the layer decides it."""
        return spec

    @property
    def source(self) -> tuple[Any, Any] | None:
        """(data_param, transform_param) of a layer that reads its samples from a source; else None."""
        return None

    def ask(self, sample_shape: SampleShape) -> None:
        """Called before `shapes`. A layer that reads from a source asks for the shape of its samples."""

    def classes(self, bottoms: Sequence[Shape]) -> int | None:
        """How many classes the labels may name, where the layer refuses more; None: it has no labels or takes any."""
        return None

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Shapes of the tops, from those of the bottoms (N, C, H, W). Raises ShapeError."""
        raise NotImplementedError

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        """Types of the tops: the bottoms' number format, of losses float32."""
        found = None if self.loss else next((dtype for dtype in bottoms if floating(dtype)), None)
        return [found or "float32"] * len(self.spec.top)

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        return []

    def forward(self, s: Site) -> Iterable[Op]:
        """The ops that make s.y from s.x and s.p."""
        raise NotImplementedError

    def backward(self, s: Site) -> Iterable[Op]:
        """The ops that make the wanted s.dp and s.dx; filter before data, so that dx may take x's bytes."""
        raise NotImplementedError

    def loss_weight(self, i: int = 0) -> float:
        """What top i counts in the objective."""
        weights = self.spec.loss_weight
        if i < len(weights):
            return weights[i]
        return 1.0 if self.loss and i == 0 else 0.0

    def mults(self, i: int) -> tuple[float, float]:
        """(lr_mult, decay_mult) of the i-th blob, from the file's `param:` list."""
        entries = self.spec.param
        if i < len(entries):
            return entries[i].lr_mult, entries[i].decay_mult
        return 1.0, 1.0

    def weight_and_bias(self, shape: Shape, blob_shape: Shape | None = None) -> list[Parameter]:
        """The parameters w and, with `bias_term`, b of a layer that has num_output channels."""
        p = self.param
        blobs = [Parameter("w", shape, p.weight_filler, *self.mults(0), blob_shape=blob_shape)]
        if p.bias_term:
            blobs.append(Parameter("b", shape[:1], p.bias_filler, *self.mults(1)))
        return blobs


def parametric_backward(
    s: Site, kind: str, attrs: Any, flops: int, inplace: bool = False, x: Tensor | None = None
) -> Iterable[Op]:
    """filter, bias, data: the backward of y = f(x, weight) + bias. Filter comes before data, so that dx may take
    x's bytes; `inplace` says that dx may take dy's. `x`: what was kept in the bottom's stead."""
    (dy,), (dx,) = s.dy, s.dx
    x = x or s.x[0]
    assert dy is not None, f"{s.layer}: a layer with one top has a backward only where that top has a gradient"
    weight, *bias = s.p
    if (dw := s.dp[weight]) is not None:
        yield s.op(f"{kind}.backward_filter", [x, dy], [dw], attrs, flops=flops)
    for name in bias:
        if (db := s.dp[name]) is not None:
            yield s.op(f"{kind}.backward_bias", [dy], [db], attrs, flops=dy.size)
    if dx is not None:
        pairs = [(dy, dx)] if inplace else []
        yield s.op(f"{kind}.backward_data", [s.p[weight], dy], [dx], attrs, pairs, flops=flops)


def images(shape: Shape) -> Shape:
    """The shape, if it is (N, C, H, W)."""
    if len(shape) != 4:
        raise ShapeError(f"expected a bottom of 4 axes (N, C, H, W), got {text(shape)}")
    return shape


def padded(shape: Shape, pad: tuple[int, int]) -> Shape:
    n, c, h, w = shape
    return n, c, h + 2 * pad[0], w + 2 * pad[1]


def addressable(shape: Shape, what: str) -> Shape:
    """The shape, if a machine could hold its elements: beyond that nothing can be planned, only counted."""
    if math.prod(shape) > ELEMENTS:
        raise ShapeError(
            f"{what} of {text(shape)} is {math.prod(shape)} elements; a process can address {ELEMENTS} of them "
            f"(128 TiB), so smaller sizes are needed"
        )
    return shape


def positive_axis(axis: int, shape: Shape, what: str = "axis") -> int:
    """An axis as the file gives it, from the end where negative, as a number from 0."""
    if not -len(shape) <= axis < len(shape):
        raise ShapeError(f"{what} {axis} does not exist in a bottom of shape {text(shape)}")
    return axis % len(shape)


def text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "()"
