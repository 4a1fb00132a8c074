"""The parts of language models and norms of images on the CPU, beside PyTorch's.

    python -m benchmarks.tokens                            all: some six minutes; OMP_NUM_THREADS says how many threads
    python -m benchmarks.tokens --only attention,loss      some of them
    python -m benchmarks.tokens --save                     also writes benchmarks/results/tokens-<machine>.md and .json

Forward and backward of both sides take turns in one process, in as many rounds as are asked for. A ratio is the median
over the rounds of ours over PyTorch's, with its 95 % interval. Bytes are what backward needs kept between both passes
and beside them, without inputs and gradients: PyTorch's by its profiler's memory events, ours as the plan counts them.
PyTorch's allocator keeps freed memory (M_TRIM_THRESHOLD), which is its faster setting.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine
from benchmarks.gaps import save
from minidnn import sizes
from minidnn.backends import open_device
from minidnn.cli.options import names, positive
from minidnn.layers import LAYERS, Facts, Site
from minidnn.measuring.spread import Spread
from minidnn.memory.execution.device import Device
from minidnn.program import Op, Tensor
from minidnn.report import table
from minidnn.schema.caffe import LayerParameter

KEEP = {"MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_MMAP_THRESHOLD_": str(1 << 34)}
Row = dict[str, Any]
HEADINGS = ["part", "size", "ours, ms", "PyTorch, ms", "ratio", "ours", "PyTorch"]


@dataclass(frozen=True)
class Case:
    """A layer with its fields, the shapes of its bottoms, and PyTorch's function of the bottoms and parameters.

    labels: the last bottom is int32 below this; 0: it is not"""

    part: str
    size: str
    fields: dict[str, Any]
    bottoms: tuple[tuple[int, ...], ...]
    theirs: Callable[..., Any]
    labels: int = 0


def cases() -> Iterator[Case]:
    import torch
    from torch.nn import functional as F

    def attention(heads: int) -> Callable[..., Any]:
        def call(x: Any) -> Any:
            q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in x.chunk(3, 2))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

        return call

    for n, t in ((4, 512), (1, 2048), (1, 8192)):
        fields = {"type": "Attention", "attention_param": {"num_heads": 12, "causal": True}}
        yield Case("attention", f"{n} x {t}, 12 heads of 64", fields, ((n, t, 3 * 768),), attention(12))
    wide = (8, 256, 2048)
    yield Case("SiLU", "8 x 256 x 2048", {"type": "Swish"}, (wide,), F.silu)
    yield Case("GELU", "8 x 256 x 2048", {"type": "GELU"}, (wide,), F.gelu)
    tanh = {"type": "GELU", "gelu_param": {"approximate": "TANH"}}
    yield Case("GELU, tanh", "8 x 256 x 2048", tanh, (wide,), lambda x: F.gelu(x, approximate="tanh"))
    norm = {"type": "LayerNorm", "layer_norm_param": {"axis": 2}}
    yield Case("LayerNorm", "8 x 256 x 768", norm, ((8, 256, 768),), lambda x, g, b: F.layer_norm(x, (768,), g, b))
    for shape, groups in (((8, 256, 32, 32), 32), ((8, 128, 56, 56), 32)):
        norm = {"type": "GroupNorm", "group_norm_param": {"num_groups": groups}}
        yield Case("GroupNorm", f"{_x(shape)}, {groups} groups", norm, (shape,), _grouped(groups))
    for shape in ((8, 64, 64, 64), (8, 32, 128, 128)):
        call = lambda x, g, b: F.instance_norm(x, weight=g, bias=b)  # noqa: E731
        yield Case("InstanceNorm", _x(shape), {"type": "InstanceNorm"}, (shape,), call)
    norm = {"type": "RMSNorm", "rms_norm_param": {"axis": 2}}
    yield Case("RMSNorm", "8 x 256 x 768", norm, ((8, 256, 768),), lambda x: F.rms_norm(x, (768,), eps=1e-5))
    turned = {"type": "RotaryEmbedding", "rotary_embedding_param": {"num_heads": 12, "head_dim": 64}}
    yield Case("rotary", "4 x 512, 12 heads of 64", turned, ((4, 512, 768),), _rotated)
    for rows, v in ((2048, 50304), (1024, 128000)):
        head = {"type": "InnerProductWithLoss", "inner_product_param": {"num_output": v, "bias_term": False}}
        yield Case(
            "loss", f"{rows} tokens, {v} classes", head, ((rows, 768), (rows,)),
            lambda x, label, w: F.cross_entropy(x @ w.T, label.long()), v,
        )  # fmt: skip
    assert torch


def _x(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _grouped(groups: int) -> Callable[..., Any]:
    from torch.nn import functional as F

    return lambda x, g, b: F.group_norm(x, groups, g, b)


def _rotated(x: Any) -> Any:
    import torch

    t = x.shape[1]
    angles = torch.arange(t)[:, None] * 10000.0 ** (-torch.arange(0, 64, 2) / 64)
    cos, sin = (f(angles).repeat(1, 2)[:, None] for f in (torch.cos, torch.sin))
    heads = x.unflatten(2, (12, 64))
    first, second = heads.chunk(2, 3)
    return (heads * cos + torch.cat([-second, first], 3) * sin).flatten(2)


class Ours:
    """A layer's ops bound to arrays: `forward()` and `backward()`."""

    def __init__(self, device: Device, case: Case, values: Sequence[np.ndarray]) -> None:
        spec = LayerParameter.model_validate({"name": "it", **case.fields})
        kind = LAYERS[spec.type]
        layer = kind(spec, getattr(spec, kind.field_name or "", None), "TRAIN")
        shapes = [v.shape for v in values]
        x = [Tensor(f"x{i}", v.shape, str(v.dtype)) for i, v in enumerate(values)]
        y = [Tensor(f"y{i}", s) for i, s in enumerate(layer.shapes(shapes))]
        p = {q.name: Tensor(f"it.{q.name}", q.shape) for q in layer.parameters(shapes)}
        site = Site("it", True, Facts(), x, y, p, iteration=Tensor("iteration", (1,), "int64"))
        forward = list(layer.forward(site))
        site.dy = [None if layer.loss else Tensor(f"dy{i}", t.shape) for i, t in enumerate(y)]
        site.dx = [Tensor(f"dx{i}", t.shape) if t.dtype == "float32" else None for i, t in enumerate(x)]
        site.dp = {name: Tensor(f"d{name}", t.shape) for name, t in p.items()}
        backward = list(layer.backward(site))
        self.device, self.views, self.kept = device, dict(zip(x, values, strict=True)), 0
        random = np.random.default_rng(1)
        for t in (*p.values(), *(t for t in site.dy if t is not None)):
            self.views[t] = random.standard_normal(t.shape).astype(np.float32) * np.float32(0.02)
        self.parameters = [self.views[t] for t in p.values()]
        self.workspaces: list[np.ndarray] = []
        self.ops = [self._bound(op) for op in forward], [self._bound(op) for op in backward]
        ends = {*x, *y, *p.values(), *site.dx, *site.dp.values(), *site.dy}
        gradients = {w for op in forward for w in op.writes[1:]} if layer.loss else set()
        scratch = max(a.workspace for op in (*forward, *backward) for a in device.algorithms(op)[:1])
        self.kept = scratch + sum(t.nbytes for t in self.views if t not in ends and t not in gradients)

    def _bound(self, op: Op) -> Callable[[], None]:
        algorithm = self.device.algorithms(op)[0]
        for t in op.writes:
            self.views.setdefault(t, np.empty(t.shape, t.dtype))
        workspace = np.empty(algorithm.workspace + 256, np.uint8)
        workspace = workspace[-workspace.ctypes.data % 256 :][: algorithm.workspace]
        self.workspaces.append(workspace)  # a call has its address alone
        return self.device.prepare(op, algorithm, self.views, workspace)

    def step(self) -> None:
        for ops in self.ops:
            for call in ops:
                call()


class Theirs:
    """PyTorch's forward and backward of the same values."""

    def __init__(self, case: Case, values: Sequence[np.ndarray], parameters: Sequence[np.ndarray]) -> None:
        import torch

        given = [torch.tensor(v) for v in (*values, *parameters)]
        self.given = [v.requires_grad_() if v.dtype == torch.float32 else v for v in given]
        self.call, self.wanted = case.theirs, [v for v in self.given if v.requires_grad]
        with torch.no_grad():
            self.dy = torch.randn(self.call(*self.given).shape) * 0.02

    def step(self) -> None:
        import torch

        torch.autograd.grad(self.call(*self.given), self.wanted, self.dy if self.dy.dim() else None)

    def peak(self) -> int:
        """The most bytes beside inputs and gradients."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
            self.step()
        now = most = 0
        for event in sorted(p.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
            if event.name() == "[memory]":
                now += event.nbytes()
                most = max(most, now)
        return int(most - sum(v.numel() * 4 for v in self.wanted) - (self.dy.numel() * 4 if self.dy.dim() else 0))


def row(device: Device, case: Case, rounds: int) -> Row:
    random = np.random.default_rng(0)
    values = [random.standard_normal(s).astype(np.float32) for s in case.bottoms]
    if case.labels:
        values[-1] = random.integers(0, case.labels, case.bottoms[-1]).astype(np.int32)
    ours = Ours(device, case, values)
    theirs = Theirs(case, values, ours.parameters)
    times: list[tuple[float, float]] = []
    for i in range(rounds + 1):
        pair = [0.0, 0.0]
        for side in (0, 1) if i % 2 else (1, 0):
            begin = perf_counter()
            (ours, theirs)[side].step()
            pair[side] = perf_counter() - begin
        if i:  # the first is to warm up
            times.append((pair[0], pair[1]))
    ratio = Spread.of([a / b for a, b in times])
    mine, other = (Spread.of([pair[side] for pair in times]).median for side in (0, 1))
    return {
        "part": case.part, "size": case.size, "seconds": mine, "peer_seconds": other, "ratio": ratio.median,
        "ratio_low": ratio.low, "ratio_high": ratio.high, "bytes": ours.kept, "peer_bytes": theirs.peak(),
    }  # fmt: skip


def cells(r: Row) -> list[str]:
    return [
        r["part"], r["size"], f"{r['seconds'] * 1e3:.4g}", f"{r['peer_seconds'] * 1e3:.4g}",
        f"{r['ratio']:.2f} ({r['ratio_low']:.2f}–{r['ratio_high']:.2f})",
        *(sizes.text(max(0, r[of])) for of in ("bytes", "peer_bytes")),
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--only", type=names, help="parts whose names begin so")
    parser.add_argument("--rounds", type=positive, default=9, help="turns of each side (default: 9)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help="write the results to benchmarks/results/")
    args = parser.parse_args(argv)
    if any(os.environ.get(name) != value for name, value in KEEP.items()):
        os.execve(
            sys.executable, [sys.executable, "-m", "benchmarks.tokens", *(argv or sys.argv[1:])], os.environ | KEEP
        )
    import torch

    device = open_device("cpu")
    threads = device.native.threads  # type: ignore[attr-defined]
    torch.set_num_threads(threads)
    rows = []
    for case in cases():
        if args.only is None or case.part.lower().startswith(tuple(name.lower() for name in args.only)):
            rows.append(row(device, case, args.rounds))
            print("  ".join(cells(rows[-1])), file=sys.stderr, flush=True)
    document: Row = {
        "rows": rows, "threads": threads, "peer": f"PyTorch {torch.__version__}",
        "machine": machine.described(), "date": date.today().isoformat(),
    }  # fmt: skip
    note = f"{document['peer']}, {threads} threads each; geometric mean of the ratios: "
    note += f"{math.exp(sum(math.log(r['ratio']) for r in rows) / max(1, len(rows))):.2f}"
    if args.json:
        table.dump(document)
    else:
        table.plain(HEADINGS, [cells(r) for r in rows])
        print(note)
    if args.save:
        save("tokens", HEADINGS, [cells(r) for r in rows], [note], document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
