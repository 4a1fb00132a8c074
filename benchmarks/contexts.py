"""The bytes of a step of GPT-2 small as windows grow longer: ours as planned, eager PyTorch's as foreseen.

    python -m benchmarks.contexts                               1,024 to 32,768 tokens: a minute, nothing is trained
    python -m benchmarks.contexts --lengths 1024,4096 --gpu rtx4090
    python -m benchmarks.contexts --save      also writes benchmarks/results/contexts-<machine>.md and .json

A step reads 4,096 tokens, or one window if that is longer. Both sides train in float32 without dropout, with weights,
their gradients and one momentum each. Eager PyTorch's bytes come from fake tensors, without what ops take beside their
results: with attention written out, with scaled_dot_product_attention, and with that and a checkpoint per block. Ours
are the most that live with nothing run again, `best` within half of that, and all run again; +2 % is simulated time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine
from benchmarks.gaps import planned, save
from benchmarks.nets import TRAIN
from minidnn import sizes
from minidnn.cli.values import counts
from minidnn.costs import profile
from minidnn.programs.build import programs
from minidnn.programs.fusion import as_cuda
from minidnn.report import table
from minidnn.torch.eager import predict
from minidnn.zoo.gpt import GPT2
from tests.torch.nets import words

TOKENS = 4096
LENGTHS = 1024, 2048, 4096, 8192, 16384, 32768
POLICIES = "liveness", "best", "recompute_all"
EAGER = {"written out": (False, False), "SDPA": (True, False), "SDPA, checkpoint": (True, True)}  # fused, checkpoint
Row = dict[str, Any]


def ours(length: int, batch: int, gpu: str) -> Row:
    """Policy -> the bytes of its arena, and the seconds of its step; best has half of liveness's bytes."""
    net = GPT2(batch=batch, seq=length, dropout=0.0)
    program, costs = programs(net, TRAIN, ("TRAIN",), fuses=as_cuda)["TRAIN"].synchronous_inputs(), profile(gpu)
    result: Row = {}
    budget = 1 << 62
    for policy in POLICIES:
        if (plan := planned(program, policy, costs, budget)) is None:
            raise SystemExit(f"contexts: {policy} needs more than {sizes.text(budget)} at {length} tokens")
        result[policy] = {"bytes": plan.arena, "seconds": plan.seconds}
        budget = result["liveness"]["bytes"] // 2
    return result


def theirs(length: int, batch: int) -> Row:
    """Way -> the most bytes of eager's step, and a momentum."""
    result = {}
    for way, (fused, checkpointed) in EAGER.items():
        with torch.device("meta"):
            case = words.gpt2(batch, 50257, length, 768, dropout=0.0, fused=fused)
        step = predict(case.module, case.args, loss=case.loss, checkpointed=checkpointed)
        momenta = sum(p.nbytes for p in case.module.parameters())
        result[way] = {"bytes": step.peak + momenta}
    return result


def cells(r: Row) -> list[str]:
    whole = r["ours"]["liveness"]
    mine = [
        sizes.text(of["bytes"]) + (f", {of['seconds'] / whole['seconds'] - 1:+.1%}" if of is not whole else "")
        for of in r["ours"].values()
    ]
    eager = [sizes.text(of["bytes"]) for of in r["torch"].values()]
    return [f"{r['length']} x {r['batch']}", *mine, *eager, f"{whole['bytes'] / r['torch']['SDPA']['bytes']:.2f}"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contexts", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lengths", type=counts, default=LENGTHS, metavar="T,T", help="tokens of a window")
    parser.add_argument("--gpu", default="h100", help="the profile of our plans (default: h100)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help="write the results to benchmarks/results/")
    args = parser.parse_args(argv)
    rows: list[Row] = []
    for length in args.lengths:
        batch = max(1, TOKENS // length)
        sides = {"ours": ours(length, batch, args.gpu), "torch": theirs(length, batch)}
        rows.append({"length": length, "batch": batch, **sides})
        print("  ".join(cells(rows[-1])), file=sys.stderr, flush=True)
    headings = ["window, tokens", *POLICIES, *(f"PyTorch, {way}" for way in EAGER), "liveness over SDPA"]
    note = f"GPT-2 small, float32, planned for {args.gpu}; PyTorch {torch.__version__}, eager, by fake tensors"
    made = {
        "gpu": args.gpu,
        "torch": torch.__version__,
        "machine": machine.described(),
        "date": date.today().isoformat(),
    }
    if args.json:
        table.dump({"rows": rows, **made})
    else:
        table.plain(headings, [cells(r) for r in rows], note)
    if args.save:
        save("contexts", headings, [cells(r) for r in rows], [note], {"rows": rows, **made})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
