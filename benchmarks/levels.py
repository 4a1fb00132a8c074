"""Whether a compiler on the user's machine makes quicker kernels than those that a wheel brings.

    python -m benchmarks.levels                                   lenet:64, resnet18:4 and mobilenet_v2:4
    ONEDNN_MAX_CPU_ISA=AVX2 python -m benchmarks.levels           as on a CPU without AVX-512
    python -m benchmarks.levels --networks vgg16:2 --rounds 20

One process has both libraries: compiled for this CPU, and for the best level of x86-64 that it runs. Each trains the
net under the same plan, and they take turns, in rounds of alternating order. What counts is processor time of one
thread, which other processes disturb little. The first two losses have to be equal.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from time import process_time
from typing import Any

from benchmarks import nets
from benchmarks.cpu import Wrong, asked
from benchmarks.turns import opened, train
from minidnn import cpuinfo
from minidnn.backends.cpu import CpuDevice
from minidnn.backends.cpu.native import Native
from minidnn.backends.cpu.native.sources import KERNELS
from minidnn.cli.options import names, positive
from minidnn.compiled import NotCompiled
from minidnn.report import table

STEPS = 3  # in a turn, after one that does not count


def ways() -> dict[str, tuple[str, ...]]:
    """Name -> the compiler's options: for this CPU, and for the best level of x86-64 that it runs. Raises Wrong."""
    level = next((level for level in KERNELS.levels() if cpuinfo.runs(level)), None)
    if level is None:
        raise Wrong("a wheel brings no kernels that this CPU runs, and that ONEDNN_MAX_CPU_ISA permits")
    return {"this CPU": KERNELS.options(None), level: KERNELS.options(level)}


def compared(name: str, batch: int | None, rounds: int) -> dict[str, Any]:
    """The steps of a net by both libraries. Raises NotCompiled, and Wrong where they differ in a loss."""
    net, sessions, losses = nets.remembering(nets.found(name, batch)), {}, {}
    for way, options in ways().items():
        device = CpuDevice(1)
        library = replace(KERNELS, options=lambda _, options=options: options, levels=lambda: ()).load()
        device.native = Native(library, 1)
        sessions[way], losses[way] = opened(net, device, "liveness", None, 2)
    if len({str(said) for said in losses.values()}) > 1:
        raise Wrong(f"{name}: the losses differ: {losses}")
    taken: dict[str, list[float]] = {way: [] for way in sessions}
    for i in range(rounds):
        for way in list(sessions)[:: 1 if i % 2 == 0 else -1]:
            train(sessions[way])
            for _ in range(STEPS):
                began = process_time()
                train(sessions[way])
                taken[way].append(process_time() - began)
    seconds = {way: median(every) for way, every in taken.items()}
    fastest = {way: min(every) for way, every in taken.items()}
    own, level = seconds
    return {"network": name, "level": level, "seconds": seconds, "fastest": fastest,
            "ratio": seconds[level] / seconds[own], "ratio_of_fastest": fastest[level] / fastest[own]}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.levels", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--networks", type=names, default=["lenet:64", "resnet18:4", "mobilenet_v2:4"], metavar="N,N")
    parser.add_argument("--rounds", type=positive, default=8)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    try:
        rows = [compared(*asked(text), args.rounds) for text in args.networks]
    except (Wrong, NotCompiled) as error:
        print(f"benchmarks.levels: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps({"rows": rows}, indent=1))
        return 0
    level = rows[0]["level"]
    lines = [
        [r["network"], *map(table.duration, r["seconds"].values()), f"{r['ratio']:.2f}", f"{r['ratio_of_fastest']:.2f}"]
        for r in rows
    ]
    title = "a step's median of processor time, by kernels compiled for"
    table.plain(["net", "this CPU", level, "ratio", "ratio of the fastest"], lines, title)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
