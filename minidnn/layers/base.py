"""The contract of a layer: its shape rule, its parameters, and the ops of its forward and its backward.

All layer files have the same parts in the same order: the dataclasses of `attrs`, then one class per type with
`shapes`, `parameters`, `forward` and `backward`. A layer never touches an array. The kernels are in the backends, which
find them by `Op.kind`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from minidnn.errors import BadInput
from minidnn.formats import floating
from minidnn.layers.facts import Facts
from minidnn.program import Op, Pass, Role, Tensor

Shape = tuple[int, ...]
# (data_param, transform_param, phase) -> the shapes of one sample and of its labels; () if a sample has one label
Shapes = Callable[[Any, Any, str], tuple[Shape, Shape]]
PLACES = "token_places"  # the name of an input of programs: see Site.places
ELEMENTS = 2**45  # the most float32 elements that a process can address with 47 bits


class ShapeError(BadInput, ValueError):
    """A layer cannot take bottoms of these shapes; the message names the wrong number and one that would fit."""


@dataclass(frozen=True)
class Parameter:
    """A learnable blob, or (learnable=False) a running statistic. `blob_shape` is Caffe's shape in files.

    constant: what the net's own file says, such as a matrix. No op changes it, and no file of weights has it.
    kept:     what a step leaves for the next one, such as keys and values: zeros at first, in the number format of the
              layer's bottoms, and in no file of weights"""

    name: str  # "w", "b", "gamma", "mean"
    shape: Shape
    filler: Any = None  # a FillerParameter (schema/common.py), a layers.fillers.Values, or None for zeros
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    learnable: bool = True
    blob_shape: Shape | None = None
    float32: bool = False  # whether also in a 16-bit net ops read it, and write its gradient, in float32
    constant: bool = False
    kept: bool = False
    tensor: str = ""  # the name of its tensor if layers share it (nets/sharing.py); "": "<layer>.<name>"


@dataclass(eq=False)
class Site:
    """The tensors of one layer in one program: a layer's `forward` and `backward` make their ops from these.
    programs/sites.py makes the sites.

    x and y are the bottoms and tops, p are the parameters by name; dx, dy and dp are the gradients of these.
    dx[i] is None if no gradient of bottom i is wanted; dp[name] is None if the parameter is frozen.
    In `backward`, dy[i] is None if no gradient reaches top i. In `forward` these are empty, and `wanted` has those of x
    and p whose gradients `backward` will be asked for.
    x and p are the tensors that ops read. Learnable parameters have the number format of x, except those that say
    float32; running statistics are float32. In a loss all numbers are float32.
    """

    layer: str
    train: bool
    facts: Facts
    x: list[Tensor]
    y: list[Tensor]
    p: dict[str, Tensor]
    iteration: Tensor  # int64 (1,), a CONTROL input: the number of the step, for counter-based random numbers
    wanted: Collection[Tensor] = ()
    dy: list[Tensor | None] = field(default_factory=list)
    dx: list[Tensor | None] = field(default_factory=list)
    dp: dict[str, Tensor | None] = field(default_factory=dict)
    survivor: list[Tensor] = field(default_factory=list)  # y, or what overwrote y in place: see Layer.keeps_sign
    seed: int = 0
    extras: dict[str, Tensor] = field(default_factory=dict)  # shared by forward and backward

    def __post_init__(self) -> None:
        self.survivor = self.survivor or list(self.y)

    @property
    def arriving(self) -> list[Tensor]:
        """The gradients of those tops that one reaches, in the tops' order."""
        return [t for t in self.dy if t is not None]

    @property
    def bottom_gradients(self) -> list[Tensor]:
        """The gradients of bottoms that are wanted, in the bottoms' order."""
        return [t for t in self.dx if t is not None]

    def extra(self, name: str, shape: Shape, dtype: str = "float32", role: Role = Role.EXTRA) -> Tensor:
        """The tensor `<layer>.<name>`, which forward keeps for backward. Both get the same one."""
        if name not in self.extras:
            self.extras[name] = Tensor(f"{self.layer}.{name}", tuple(shape), dtype, role)
        return self.extras[name]

    def places(self, tokens: int) -> Tensor:
        """int32 (tokens,), a CONTROL input: the places of a step's tokens, which follow each other, among all that the
        net has seen. Whoever runs the program writes it. All layers that read it have as many tokens."""
        return Tensor(PLACES, (tokens,), "int32", Role.CONTROL)

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
        """An op of this layer, called `<layer>.<name>`. Without `name` that is the kind's verb: "forward" of
        "relu.forward". Without `during` the verb decides between forward and backward.

        inplace: (read, write) pairs that the kernel permits on the same bytes. The memory facts may forbid some, and a
        pair of two number formats is left out."""
        verb = kind.split(".", 1)[1]
        if during is None:
            during = Pass.BACKWARD if verb.startswith("backward") else Pass.FORWARD
        return Op(
            f"{self.layer}.{name or verb}", kind, self.layer, during,
            tuple(reads), tuple(writes), attrs,
            tuple(p for p in self.facts.pairs(kind, inplace) if p[0].dtype == p[1].dtype), flops,
        )  # fmt: skip

    def pass_through(self, i: int, gradient: Tensor) -> None:
        """Use the tensor `gradient` itself as the gradient of bottom i: no op, no copy. A plain sum does so."""
        self.dx[i] = gradient


class Layer:
    """One layer of a net in one phase. `LAYERS` (layers/__init__.py) maps each `type` to its subclass.

    spec:  the whole LayerParameter (name, bottom, top, param multipliers, loss_weight), already validated
    param: the message of the layer's type in it (`convolution_param`, ...)
    """

    type: ClassVar[str] = ""
    field_name: ClassVar[str | None] = None  # schema field that holds `param`, e.g. "convolution_param"
    bottoms: ClassVar[tuple[int, int | None]] = (1, 1)  # (fewest, most) bottoms; None: no limit
    tops: ClassVar[tuple[int, int | None]] = (1, 1)  # (fewest, most) tops
    in_place: ClassVar[bool] = False  # whether a file may give the top the bottom's name
    # True if each element of y has the sign of x, or lets no gradient back to x. A ReLU whose top this layer overwrites
    # in place may then read y instead of its own top in its backward.
    keeps_sign: ClassVar[bool] = False
    loss: ClassVar[bool] = False  # whether the first top has loss_weight 1 by default
    unnamed: ClassVar[bool] = False  # whether a file may leave out the top, which then has the layer's name
    needs: ClassVar[tuple[str, ...]] = ()  # fields of `param` that the message leaves out for other types
    also: ClassVar[tuple[str, ...]] = ()  # further message fields of the type, which a layer reads from `spec`
    refuses: ClassVar[tuple[str, ...]] = ()  # messages of other types that Caffe refuses for it, too
    message: ClassVar[Any] = None  # a user's own pydantic class for `field_name`, if the schema has none
    batch_field: ClassVar[str | None] = None  # the field of `param` that holds the batch size
    labels: ClassVar[int | None] = None  # the bottom that holds class numbers; bottom 0 then holds a score per class
    indices: ClassVar[int | None] = None  # the bottom that holds numbers of rows, int32
    still: tuple[int, ...] = ()  # the bottoms that take no gradient
    # The bottoms that a loss compares with. They take no gradient: a net that wants one of them is refused.
    targets: ClassVar[tuple[int, ...]] = ()
    moves: ClassVar[bool] = False  # whether the tops have elements of bottom 0, of whatever type: labels stay labels
    same: ClassVar[bool] = False  # whether the tops are the bottom itself, under other names: no op, no tensor
    # Whether the tops are inputs of the program. A top that other layers read as labels then holds labels, int32.
    inputs: ClassVar[bool] = False
    each: ClassVar[tuple[int, ...]] = ()  # the tops whose elements are told one by one where they are outputs
    probabilities: ClassVar[bool] = False  # whether the top holds a probability per class

    def __init__(self, spec: Any, param: Any, phase: str) -> None:
        self.spec = spec
        self.param = param
        self.phase = phase  # "TRAIN" or "TEST"
        self.name: str = spec.name

    @classmethod
    def with_batch(cls, spec: Any, batch: int) -> Any:
        """`spec` with another batch size, if the layer has one; else `spec` itself."""
        return spec

    @classmethod
    def with_images(cls, spec: Any, side: int, shapes_of: Shapes) -> Any:
        """`spec` with images of `side` x `side` pixels, if the layer gives images; else `spec` itself."""
        return spec

    @classmethod
    def with_tokens(cls, spec: Any, length: int) -> Any:
        """`spec` with windows of `length` tokens, if the layer gives tokens; else `spec` itself."""
        return spec

    @property
    def source(self) -> tuple[Any, Any] | None:
        """(data_param, transform_param) of a layer that reads its samples from a source; else None."""
        return None

    @property
    def columns(self) -> tuple[tuple[Any, Any], ...]:
        """The same for each top, of a layer whose tops come from sources of their own."""
        return ()

    @property
    def sources(self) -> tuple[tuple[Any, Any], ...]:
        """All of these: `source` for all tops, or one for each."""
        return (self.source,) if self.source else self.columns

    @property
    def fillers(self) -> tuple[Any, ...]:
        """A filler for each top, of a layer whose tops are filled anew for each batch; None: zeros."""
        return ()

    def ask(self, shapes_of: Shapes) -> None:
        """Called before `shapes`: a layer that reads from a source asks for the shapes of a sample and its labels."""

    def classes(self, bottoms: Sequence[Shape]) -> int | None:
        """The number of classes that labels must stay below; None: the layer has no labels, or takes any label."""
        return None

    @property
    def ignored(self) -> int | None:
        """The label that may be as high as it likes, because samples with it do not count; None: there is none."""
        return None

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """The tops' shapes from the bottoms' shapes (N, C, H, W). Raises ShapeError if the layer cannot take these."""
        raise NotImplementedError

    def dtypes(self, bottoms: Sequence[str]) -> list[str]:
        """The tops' dtypes from the bottoms' dtypes: the bottoms' number format; float32 if the layer is a loss."""
        result = None if self.loss else next((dtype for dtype in bottoms if floating(dtype)), None)
        return [result or "float32"] * len(self.spec.top)

    def parameters(self, bottoms: Sequence[Shape]) -> list[Parameter]:
        """The layer's parameters for bottoms of these shapes, in the order of Caffe's blobs."""
        return []

    def forward(self, s: Site) -> Iterable[Op]:
        """The ops that compute s.y from s.x and s.p."""
        raise NotImplementedError

    def backward(self, s: Site) -> Iterable[Op]:
        """The ops that compute those of s.dp and s.dx that are not None. Parameters come before data, so that dx may
        take x's bytes."""
        raise NotImplementedError

    def loss_weight(self, i: int = 0) -> float:
        """The weight of top i in the objective; 0: the top is no part of it."""
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
        """The parameters w of this shape and, with `bias_term`, b of shape (shape[0],)."""
        p = self.param
        blobs = [Parameter("w", shape, p.weight_filler, *self.mults(0), blob_shape=blob_shape)]
        if p.bias_term:
            blobs.append(Parameter("b", shape[:1], p.bias_filler, *self.mults(1)))
        return blobs


def parametric_backward(
    s: Site, kind: str, attrs: Any, flops: int, inplace: bool = False, x: Tensor | None = None
) -> Iterable[Op]:
    """The ops of the backward of y = f(x, weight) + bias, those wanted: filter, bias, data.

    Filter comes before data, so that dx may take x's bytes.
    inplace: whether dx may take dy's bytes
    x:       a tensor that was kept for backward, to read instead of the bottom"""
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
    """The shape itself. Raises ShapeError unless it has 4 axes (N, C, H, W)."""
    if len(shape) != 4:
        raise ShapeError(f"expected a bottom of 4 axes (N, C, H, W), got {text(shape)}")
    return shape


def padded(shape: Shape, pad: tuple[int, int]) -> Shape:
    """A shape (N, C, H, W) with padding on all four sides of each image."""
    n, c, h, w = shape
    return n, c, h + 2 * pad[0], w + 2 * pad[1]


def windows(
    shape: Shape, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """How many windows fit below and beside each other: floor((H + 2p - (d(k-1) + 1)) / s) + 1, and so for W. Raises
    ShapeError if none does."""
    result = []
    for h, k, s, p, d in zip(shape[2:], kernel, stride, pad, dilation, strict=True):
        reach = d * (k - 1) + 1
        if h + 2 * p < reach:
            raise ShapeError(
                f"a window of {reach} (kernel {k}, dilation {d}) does not fit into {h} + 2 x {p} (pad) "
                f"of its bottom {text(shape)}"
            )
        result.append((h + 2 * p - reach) // s + 1)
    return result


def addressable(shape: Shape, what: str) -> Shape:
    """The shape itself. Raises ShapeError if a process could not address so many float32 elements."""
    if math.prod(shape) > ELEMENTS:
        raise ShapeError(
            f"{what} of {text(shape)} is {math.prod(shape)} elements; a process can address {ELEMENTS} of them "
            f"(128 TiB), so smaller sizes are needed"
        )
    return shape


def positive_axis(axis: int, shape: Shape, what: str = "axis") -> int:
    """The number from 0 of an axis that a file gives; negative axes count from the end. Raises ShapeError."""
    if not -len(shape) <= axis < len(shape):
        raise ShapeError(f"{what} {axis} does not exist in a bottom of shape {text(shape)}")
    return axis % len(shape)


def text(shape: Shape) -> str:
    """A shape in a message, "64x3x28x28"; "()" if it has no axes."""
    return "x".join(map(str, shape)) or "()"
