"""Nodes ready to be lowered to ops: each with the tensors that its layer reads and writes.

In a graph of a 16-bit format (formats.py) parameters stay float32: a layer reads a copy of them in the format, made by
a cast op. A loss reads a copy of the scores in float32. A parameter that says float32 (layers/base.py) is read without
a copy. Layers that share a parameter share its copy.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minidnn.formats import floating
from minidnn.layers.base import Parameter, Site
from minidnn.layers.facts import Facts
from minidnn.program import Op, Pass, Role, Tensor
from minidnn.programs.scalars import ITERATION

if TYPE_CHECKING:
    from minidnn.nets.graph import Blob, Graph, Node


@dataclass(eq=False)
class Lowered:
    """A node and its Site: forward fills in the tensors, backward later adds the gradients. The site's x and p are the
    tensors that the layer reads: those of `bottoms` and `parameters`, or copies of them, which `casts` make."""

    node: Node
    site: Site
    bottoms: list[Tensor]
    parameters: dict[str, Tensor]
    casts: list[Op]
    learned: list[Parameter]
    into: list[bool] = field(default_factory=list)  # per bottom, whether its gradient is wanted
    backward: bool = False  # whether the layer has a backward: programs/autodiff.py decides


class Sites:
    """The nodes of one graph, made ready in order. `forks`: under facts that copy at a fork, the copies that consumers
    read, by activation."""

    def __init__(self, graph: Graph, facts: Facts, seed: int) -> None:
        self._graph, self._facts, self._seed = graph, facts, seed
        self._training = graph.phase == "TRAIN"
        self._copies: set[Tensor] = set()  # those that casts make
        self.forks = self._forks() if self._training and facts.fork == "copy" else {}

    def _forks(self) -> dict[Tensor, Tensor]:
        """For each activation with several consumers, the copy of it that they read."""
        readers = Counter(b.tensor for node in self._graph.layers if not node.layer.same for b in node.bottoms)
        forked = [t for t, n in readers.items() if n > 1]
        return {t: Tensor(f"{t.name}_split", t.shape, t.dtype) for t in forked if t.role is Role.ACTIVATION}

    def of(self, node: Node) -> Lowered:
        """The node with its Site, ready for forward, and the casts of the tensors that it reads in another format."""
        bottoms = [b.tensor for b in node.bottoms]
        result = (t.dtype for t in bottoms if floating(t.dtype))
        format = "float32" if node.layer.loss else next(result, self._graph.format)
        parameters = {p.name: _parameter(node, p, format) for p in node.parameters}
        casts: list[Op] = []

        def read(t: Tensor, copy: str, role: Role, what: str) -> Tensor:
            """The tensor, or a copy of it in the layer's format, which `casts` makes."""
            if not floating(t.dtype) or t.dtype == format:
                return t
            new, kind = Tensor(copy, t.shape, format, role), "cast.forward"
            if new in self._copies:  # an earlier layer that shares the parameter has made it
                return new
            self._copies.add(new)
            casts.append(Op(f"{node.name}.cast_{what}", kind, node.name, Pass.FORWARD, (t,), (new,), flops=t.size))
            return new

        def copied(p: Parameter, t: Tensor) -> Tensor:
            return read(t, f"{t.name}.{format}", Role.COPY, p.name) if p.learnable and not p.float32 else t

        site = Site(
            node.name, self._training, self._facts,
            [
                read(self.forks.get(t, t), f"{t.name}.{node.name}.{i}", Role.EXTRA, f"x{i}")
                for i, t in enumerate(bottoms)
            ],
            [b.tensor for b in node.tops],
            {p.name: copied(p, parameters[p.name]) for p in node.parameters},
            survivor=[_survivor(b) for b in node.tops], iteration=ITERATION, seed=self._seed,
        )  # fmt: skip
        learned = [p for p in node.parameters if p.learnable and p.lr_mult != 0]
        return Lowered(node, site, bottoms, parameters, casts, learned)


def _survivor(blob: Blob) -> Tensor:
    """The last version of a blob after sign-keeping layers have worked on it in place (Layer.keeps_sign)."""
    while len(blob.consumers) == 1:
        (after,) = blob.consumers
        if not after.layer.keeps_sign or after.tops[0].name != blob.name:
            break
        blob = after.tops[0]
    return blob.tensor


def _parameter(node: Node, p: Parameter, format: str) -> Tensor:
    """The tensor "<layer>.<parameter>": a PARAM, or STATE if it is a running statistic, in float32; in the format of
    the bottoms if it is kept for the next step."""
    dtype, role = format if p.kept else "float32", Role.PARAM if p.learnable else Role.STATE
    return Tensor(node.tensor_name(p), p.shape, dtype, role)
