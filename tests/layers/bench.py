"""A layer lowered alone, and what a row of tests/layers/rows says of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from minidnn.layers import Facts, Site
from minidnn.program import Tensor
from tests.support.graphs import layer
from tests.support.interpret import run_ops

ITERATION = Tensor("iteration", (1,), "int64")
IMAGE = (2, 4, 7, 5)


class Bench:
    """A layer lowered alone, on bottoms x0, x1, ... with all gradients wanted, apart from those of the bottoms `still`.
    The bottoms `labels` are int32; their numbers are below `classes`."""

    def __init__(self, text, bottoms, phase="TRAIN", facts=None, labels=(), still=(), classes=3):
        self.layer = layer(text, phase)
        self.shapes = self.layer.shapes(list(bottoms))
        self.classes = classes
        x = [Tensor(f"x{i}", s, "int32" if i in labels else "float32") for i, s in enumerate(bottoms)]
        y = [Tensor(f"y{i}", s) for i, s in enumerate(self.shapes)]
        self.parameters = self.layer.parameters(list(bottoms))
        p = {q.name: Tensor(f"it.{q.name}", q.shape) for q in self.parameters}
        self.site = s = Site("it", phase == "TRAIN", facts or Facts(), x, y, p, iteration=ITERATION, seed=5)
        wanted = [t.dtype == "float32" and i not in still for i, t in enumerate(x)]
        self.wanted = [t for t, want in zip(x, wanted, strict=True) if want]
        self.wanted += [p[q.name] for q in self.parameters if q.learnable]
        s.wanted = self.wanted if s.train else ()
        self.forward = list(self.layer.forward(s))
        s.survivor = list(y)
        s.dy = [None if self.layer.loss else Tensor(f"dy{i}", t.shape) for i, t in enumerate(y)]
        s.dx = [Tensor(f"dx{i}", t.shape) if want else None for i, (t, want) in enumerate(zip(x, wanted, strict=True))]
        s.dp = {q.name: Tensor(f"d{q.name}", q.shape) if q.learnable else None for q in self.parameters}
        differentiable = phase == "TRAIN" and (any(wanted) or self.wanted)
        self.backward = list(self.layer.backward(s)) if differentiable else []

    def listing(self):
        return [line(op) for op in (*self.forward, *self.backward)]

    def values(self, seed=0):
        random = np.random.default_rng(seed)
        s = self.site
        found = {t.name: random.standard_normal(t.shape) for t in (*s.x, *s.p.values(), *(t for t in s.dy if t))}
        for name in ("it.mean_sum", "it.variance_sum", "it.factor"):
            if name in found:
                found[name] = 0.5 + np.abs(found[name])
        for t in s.x:
            if t.dtype == "int32":
                found[t.name] = random.integers(0, self.classes, t.shape).astype(np.int32)
        return found | {"iteration": np.array([7])}


def line(op):
    reads, writes = (" ".join(t.name.removeprefix("it.") for t in side) for side in (op.reads, op.writes))
    return f"{op.kind}: {reads} -> {writes}"


@dataclass
class Row:
    text: str
    bottoms: Sequence[tuple[int, ...]]
    tops: Sequence[tuple[int, ...]] = ()
    ops: Sequence[str] = ()
    torch: Callable | None = None  # (x..., p dict) -> y, or a tuple of tops, in PyTorch
    phase: str = "TRAIN"
    labels: tuple[int, ...] = ()  # bottoms of class numbers
    still: tuple[int, ...] = ()  # bottoms that take no gradient
    classes: int = 3
    blobs: list = field(default_factory=list)  # Caffe's blob shapes
    flops: int | None = None  # of the first op
    facts: Facts | None = None
    values: Callable[[dict], dict] = dict  # from the values of x0, dy0, it.w ... to those that the layer can take

    def bench(self) -> Bench:
        return Bench(self.text, self.bottoms, self.phase, self.facts, self.labels, self.still, self.classes)

    def drawn(self, b: Bench, seed: int = 0) -> dict:
        return b.values(seed) | self.values(b.values(seed))


def output(b: Bench, values: dict) -> dict:
    return run_ops(b.forward, values, "float64")


def gradient(b: Bench, held: dict, t: Tensor) -> np.ndarray:
    """The gradient of a bottom or parameter, wherever the layer said it is."""
    s = b.site
    found = s.dx[s.x.index(t)] if t in s.x else s.dp[t.name.removeprefix("it.")]
    return held[found.name]


def weights_of_tops(b: Bench, values: dict) -> list:
    """Per top what its elements count in the sum whose gradient is taken: dy, or a loss's weight; 0: nothing."""
    return [values.get(f"dy{i}", b.layer.loss_weight(i)) for i in range(len(b.shapes))]


def compare(row: Row, seed: int = 0) -> None:
    """Assert that the layer's tops and gradients, in float64 by the reference, are PyTorch's."""
    import torch

    b = row.bench()
    values = row.drawn(b, seed)
    held = output(b, values)
    x = [torch.tensor(values[t.name], requires_grad=t in b.wanted) for t in b.site.x]
    p = {n: torch.tensor(values[t.name], requires_grad=t in b.wanted) for n, t in b.site.p.items()}
    y = row.torch(*x, p)
    tops = y if isinstance(y, tuple) else (y,)
    for i, top in enumerate(tops):
        assert tuple(top.shape) == tuple(b.shapes[i])
        np.testing.assert_allclose(held[f"y{i}"], top.detach().numpy(), rtol=1e-10, atol=1e-10)
    if not b.backward and not any(t in b.wanted for t in b.site.x):
        return
    if row.phase == "TEST":
        return
    held = run_ops(b.backward, held, "float64")
    counted = [(top, w) for top, w in zip(tops, weights_of_tops(b, values), strict=False) if top.requires_grad]
    sum((top * torch.as_tensor(w)).sum() for top, w in counted).backward()
    theirs = {f"x{i}": v.grad for i, v in enumerate(x)} | {f"it.{n}": v.grad for n, v in p.items()}
    for t in b.wanted:
        np.testing.assert_allclose(gradient(b, held, t), theirs[t.name].numpy(), rtol=1e-9, atol=1e-9, err_msg=t.name)


def compare_numeric(row: Row) -> None:
    """Assert that the layer's gradients are central differences of the weighted sum of its tops, at up to 12 places of
    each bottom and parameter."""
    b = row.bench()
    values = row.drawn(b, 1)
    held = run_ops(b.backward, output(b, values), "float64")
    places = np.random.default_rng(2)

    def objective(changed):
        out = output(b, changed)
        return sum((out[f"y{i}"] * w).sum() for i, w in enumerate(weights_of_tops(b, values)) if np.any(w))

    for t in b.wanted:
        for i in places.choice(t.size, min(12, t.size), replace=False):
            sides = []
            for step in (1e-6, -1e-6):
                changed = values | {t.name: values[t.name].copy()}
                changed[t.name].flat[i] += step
                sides.append(objective(changed))
            numeric = (sides[0] - sides[1]) / 2e-6
            found = gradient(b, held, t).flat[i]
            assert abs(found - numeric) <= max(1e-5 * abs(numeric), 1e-7), f"{t.name}[{i}]: {found}, not {numeric}"
