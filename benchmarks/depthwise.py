"""The depthwise convolutions of a MobileNet on the CPU: our kernels beside oneDNN's and PyTorch's.

    python -m benchmarks.depthwise [--net mobilenet_v2] [--batch 8] [--threads 1] [--rounds 21] [--json]

Every pass of every convolution with one filter per channel runs by each way in turn, round after round. So all ways see
the same machine. A round's ratio is another way's seconds over ours; given are its median and the 95 % interval of it.
oneDNN's way is the algorithm that the cpu backend lists first where our kernels are not compiled. PyTorch (extra
`peer`) has its images channels-last. `ONEDNN_MAX_CPU_ISA=AVX2` holds ours and oneDNN's to AVX2.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch

from minidnn import zoo
from minidnn.backends.cpu import CpuDevice
from minidnn.measuring.spread import Spread
from minidnn.nets.net import Net
from minidnn.program import Op
from minidnn.programs.autodiff import differentiate
from minidnn.report import table

PASSES = ("forward", "backward_data", "backward_filter")


def depthwise(name: str, batch: int) -> list[Op]:
    """The net's ops of depthwise convolutions, in the order of a step."""
    found = zoo.find(name, batch)
    net = found.with_batch(batch) if isinstance(found, Net) else Net.from_file(found, batch=batch)
    kinds = {f"convolution.{which}" for which in PASSES}
    ops = [op for op in differentiate(net.graph("TRAIN")).ops if op.kind in kinds]
    return [op for op in ops if 1 < op.attrs.group == max(t.shape[1] for t in op.tensors if len(t.shape) == 4)]


def by_device(device: CpuDevice, op: Op) -> Callable[[], object]:
    """The op by the device's first algorithm, on tensors of its own."""
    random, first = np.random.default_rng(0), device.algorithms(op)[0]
    buffers = {t: np.empty(t.nbytes + 64, np.uint8) for t in op.tensors}
    views = {t: device.array(raw[-raw.ctypes.data % 64 :], t) for t, raw in buffers.items()}
    for view in views.values():
        view[...] = random.standard_normal(view.shape)
    workspace = np.zeros(first.workspace + 64, np.uint8)
    call = device.prepare(op, first, views, workspace[-workspace.ctypes.data % 64 :])
    return lambda held=(buffers, workspace): call()


def by_torch(op: Op) -> Callable[[], object]:
    a = op.attrs

    def drawn(shape):
        return torch.randn(shape).contiguous(memory_format=torch.channels_last)

    if op.kind == "convolution.forward":
        x, w = (drawn(t.shape) for t in op.reads[:2])
        return lambda: torch.nn.functional.conv2d(x, w, None, a.stride, a.pad, a.dilation, a.group)
    data = op.kind == "convolution.backward_data"
    x, dy = drawn((op.writes[0] if data else op.reads[0]).shape), drawn(op.reads[1].shape)
    w = drawn((op.reads[0] if data else op.writes[0]).shape)
    geometry = None, a.stride, a.pad, a.dilation, False, [0, 0], a.group, [data, not data, False]
    return lambda: torch.ops.aten.convolution_backward(dy, x, w, *geometry)


def measure(ops: list[Op], threads: int, rounds: int) -> dict[tuple[str, str], np.ndarray]:
    """(pass, way) -> the seconds of all ops of that pass, round by round."""
    torch.set_num_threads(threads)
    ours, plain = CpuDevice(threads), CpuDevice(threads)
    if ours.native is None:
        raise SystemExit(f"our kernels are not there: {ours.found}")
    plain.native = None
    seconds: dict[tuple[str, str], np.ndarray] = defaultdict(lambda: np.zeros(rounds))
    for op in ops:
        ways = {"ours": by_device(ours, op), "oneDNN": by_device(plain, op), "PyTorch": by_torch(op)}
        for r in range(-1, rounds):  # the first round warms up
            for way, run in ways.items():
                start = time.perf_counter()
                run()
                if r >= 0:
                    seconds[op.kind.split(".")[1], way][r] += time.perf_counter() - start
    return seconds


def rows(seconds: dict[tuple[str, str], np.ndarray]) -> list[dict]:
    found = []
    for which in (*PASSES, "all"):
        parts = PASSES if which == "all" else (which,)
        total = {way: sum(seconds[part, way] for part in parts) for way in ("ours", "oneDNN", "PyTorch")}
        for way, taken in total.items():
            ratio = Spread.of(list(taken / total["ours"]))
            row = {"pass": which, "way": way, "seconds": float(np.median(taken))}
            found.append(row | {"ratio": ratio.median, "low": ratio.low, "high": ratio.high})
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="mobilenet_v2")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    ops = depthwise(args.net, args.batch)
    with torch.no_grad():
        found = rows(measure(ops, args.threads, args.rounds))
    if args.json:
        json.dump({"net": args.net, "batch": args.batch, "ops": len(ops), "rows": found}, sys.stdout, indent=1)
        return 0
    lines = [
        [r["pass"], r["way"], table.duration(r["seconds"]), f"{r['ratio']:.2f}", f"{r['low']:.2f} to {r['high']:.2f}"]
        for r in found
    ]
    plural = "" if args.threads == 1 else "s"
    where = f"on {args.threads} thread{plural}, {args.rounds} rounds"
    title = f"{args.net}, batch {args.batch}: {len(ops)} depthwise ops {where}"
    table.plain(["pass", "way", "median", "of ours", "interval"], lines, title)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
