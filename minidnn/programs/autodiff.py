"""Differentiation: a resolved graph becomes a Program, forward, loss, backward and updates in one linear list.

Each layer decides what its backward reads, under the given Facts (layers/base.py). This module decides which gradients
are wanted. programs/gradients.py adds them up at forks. programs/updates.py decides what happens to the gradients of
weights.

programs/sites.py makes the tensors that layers read. In a graph of a 16-bit format (formats.py) a loss works in
float32, and a cast op brings its gradient back to the format. The gradients of parameters are in the format, since
cuDNN computes no others, and sums of them over micro-batches are float32. The gradient of a parameter that says float32
(layers/base.py) is float32.

The elements of a top with a `loss_weight` are summed right after its layer, so that the top need not live until the
objective is computed. Its gradient is one number, which fills a tensor only when the layer's backward begins. A loss
layer multiplies its own gradient by the weight instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minidnn.errors import BadInput
from minidnn.formats import floating
from minidnn.layers.base import PLACES, Parameter
from minidnn.layers.facts import Facts
from minidnn.nets.loss import has_loss, remedy
from minidnn.program import Op, Pass, Program, Role, Tensor
from minidnn.programs.gradients import Gradients
from minidnn.programs.scalars import ITERATION, OBJECTIVE, RATE, SCALE, objectives
from minidnn.programs.sites import Lowered, Sites
from minidnn.programs.spec import TrainSpec
from minidnn.programs.updates import Updates

if TYPE_CHECKING:
    from minidnn.nets.graph import Graph

OWN = ".own"  # suffix of a gradient that a layer writes and that must still be cast or scaled


class NotTrainable(BadInput, ValueError):
    """A valid graph that cannot be differentiated as asked: it has no loss, a layer below it has no gradient, or `keep`
    names an input."""


def check_loss(graph: Graph) -> None:
    """Raise NotTrainable, with the remedy, if the graph has no loss."""
    if not has_loss(graph):
        what = "has no loss to train with: no layer has a loss_weight"
        raise NotTrainable(f"{graph.place}: net {graph.name} {what}; {remedy(graph)}")


@dataclass(frozen=True)
class ObjectiveAttrs:
    """The weights of the losses whose weighted sum is the objective, in the order of the op's reads."""

    weights: tuple[float, ...]


@dataclass(frozen=True)
class FillAttrs:
    """The op fills a gradient with this value, times the loss's scale if it reads one."""

    value: float


def differentiate(
    graph: Graph,
    facts: Facts | None = None,
    train: TrainSpec | None = None,
    keep: Sequence[Tensor] = (),
    loss: bool = False,
) -> Program:
    """The program of one step of `graph`: TRAIN or ACCUMULATE, and for a graph of phase TEST the forward pass alone.

    Without `train` there are no updates, and the program carries the gradients of all parameters.

    keep: activations that become outputs of the program, too
    loss: whether a graph of phase TEST computes its objective, if it has a loss

    Raises NotTrainable if a TRAIN graph has no loss, if a layer without a gradient lies between a loss and what learns,
    or if `keep` names an input of the net.
    """
    return _Differentiation(graph, facts or Facts(), train, keep, loss).program()


class _Differentiation:
    """The state of one call of `differentiate`; `program` does the work in order."""

    def __init__(self, graph: Graph, facts: Facts, train: TrainSpec | None, keep: Sequence[Tensor], loss: bool) -> None:
        self.graph, self.facts, self.train = graph, facts, train
        self.training = graph.phase == "TRAIN"
        self.keep = tuple(keep)
        self.weights = self._weights() if self.training or loss else {}
        self.ops: list[Op] = []
        self.sites = Sites(graph, facts, train.seed if train else 0)
        self.lowered = [self.sites.of(node) for node in graph.layers if not node.layer.same]
        self.gradients = Gradients(facts, self.ops.append)
        self.persistent: list[Tensor] = [t for low in self.lowered for t in low.parameters.values()]
        self.scaled = self.training and train is not None and graph.format == "float16"
        if self.scaled:
            self.persistent.append(SCALE)
        self.updates = Updates(train, self.scaled, self.ops.append) if train is not None else None

    def program(self) -> Program:
        losses: dict[Tensor, float] = {}
        if self.training:
            self._plan()
        for low in self.lowered:
            self.ops += low.casts
            forward = low.node.layer.forward(low.site)
            self.ops += forward if self.updates is None else self.updates.forward(forward)
            losses.update((self._loss(low, t), self.weights[t]) for t in low.site.y if t in self.weights)
            for t in low.site.y:
                if t in self.sites.forks:
                    layer = f"{t.name}_split"
                    self._emit(
                        layer, "split.forward", Pass.FORWARD, [t], [self.sites.forks[t]], name=f"{layer}.forward"
                    )
        if losses:
            attrs = ObjectiveAttrs(tuple(losses.values()))
            self._emit("objective", "objective.forward", Pass.LOSS, losses, [OBJECTIVE], attrs)
            if self.updates is not None:
                self.updates.objective()
        if self.training:
            self._backward()
            if self.updates is not None:
                self.updates.finish()
                self.persistent += self.updates.persistent
                self.ops = self.updates.together() + self.ops
        return self._assemble()

    def _emit(self, layer, kind, during, reads, writes, attrs=None, inplace=(), flops=0, name=None) -> None:
        reads, writes, inplace = tuple(reads), tuple(writes), self.facts.pairs(kind, dict.fromkeys(inplace))
        self.ops.append(Op(name or kind, kind, layer, during, reads, writes, attrs, inplace, flops))

    # ---- forward

    def _weights(self) -> dict[Tensor, float]:
        """The weight in the objective of each top that has one. Raises NotTrainable if one holds labels, or if none has
        a weight where there must be one to train."""
        result = {}
        for node in self.graph.layers:
            for i, blob in enumerate(node.tops):
                if not (weight := node.layer.loss_weight(i)):
                    continue
                if not floating(blob.tensor.dtype):
                    what = f"its top {blob.name!r} has a loss_weight, but holds labels"
                    raise NotTrainable(f"{node.place}: layer {node.name}: {what}")
                result[blob.tensor] = weight
        if self.training:
            check_loss(self.graph)
        return result

    def _loss(self, low: Lowered, t: Tensor) -> Tensor:
        """The sum of a top that has a loss_weight, one float32 number; the top itself if that is all that it is."""
        if t.shape == (1,) and t.dtype == "float32":
            return t
        total = Tensor(f"{t.name}.sum", (1,))
        name = f"{low.node.name}.sum_{t.name}"
        self._emit(low.node.name, "objective.sum", Pass.LOSS, [t], [total], flops=t.size, name=name)
        return total

    # ---- backward

    def _plan(self) -> None:
        """Decide which layers have a backward, and into which bottoms.

        A layer has one if a loss is above it and a parameter in or below it learns. A gradient that is forced (of the
        data) counts like such a parameter, but not into what a loss compares with. A layer's `propagate_down` overrules
        the choice for its bottoms, and `force_backward` overrules that, as in Caffe. Raises NotTrainable if a gradient
        is wanted of what a loss compares with."""
        wanted: set[Tensor] = set()
        forced: set[Tensor] = set()  # those of `wanted` below which nothing learns
        force = self.facts.first_dx or self.graph.force_backward
        for low in self.lowered:
            given, still = low.node.layer.spec.propagate_down, low.node.layer.still
            low.into = [t in wanted for t in low.bottoms]
            for i, text in enumerate(given):
                low.into[i] = text or (low.into[i] and self.graph.force_backward)
            low.into = [want and i not in still for i, want in enumerate(low.into)]
            self._spare_targets(low, forced)
            if low.learned or any(low.into) or (force and low.node.layer.inputs):
                made = [t for t in low.site.y if t.role is not Role.LABEL]
                wanted.update(made)
                if not low.learned and all(t in forced for t, want in zip(low.bottoms, low.into, strict=True) if want):
                    forced.update(made)
        reached = set(self.weights)
        for low in reversed(self.lowered):
            low.backward = any(t in reached for t in low.site.y) and (bool(low.learned) or any(low.into))
            if low.backward:
                own = (t for t, want in zip(low.site.x, low.into, strict=True) if want)
                low.site.wanted = frozenset((*own, *(low.site.p[p.name] for p in low.learned)))
                into = [t for t, want in zip(low.bottoms, low.into, strict=True) if want]
                reached.update(into)
                for t in into:
                    self.gradients.expect(t, _gradient(t))
                for p in low.learned:
                    w = low.parameters[p.name]
                    self.gradients.expect(w, parameter_gradient(w, p, self.graph.format))
                for t in self._seeded(low):
                    self.gradients.expect(t, _gradient(t))

    def _spare_targets(self, low: Lowered, forced: set[Tensor]) -> None:
        """Leave out a forced gradient into what a loss compares with. Raises NotTrainable for another one."""
        layer = low.node.layer
        for i in layer.targets:
            if i >= len(low.bottoms) or not low.into[i]:
                continue
            if low.bottoms[i] not in forced:
                what = f"no gradient flows into {layer.spec.bottom[i]!r}, which {layer.type} compares with"
                keep = ", ".join("false" if k in layer.targets else "true" for k in range(len(low.bottoms)))
                raise NotTrainable(
                    f"{low.node.place}: layer {layer.name}: {what}; propagate_down: [{keep}] holds it still"
                )
            low.into[i] = False

    def _seeded(self, low: Lowered) -> list[Tensor]:
        """The tops whose gradient has the loss_weight as a part. A loss works it into its own gradient."""
        return [] if low.node.layer.loss else [t for t in low.site.y if t in self.weights]

    def _backward(self) -> None:
        for low in reversed(self.lowered):
            if not low.backward:
                continue
            site = low.site
            for t in self._seeded(low):
                self._seed(low, t)
            site.dy = [self.gradients.of(t) for t in site.y]
            dx = [self._part(low, i) if want else None for i, want in enumerate(low.into)]
            by = f"part.{low.node.name}"
            dp = {p.name: self.gradients.part(low.parameters[p.name], by) for p in low.learned}
            site.dx = [t and self._own(low, t, x) for t, x in zip(dx, site.x, strict=True)]
            site.dp = {name: self._own(low, dp[name], p) if name in dp else None for name, p in site.p.items()}
            try:
                self.ops += low.node.layer.backward(site)
            except ValueError as error:  # it has no gradient
                raise NotTrainable(f"{low.node.place}: {error}") from None
            for p in low.learned:
                w = low.parameters[p.name]
                if self.gradients.arrive(w, self._out(low, site.dp[p.name], dp[p.name]), low.node.name):
                    self._complete(low.node.name, p, w)
            for i, t in enumerate(low.bottoms):
                if (gradient := dx[i]) is not None:
                    self.gradients.arrive(t, self._out(low, site.dx[i], gradient), low.node.name)

    def _seed(self, low: Lowered, t: Tensor) -> None:
        """The part of a top's gradient that is its loss_weight: the same number for each element."""
        part = self.gradients.part(t, low.node.name)
        reads, name = [SCALE] if self.scaled else [], f"{low.node.name}.fill_{part.name}"
        self._emit(low.node.name, "gradient.fill", Pass.BACKWARD, reads, [part], FillAttrs(self.weights[t]), name=name)
        self.gradients.arrive(t, part, low.node.name)

    def _complete(self, layer: str, p: Parameter, w: Tensor) -> None:
        """The gradient of a weight is complete: without updates the program carries it."""
        dw = self.gradients.of(w)
        assert dw is not None
        if self.updates is None:
            self.persistent.append(dw)
        else:
            self.updates.complete(layer, p, w, dw)

    def _part(self, low: Lowered, i: int) -> Tensor:
        """A new tensor for the gradient of a bottom: the whole gradient, or at a fork the part from this consumer."""
        t = low.bottoms[i]
        return self.gradients.part(t, low.node.name + (f".{i}" if low.bottoms.count(t) > 1 else ""))

    def _own(self, low: Lowered, gradient: Tensor, of: Tensor) -> Tensor:
        """The tensor that the layer writes for that gradient: `gradient` itself, or one still to be cast or scaled.

        It has the number format of `of`, the tensor that the layer reads."""
        if of.dtype == gradient.dtype and not (self.scaled and low.node.layer.loss):
            return gradient
        return Tensor(gradient.name + OWN, gradient.shape, of.dtype, gradient.role)

    def _out(self, low: Lowered, tensor: Tensor | None, gradient: Tensor) -> Tensor:
        """The gradient to pass on, from the tensor that the layer wrote for it: cast and scaled if it must be."""
        assert tensor is not None
        if tensor.dtype == gradient.dtype and not (self.scaled and low.node.layer.loss):
            return tensor
        reads = [tensor, SCALE] if self.scaled and low.node.layer.loss else [tensor]
        inplace = [(tensor, gradient)] if tensor.dtype == gradient.dtype else []
        self._emit(
            low.node.name, "cast.backward", Pass.BACKWARD, reads, [gradient], None, inplace, tensor.size,
            name=f"{low.node.name}.cast_{gradient.name}",
        )  # fmt: skip
        return gradient

    # ---- the whole

    def _assemble(self) -> Program:
        """The Program of all ops: inputs are those that ops read, outputs the ends of the net and `keep`."""
        read = {t for op in self.ops for t in op.reads}
        sources = [t for low in self.lowered if low.node.layer.inputs for t in low.site.y]
        for t in self.keep:
            if t in sources:
                raise NotTrainable(f"cannot keep {t.name}: it is an input of net {self.graph.name}")
        ends = [b.tensor for b in self.graph.outputs if b.tensor not in sources]
        if self.training:  # of tops without consumers only single numbers (losses, accuracies) leave the device
            ends = [t for t in ends if t.size == 1]
        if self.weights:
            ends.append(objectives(self.train.ranks if self.train else 1))
        name = self.train.part if self.train and self.training else self.graph.phase
        program = Program(
            name,
            tuple(self.ops),
            tuple(t for t in (*sources, *self._places(read), RATE, ITERATION) if t in read),
            tuple(dict.fromkeys(self.persistent)),
            tuple(dict.fromkeys((*ends, *self.keep))),
            tuple(low.node.name for low in self.lowered),
        )
        program.check()
        return program

    def _places(self, read: set[Tensor]) -> list[Tensor]:
        """The places of the step's tokens, if ops read them. Raises NotTrainable if layers have different numbers of
        tokens."""
        shapes = {t.shape for op in self.ops for t in op.reads if t.name == PLACES}
        if len(shapes) > 1:
            counts = " and ".join(str(n) for (n,) in sorted(shapes))
            raise NotTrainable(
                f"{self.graph.place}: layers with places have {counts} tokens: expected the same number in all"
            )
        return [t for t in read if t.name == PLACES]


def _gradient(t: Tensor) -> Tensor:
    """The tensor "<activation>.grad", in its shape and format."""
    return Tensor(f"{t.name}.grad", t.shape, t.dtype, Role.GRADIENT)


def parameter_gradient(w: Tensor, p: Parameter, format: str) -> Tensor:
    """The tensor "<weight>.grad", in the weight's shape and in the net's format (float32 if the parameter says so)."""
    return Tensor(f"{w.name}.grad", w.shape, "float32" if p.float32 else format, Role.PARAM_GRADIENT)
