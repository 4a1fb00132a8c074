"""Differentiation: a resolved graph becomes a Program, forward, loss, backward and updates in one linear list.

What backward reads is each layer's to say (layers/base.py, under the given Facts). Decided here: which gradients
are wanted, how they add up at forks, and where updates stand: as early as their gradient is complete and nobody
reads the weight any more, so that gradients need not all live at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from minidnn.layers.base import Facts, Parameter, Site
from minidnn.net import Blob, Graph, Node
from minidnn.program import Op, Phase, Program, Role, Tensor

RATE = Tensor("rate", (1,), role=Role.CONTROL)
ITERATION = Tensor("iteration", (1,), "int64", Role.CONTROL)
OBJECTIVE = Tensor("objective", (1,))


@dataclass(frozen=True)
class TrainSpec:
    """What an update is: Caffe's SGD. clip_gradients <= 0 means no clipping.

    accumulate: the program of all but the last of iter_size batches: gradients are added up, nothing is updated.
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    regularization: str = "L2"
    clip_gradients: float = -1.0
    iter_size: int = 1
    seed: int = 0
    accumulate: bool = False


@dataclass(frozen=True)
class SGDAttrs:
    """g = dw * clip * scale; g += decay * w (L2) or decay * sign(w) (L1); h = momentum h + rate lr_mult g; w -= h."""

    momentum: float
    decay: float
    regularization: str
    lr_mult: float
    scale: float  # 1 / iter_size
    clipped: bool


@dataclass(frozen=True)
class ClipAttrs:
    threshold: float


@dataclass(frozen=True)
class ObjectiveAttrs:
    weights: tuple[float, ...]


@dataclass(eq=False)
class _Lowered:
    """A node with its site: forward's side of it, to which backward adds gradients."""

    node: Node
    site: Site
    learned: list[Parameter] = field(default_factory=list)


def differentiate(
    graph: Graph,
    facts: Facts | None = None,
    train: TrainSpec | None = None,
    keep: Sequence[Tensor] = (),
) -> Program:
    """The program of one step of `graph`: TRAIN, or ACCUMULATE, or, for a graph of phase TEST, forward alone.

    Without `train` there are no updates: the gradients of all parameters stay on the device, carried.
    `keep`: activations that are outputs, too. Raises ValueError for a TRAIN graph without a loss.
    """
    return _Differentiation(graph, facts or Facts(), train, keep).program()


class _Differentiation:
    def __init__(self, graph: Graph, facts: Facts, train: TrainSpec | None, keep: Sequence[Tensor]) -> None:
        self.graph, self.facts, self.train = graph, facts, train
        self.training = graph.phase == "TRAIN"
        self.keep = tuple(keep)
        self.ops: list[Op] = []
        self.lowered = [self._site(node) for node in graph.layers]
        self.gradient: dict[Tensor, Tensor] = {}  # of an activation: what has been summed up so far
        self.carried: list[Tensor] = [t for low in self.lowered for t in low.site.p.values()]
        self.parameter_gradients: list[tuple[str, Parameter, Tensor, Tensor]] = []

    # ---- forward

    def _site(self, node: Node) -> _Lowered:
        site = Site(
            node.name, self.training, self.facts,
            [b.tensor for b in node.bottoms], [b.tensor for b in node.tops],
            {p.name: parameter_tensor(node, p) for p in node.parameters},
            iteration=ITERATION, seed=self.train.seed if self.train else 0,
        )  # fmt: skip
        learned = [p for p in node.parameters if p.learnable and p.lr_mult != 0]
        return _Lowered(node, site, learned)

    def program(self) -> Program:
        for low in self.lowered:
            self.ops += low.node.layer.forward(low.site)
        losses = self._losses()
        if self.training:
            if not losses:
                raise ValueError(f"net {self.graph.name} has no loss to train with: no layer has a loss_weight")
            self._objective(losses)
            self._backward(losses)
            if self.train:
                self._finish(self.train)
        return self._assemble()

    def _losses(self) -> list[tuple[Tensor, float]]:
        """(top, weight) of every top that counts in the objective."""
        found = []
        for low in self.lowered:
            layer = low.node.layer
            given = layer.spec.loss_weight
            for i, blob in enumerate(low.node.tops):
                weight = given[i] if i < len(given) else (1.0 if layer.loss and i == 0 else 0.0)
                if weight:
                    found.append((blob.tensor, weight))
        return found

    def _objective(self, losses: Sequence[tuple[Tensor, float]]) -> None:
        weights = ObjectiveAttrs(tuple(w for _, w in losses))
        reads = tuple(t for t, _ in losses)
        self.ops.append(
            Op("objective.forward", "objective.forward", "objective", Phase.LOSS, reads, (OBJECTIVE,), weights)
        )

    # ---- backward

    def _backward(self, losses: Sequence[tuple[Tensor, float]]) -> None:
        wanted = self._wanted()
        weighted = {t for t, _ in losses}
        for low in reversed(self.lowered):
            site, layer = low.site, low.node.layer
            for t in site.y:
                if t in weighted and not layer.loss:
                    raise ValueError(
                        f"layer {low.node.name} has a loss_weight, but {layer.type} is no loss: end in a loss layer"
                    )
            site.dy = [self.gradient.get(t) for t in site.y]
            reached = any(dy is not None for dy in site.dy) or (layer.loss and any(t in weighted for t in site.y))
            site.dx = [
                self._gradient_of(b, low, i) if b.tensor in wanted else None for i, b in enumerate(low.node.bottoms)
            ]
            learned = {p.name for p in low.learned}
            site.dp = {n: parameter_gradient(t) if n in learned else None for n, t in site.p.items()}
            if not reached or not (learned or any(dx is not None for dx in site.dx)):
                continue
            self.ops += layer.backward(site)
            for blob, dx in zip(low.node.bottoms, site.dx, strict=True):
                if dx is not None:
                    self._arrive(blob.tensor, dx, low)
            for p in low.learned:
                gradient = site.dp[p.name]
                assert gradient is not None
                self._complete(low.node.name, p, site.p[p.name], gradient)

    def _wanted(self) -> set[Tensor]:
        """Blobs whose gradient somebody needs: made from learned parameters, or the data where facts say so."""
        wanted: set[Tensor] = set()
        force = self.facts.first_dx or self.graph.force_backward
        for low in self.lowered:
            source = not low.node.bottoms
            below = any(b.tensor in wanted for b in low.node.bottoms)
            if low.learned or below or (source and force):
                wanted.update(b.tensor for b in low.node.tops if b.tensor.role in (Role.ACTIVATION, Role.INPUT))
        return wanted

    def _gradient_of(self, blob: Blob, low: _Lowered, i: int) -> Tensor:
        """A new tensor for the gradient of a bottom: the whole of it, or at a fork this consumer's part."""
        t = blob.tensor
        uses = sum(b is blob for consumer in dict.fromkeys(blob.consumers) for b in consumer.bottoms)
        name = f"{t.name}.grad"
        if uses > 1:
            name += f".{low.node.name}" + (f".{i}" if low.node.bottoms.count(blob) > 1 else "")
        return Tensor(name, t.shape, t.dtype, Role.GRADIENT)

    def _arrive(self, t: Tensor, dx: Tensor, low: _Lowered) -> None:
        """Add a partial gradient to what is there, as soon as there are two."""
        before = self.gradient.get(t)
        if before is None:
            self.gradient[t] = dx
            return
        total = Tensor(f"{t.name}.grad.sum.{len(self.ops)}", t.shape, t.dtype, Role.GRADIENT)
        pairs = tuple(dict.fromkeys(((before, total), (dx, total))))
        name = f"{low.node.name}.add_{t.name}.{len(self.ops)}"
        self.ops.append(
            Op(name, "gradient.add", low.node.name, Phase.BACKWARD, (before, dx), (total,), None, pairs, t.size)
        )
        self.gradient[t] = total

    # ---- updates

    def _complete(self, layer: str, p: Parameter, w: Tensor, dw: Tensor) -> None:
        """A parameter's gradient is whole: update at once, unless something must be known of all gradients first."""
        if self.train is None:
            self.carried.append(dw)
            return
        if self.train.iter_size > 1:
            total = Tensor(f"{dw.name}.sum", dw.shape, dw.dtype, Role.PARAM_GRADIENT)
            self.carried.append(total)
            self.ops.append(
                Op(
                    f"{layer}.accumulate_{p.name}",
                    "gradient.accumulate",
                    layer,
                    Phase.UPDATE,
                    (total, dw),
                    (total,),
                    None,
                    (),
                    w.size,
                )
            )
            dw = total
        self.parameter_gradients.append((layer, p, w, dw))
        if not self.train.accumulate and self.train.clip_gradients <= 0:
            self._update(self.train, layer, p, w, dw, None)

    def _finish(self, train: TrainSpec) -> None:
        """Clipping needs the norm of all gradients, so that with it all updates come last."""
        for _, _, w, _ in self.parameter_gradients:
            if train.momentum and train.accumulate:
                self.carried.append(momentum_tensor(w))  # so that every program agrees on what is carried
        if train.accumulate or train.clip_gradients <= 0 or not self.parameter_gradients:
            return
        clip = Tensor("clip", (1,), role=Role.EXTRA)
        gradients = tuple(dw for *_, dw in self.parameter_gradients)
        work = 2 * sum(t.size for t in gradients)
        self.ops.append(
            Op(
                "clip.gradients",
                "gradient.clip",
                "clip",
                Phase.UPDATE,
                gradients,
                (clip,),
                ClipAttrs(train.clip_gradients),
                (),
                work,
            )
        )
        for layer, p, w, dw in self.parameter_gradients:
            self._update(train, layer, p, w, dw, clip)

    def _update(self, train: TrainSpec, layer: str, p: Parameter, w: Tensor, dw: Tensor, clip: Tensor | None) -> None:
        attrs = SGDAttrs(
            train.momentum, train.weight_decay * p.decay_mult, train.regularization, p.lr_mult,
            1.0 / train.iter_size, clip is not None,
        )  # fmt: skip
        history = [momentum_tensor(w)] if train.momentum else []
        self.carried += history
        reads = (w, dw, RATE, OBJECTIVE, *history, *([clip] if clip else []))
        self.ops.append(
            Op(
                f"{layer}.update_{p.name}",
                "sgd.update",
                layer,
                Phase.UPDATE,
                reads,
                (w, *history),
                attrs,
                (),
                5 * w.size,
            )
        )
        if train.iter_size > 1:
            self.ops.append(Op(f"{layer}.clear_{p.name}", "gradient.clear", layer, Phase.UPDATE, (), (dw,)))

    # ---- the whole

    def _assemble(self) -> Program:
        read = {t for op in self.ops for t in op.reads}
        written = {t for op in self.ops for t in op.writes}
        sources = [t for low in self.lowered if not low.node.bottoms for t in low.site.y]
        inputs = [t for t in (*sources, RATE, ITERATION) if t in read]
        ends = [b.tensor for low in self.lowered if low.node.bottoms for b in low.node.tops if not b.consumers]
        ends += [OBJECTIVE] if self.training else []
        outputs = [t for t in dict.fromkeys((*ends, *self.keep)) if t in written]
        if self.training:  # a blob that trains nothing and is read by nobody need not leave, but scalars tell
            outputs = [t for t in outputs if t.size == 1 or t in self.keep]
        name = "ACCUMULATE" if self.train and self.train.accumulate else self.graph.phase
        layers = tuple(low.node.name for low in self.lowered)
        program = Program(
            name, tuple(self.ops), tuple(inputs), tuple(dict.fromkeys(self.carried)), tuple(outputs), layers
        )
        program.check()
        return program


def parameter_tensor(node: Node, p: Parameter) -> Tensor:
    return Tensor(f"{node.name}.{p.name}", p.shape, role=Role.PARAM if p.learnable else Role.STATE)


def parameter_gradient(w: Tensor) -> Tensor:
    return Tensor(f"{w.name}.grad", w.shape, w.dtype, Role.PARAM_GRADIENT)


def momentum_tensor(w: Tensor) -> Tensor:
    return Tensor(f"{w.name}.momentum", w.shape, w.dtype, Role.STATE)
