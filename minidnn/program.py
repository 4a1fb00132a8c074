"""Tensors, ops and programs: the values that say what a training step computes. Nothing here decides or runs anything.

A Program is a list of ops in a valid order: each op reads only inputs, persistent tensors and earlier writes. A Plan
(memory/plan.py) says when the bytes of its tensors come and go. A Schedule (memory/schedule.py) says where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any

from minidnn.formats import itemsize


class Role(Enum):
    """The purpose of a tensor. Reports and the papers' accountings sum bytes by role."""

    INPUT = "input"  # a batch of data: layer 0's X
    LABEL = "label"
    CONTROL = "control"  # numbers of a step: learning rate, iteration, where samples are cropped
    PARAM = "param"
    COPY = "copy"  # a parameter's copy in the number format that ops read
    PARAM_GRADIENT = "param_gradient"
    STATE = "state"  # momentum, running statistics
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    EXTRA = "extra"  # kept by forward for backward only: pooling index, saved mean, softmax output
    WORKSPACE = "workspace"


class Pass(Enum):
    """The part of a step that an op belongs to."""

    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    UPDATE = "update"


FORWARD = (Pass.FORWARD, Pass.LOSS)  # the forward pass, losses included


@dataclass(frozen=True, eq=False)
class Tensor:
    """A named value with a shape. `shape` is logical (N, C, H, W order); the backend chooses the layout in memory.

    Two tensors are equal if their names are. Names are unique within a net, so the TRAIN and TEST programs of one net
    mean the same weights by the same name.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    role: Role = Role.ACTIVATION

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Tensor) and self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Exact bytes; placement adds the alignment."""
        return self.size * self.itemsize

    @property
    def itemsize(self) -> int:
        return itemsize(self.dtype)

    def __repr__(self) -> str:
        return f"{self.name}{list(self.shape)}"


@dataclass(frozen=True, eq=False)
class Op:
    """One kernel call. A tensor in both `reads` and `writes` is updated in place; such an op runs only once a step."""

    name: str  # "conv1.backward_filter"
    kind: str  # "convolution.backward_filter": a backend finds its kernel by the kind
    layer: str
    during: Pass
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    attrs: Any = None  # a frozen dataclass: geometry and constants
    inplace: tuple[tuple[Tensor, Tensor], ...] = ()  # (read, write) pairs that the kernel permits on the same bytes
    flops: int = 0  # arithmetic work, for cost models
    part: Part | None = None  # of an op for some rows of the batch alone: of which op, and which rows

    @cached_property
    def family(self) -> str:
        """The kind up to its first dot: "convolution", whatever the pass and the fusion."""
        return self.kind.partition(".")[0]

    @property
    def whole(self) -> Op:
        """The op of which this one is a part; itself, if it is none."""
        return self if self.part is None else self.part.of

    @property
    def on_net(self) -> bool:
        """Whether the op is a communication between ranks. It runs beside the others, on a stream of its own."""
        return self.family == NET

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Reads then writes, each tensor once."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))

    @property
    def read_bytes(self) -> tuple[int, ...]:
        """Bytes of each read: of a slice its own alone."""
        most = self.writes[0].nbytes if isinstance(self.attrs, Slice) else None
        return tuple(t.nbytes if most is None else min(t.nbytes, most) for t in self.reads)

    @property
    def nbytes(self) -> int:
        """The bytes of all reads and writes, which is the least memory traffic of the kernel."""
        return sum(self.read_bytes) + sum(t.nbytes for t in self.writes)

    @cached_property
    def members(self) -> tuple[Op, ...]:
        """The ops that this one does: itself alone, unless its attributes are MultiTensor."""
        if not isinstance(self.attrs, MultiTensor):
            return (self,)
        return tuple(
            replace(
                self, name=m.name, kind=self.kind.removesuffix(MULTI_TENSOR), layer=m.layer, attrs=m.attrs,
                reads=tuple(self.reads[i] for i in m.reads), writes=tuple(self.writes[i] for i in m.writes),
            )
            for m in self.attrs.members
        )  # fmt: skip

    def __repr__(self) -> str:
        return self.name


NET = "net"  # the family of communications between ranks
# the end of a kind whose ops do several ops of the kind before it: "sgd.update_multi_tensor"
MULTI_TENSOR = "_multi_tensor"


@dataclass(frozen=True)
class Member:
    """One of the ops that an op does: its attributes, and the places of its tensors among the reads and the writes."""

    attrs: Any
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    name: str = field(repr=False, compare=False)  # costs depend neither on names nor on layers
    layer: str = field(repr=False, compare=False)


@dataclass(frozen=True)
class MultiTensor:
    """The attributes of an op that does several ops of one kind, in any order (programs/fusion/multi_tensor.py)."""

    members: tuple[Member, ...]


@dataclass(frozen=True)
class Slice:
    """The attributes of an op that reads slices (programs/fusion/slices.py). If a read has more channels than the first
    write, the op reads as many channels as that write has, from channel `start` on."""

    start: int


@dataclass(frozen=True)
class Rows:
    """The attributes of a concat, or of a slice, of rows (memory/parts/): where each part begins on their axis."""

    starts: tuple[int, ...]
    axis: int = 0


@dataclass(frozen=True, eq=False)
class Part:
    """The attributes of an op for some rows of the batch alone (memory/parts/): rows [first, last) of the op `of`.

    within: the op of which `of` is one pass (memory/parts/passes.py); None: it is no pass"""

    of: Op
    first: int
    last: int
    within: Op | None = None

    @property
    def origin(self) -> Op:
        """The op of the program that has it as a whole."""
        return self.of if self.within is None else self.within


@dataclass(frozen=True)
class SplitRegion:
    """Ops that run in parts, by their names in the program's order (memory/parts/). Each takes the batch in `count`
    equal parts; all ops of one part run before those of the next."""

    ops: tuple[str, ...]
    count: int


# families that multiply matrices: most of a net's arithmetic; and those of them whose kernels use tensor cores
PRODUCTS = frozenset({"convolution", "inner_product", "matmul", "attention", "recurrent"})
ON_TENSOR_CORES = frozenset({"convolution", "inner_product"})
TENSOR_CORES = "tensor_cores"  # the algorithm of others that use them, beside one that does not


@dataclass(frozen=True)
class Algorithm:
    """One way to compute an op: its name and the bytes of workspace that it needs besides the op's tensors."""

    name: str
    workspace: int = 0

    def __str__(self) -> str:
        return self.name


DEFAULT = Algorithm("default", 0)


@dataclass(frozen=True, eq=False)
class Program:
    """The ops of one step (TRAIN, ACCUMULATE or TEST), and where values must be when the step begins and ends.

    inputs:        valid on the host when the step begins
    persistent:    live on the device across steps: parameters, optimizer state, running statistics, kept gradients; and
                   double-buffered inputs, which are there when the step begins, each in one of two places
    outputs:       on the host when the step ends
    host_resident: live on the host across steps: parameters, optimizer state and others that are wanted there. Each
                   comes before the ops that use it, and its new value leaves behind the last that writes it
    parts:         the regions whose ops run in parts here (memory/parts/), of the program that had them as a whole
    held:          the persistent tensors whose bytes are the caller's, so that they never live on the host
    """

    name: str
    ops: tuple[Op, ...]
    inputs: tuple[Tensor, ...] = ()
    persistent: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    layers: tuple[str, ...] = field(default=())  # layer names in forward order
    host_resident: tuple[Tensor, ...] = ()
    parts: tuple[SplitRegion, ...] = ()
    held: tuple[Tensor, ...] = ()

    def __repr__(self) -> str:
        return f"<program {self.name}: {len(self.ops)} ops, {len(self.tensors)} tensors>"

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor, in order of first appearance; persistent ones first."""
        seen: dict[Tensor, None] = dict.fromkeys(self.persistent)
        for op in self.ops:
            seen.update(dict.fromkeys(op.tensors))
        return tuple(seen)

    @cached_property
    def forward(self) -> int:
        """The number of ops before the first of backward or of updates. Communications may stand among them."""
        return next((p for p, op in enumerate(self.ops) if op.during not in FORWARD and not op.on_net), len(self.ops))

    @cached_property
    def double_buffered(self) -> frozenset[Tensor]:
        """The inputs that are persistent, too: the machine copies them to the device before the step begins."""
        return frozenset(self.inputs) & frozenset(self.persistent)

    @cached_property
    def fixed(self) -> frozenset[Tensor]:
        """The tensors whose values must be somewhere when the step begins or ends."""
        return frozenset((*self.inputs, *self.persistent, *self.outputs, *self.host_resident))

    @cached_property
    def lasting(self) -> Collection[Tensor]:
        """The tensors that live across steps, on the device or on the host, in this order. Membership is quick."""
        return dict.fromkeys((*self.persistent, *self.host_resident))

    @cached_property
    def movable(self) -> frozenset[Tensor]:
        """The persistent tensors that could live on the host: all but double-buffered inputs, what the caller holds,
        and weights that ranks share out."""
        shared = {t for op in self.ops if op.on_net for t in op.tensors}
        return frozenset(self.persistent) - self.double_buffered - shared - frozenset(self.held)

    def with_host_resident(self, tensors: Collection[Tensor]) -> Program:
        """The program with the same ops, of whose persistent tensors these live on the host. It need not know them all.

        Raises ValueError for a double-buffered input, which has its places on the device."""
        moved = tuple(t for t in self.persistent if t in tensors)
        if both := self.double_buffered.intersection(moved):
            raise ValueError(f"{min(t.name for t in both)} is a double-buffered input, which cannot live on the host")
        if not moved:
            return self
        kept = tuple(t for t in self.persistent if t not in tensors)
        host_resident = sorted((*self.host_resident, *moved), key=lambda t: t.name)  # the same, whatever came first
        return replace(self, persistent=kept, host_resident=tuple(host_resident))

    def synchronous_inputs(self) -> Program:
        """The program with the same ops, whose inputs all come by copies within the step."""
        return (
            replace(self, persistent=tuple(t for t in self.persistent if t not in self.double_buffered))
            if self.double_buffered
            else self
        )

    def check(self) -> None:
        """Raise ValueError unless op names are unique, and every read and output is an input, persistent,
        host-resident, or written earlier. A host-resident tensor may be nothing else."""
        if both := {*self.inputs, *self.persistent, *self.outputs}.intersection(self.host_resident):
            raise ValueError(
                f"{min(t.name for t in both)} is host-resident, and an input, an output or persistent, too"
            )
        known = {*self.inputs, *self.persistent, *self.host_resident}
        names: set[str] = set()
        for op in self.ops:
            for t in op.reads:
                if t not in known:
                    raise ValueError(f"{op.name} reads {t.name}, which nothing before it writes")
            if op.name in names:
                raise ValueError(f"two ops are called {op.name}")
            names.add(op.name)
            known.update(op.writes)
        for t in self.outputs:
            if t not in known:
                raise ValueError(f"output {t.name} of {self.name} is written by no op")


def nbytes(tensors: Iterable[Tensor]) -> int:
    """Sum of exact bytes, each tensor once."""
    return sum(t.nbytes for t in dict.fromkeys(tensors))
