"""(m) Operations per second of our own products, MatMul and Attention, by each of their algorithms, beside PyTorch's.

The shapes are those of a ViT-S of 256 images and a GPT-2 of 8 x 1024 tokens, and a large square product. PyTorch
multiplies by cuBLAS, and attends by scaled_dot_product_attention; without PyTorch there are our times alone. That the
results are right is item a's matter.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from benchmarks.gpu_check.run import Run, Wrong
from minidnn.backends.cuda.device import CudaDevice
from minidnn.layers.attention import AttentionAttrs
from minidnn.layers.matmul import MatMulAttrs
from minidnn.measuring import bench
from minidnn.program import Op, Pass, Tensor

FORMATS = "float32", "bfloat16"  # float32 with TF32 allowed, on both sides
TIMES, TURNS = 10, 5  # calls of PyTorch between two looks at the clock, and looks
MATMULS = {  # batch, rows, depth, columns
    "square": (1, 8192, 8192, 8192), "scores of ViT-S": (1536, 196, 64, 196), "values of ViT-S": (1536, 196, 196, 64),
}  # fmt: skip
ATTENTIONS = {
    "ViT-S": (256, 196, 6, 64, False),
    "GPT-2": (8, 1024, 12, 64, True),
}  # samples, tokens, heads, depth, causal


def item(run: Run) -> None:
    device = run.place.device()
    for format in FORMATS:
        for name, (batch, rows, depth, columns) in MATMULS.items():
            a = MatMulAttrs(*((1, 40, 24, 40) if run.place.small else (batch, rows, depth, columns)))
            x, w, y = ((a.batch, a.rows, a.depth), (a.batch, a.depth, a.columns), (a.batch, a.rows, a.columns))
            op = _op("matmul.forward", [x, w], [y], a, format, 2 * a.batch * a.rows * a.depth * a.columns)
            work = partial(measured, device, op, partial(_torch_matmul, run, x, w, format))
            run.case(f"{name}, {format}", work, needs=1)
        for name, (samples, tokens, heads, depth, causal) in ATTENTIONS.items():
            samples, tokens, heads = (1, 20, 1) if run.place.small else (samples, tokens, heads)
            g = AttentionAttrs(tokens, tokens, heads, heads, depth, causal=causal, scale=depth**-0.5)
            shape, flops = (samples, tokens, heads * depth), 4 * samples * heads * depth * g.pairs
            forward = _op("attention.forward", [shape] * 3, [shape], g, format, flops)
            beside = partial(_torch_attention, run, (samples, heads, tokens, depth), causal, format)
            run.case(f"attention of {name}, {format}", partial(measured, device, forward, beside), needs=1)
            lse = (samples, tokens, heads)
            backward = _op("attention.backward", [*[shape] * 4, lse, shape], [shape] * 3, g, format, 10 * flops // 4)
            run.case(f"attention of {name}, backward, {format}", partial(measured, device, backward, None), needs=1)


def _op(kind: str, reads: list, writes: list, attrs: Any, format: str, flops: int) -> Op:
    def tensor(name: str, shape: tuple[int, ...]) -> Tensor:
        return Tensor(name, shape, "float32" if name == "r4" else format)  # the logarithms of sums

    read = tuple(tensor(f"r{i}", shape) for i, shape in enumerate(reads))
    written = tuple(tensor(f"w{i}", shape) for i, shape in enumerate(writes))
    return Op(kind, kind, kind.partition(".")[0], Pass.FORWARD, read, written, attrs, flops=flops)


def measured(device: CudaDevice, op: Op, beside: Callable[[], float | None] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"flops": op.flops}
    wanted = {a.name: (op, a) for a in device.algorithms(op)}
    for name, seconds in bench.each(device, wanted):
        if not isinstance(seconds, float):
            raise Wrong(f"{op.name} [{name}]: {seconds}", found)
        found |= {f"{name}_seconds": seconds, f"{name}_tflops": op.flops / seconds / 1e12}
    if beside is not None and (theirs := beside()) is not None:
        found |= {"torch_seconds": theirs, "torch_tflops": op.flops / theirs / 1e12}
    return found


def _torch_matmul(run: Run, x: tuple[int, ...], w: tuple[int, ...], format: str) -> float | None:
    return _torch_seconds(run, lambda t: lambda a=t(x), b=t(w): a @ b, format)


def _torch_attention(run: Run, shape: tuple[int, ...], causal: bool, format: str) -> float | None:
    def make(t: Callable[[tuple[int, ...]], Any]) -> Callable[[], object]:
        import torch

        q, k, v = t(shape), t(shape), t(shape)
        return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return _torch_seconds(run, make, format)


def _torch_seconds(run: Run, make: Callable[..., Callable[[], object]], format: str) -> float | None:
    """PyTorch's seconds of one call; None without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    run.place.settle(True)
    device, taken = run.place.torch, []
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    call = make(lambda shape: torch.randn(shape, dtype=getattr(torch, format), device=device))
    for _ in range(TURNS + 1):  # the first warms up
        wait()
        began = time.perf_counter()
        for _ in range(TIMES):
            call()
        wait()
        taken.append((time.perf_counter() - began) / TIMES)
    return median(taken[1:])
