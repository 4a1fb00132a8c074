"""A training iteration on the CPU compared with PyTorch's: seconds, and bytes at the peak.

    python benchmarks/cpu.py                                              the nets and policies below
    python benchmarks/cpu.py --networks gpt2:4:512                        batches of 4 windows of 512 tokens
    python benchmarks/cpu.py --networks vgg16:4,lenet:64 --policies liveness:p --json
    python benchmarks/cpu.py --save                                       also writes benchmarks/results/cpu-<machine>.*
    python benchmarks/cpu.py --avx2                                       both sides as on a CPU without AVX-512

The peer is PyTorch, eager, in the faster of its two layouts. It runs with its default settings, and as an expert runs
it: `tuned`, with a C library that keeps freed memory instead of giving it back in each step. The fastest of these four
counts. The peer trains the same net, layer by layer (benchmarks/peer.py), on the same batch from memory, with as many
threads, by SGD with momentum and weight decay; gradients are set to None. An iteration is forward, backward and update.
First both have to compute the same losses from the same weights over a few updates, without dropout. Then they take
turns, each in a process of its own (benchmarks/turns.py), in rounds of alternating order. The median over all steps of
all rounds counts.

The table also says what the step takes at least on this machine, with the algorithms of its plan (benchmarks/roof.py):
no kernel is quicker than fused multiply-adds in registers and than the bytes of an op. `python -m benchmarks.roofline`
says so of each layer.

Our iteration is planned with costs that are measured here first, unless they are known (--again measures them anew).
Its peak is the arena, which holds weights, momenta, gradients, activations, the batch and workspaces. PyTorch's peak
counts the same, from its profiler's memory events (`Trainer.cpu_peak`). The next batch, which minidnn keeps
ready, is in neither.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine, nets
from benchmarks.gpu_check.journal import commit
from benchmarks.progress import watched
from benchmarks.rates import SIDES
from benchmarks.turns import Failed, Ours, Side, Tell, Theirs, Turn
from minidnn.cli.options import names, positive
from minidnn.errors import BadInput
from minidnn.measuring import load
from minidnn.memory import policies
from minidnn.memory.policies.check import check_policies

NETWORKS = (
    "vgg16:4,resnet18:8,resnet34:8,resnet50:8,densenet121:8,alexnet:32,googlenet:8,lenet:64,cifar10_quick:100,"
    "mobilenet_v2:8,squeezenet:8,vit_s:8,vit_small:8,convnext_tiny:8,gpt2:4:512"
)
POLICIES = [name for name in ("liveness:p", "recompute_cheap:p") if name.partition(":")[0] in policies.names()]
LAYOUTS = ("contiguous", "channels_last")
KEEP = str(1 << 34)  # bytes: more than a net here needs
# PyTorch's settings -> variables of its process. By default glibc gives large blocks back to the system in each step,
# and the next step pays for their pages again.
SETTINGS = {
    "default": {},
    "tuned": {"MALLOC_MMAP_THRESHOLD_": KEEP, "MALLOC_TRIM_THRESHOLD_": KEEP, "MALLOC_TOP_PAD_": str(64 << 20)},
}
# These variables hold both sides to AVX2: oneDNN and our own kernels, PyTorch's kernels, MKL.
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
ROUNDS = 7
PAUSE = 0.05  # seconds between turns: OpenMP's threads spin for a while before they sleep
BUSY = 0.05  # a share of the machine's cores; if other processes take more, the report warns about the times
RESULTS = Path(__file__).with_name("results")

Row = dict[str, Any]
Case = tuple[str, str]  # PyTorch's settings and layout; or a policy, twice


class Wrong(ValueError):
    """The command's arguments cannot be run. The message is for users."""


def asked(text: str) -> tuple[str, int | None]:
    """The net's name and batch (None: the file's) in "NET" or "NET:BATCH". Raises BadInput."""
    found = nets.Asked.parse(text)
    found.net()
    if found.seq:
        raise Wrong(f"{text!r}: expected NET or NET:BATCH, as vgg16:4")
    return found.name, found.batch


def compared(
    net: nets.Asked, wanted: Sequence[str], threads: int, rounds: int, again: bool, tell: Tell
) -> Iterator[Row]:
    """A row of the results for each policy in `wanted`. Raises Failed."""
    sides: list[Side] = []
    try:
        ours = Side(Ours, net, threads)
        sides.append(ours)
        mine = ours.ask("load", wanted, again, tell=tell)
        theirs, peers = {}, {}
        for settings, environment in SETTINGS.items():
            side = Side(Theirs, net, threads, environment=environment)
            sides.append(side)
            loaded = side.ask("load", LAYOUTS, tell=tell)
            for layout, peer in loaded["layouts"].items():
                theirs[settings, layout], peers[settings, layout] = side, peer
                for policy, facts in mine["policies"].items():
                    _agree(policy, facts["losses"], f"{layout}, {settings}", peer["losses"])
        roof = ours.ask("roof", {"PyTorch's product": side.ask("product", SIDES)})
        cases = [(ours, (p, p)) for p in wanted] + [(side, case) for case, side in theirs.items()]
        turns, others = _rounds(cases, rounds, tell)
    finally:
        for side in sides:
            side.close()
    seconds = {case: median(s for turn in taken for s in turn.seconds) for case, taken in turns.items()}
    cpu = {case: median(turn.cpu for turn in taken) for case, taken in turns.items()}
    best = min(theirs, key=seconds.__getitem__)
    default = min(seconds[case] for case in theirs if case[0] == "default")
    peer = peers[best]
    for policy in wanted:
        facts, own = mine["policies"][policy], seconds[policy, policy]
        at_roof = sum(map(roof.seconds, facts["work"]))
        yield {
            "network": net.name, "batch": mine["batch"], "seq": net.seq, "policy": policy,
            "seconds": own, "peer_seconds": seconds[best], "seconds_ratio": own / seconds[best],
            "peak_bytes": facts["peak_bytes"], "peer_peak_bytes": peer["peak_bytes"],
            "memory_ratio": facts["peak_bytes"] / peer["peak_bytes"],
            "peer_settings": best[0], "peer_layout": best[1],
            "default_seconds": default, "default_ratio": own / default,
            "roof_seconds": at_roof, "roof_ratio": own / at_roof, "roof": roof.document(),
            "predicted_seconds": facts["predicted_seconds"],
            "cpu_seconds": cpu[policy, policy], "peer_cpu_seconds": cpu[best], "others_share": others,
            "live_peak_bytes": facts["live_peak_bytes"], "host_bytes": facts["host_bytes"],
            "losses": facts["losses"], "peer_losses": peer["losses"], "peers": [
                {"settings": s, "layout": x, "seconds": seconds[s, x], "peak_bytes": peers[s, x]["peak_bytes"]}
                for s, x in theirs
            ],
            "rounds": [median(turn.seconds) for turn in turns[policy, policy]],
            "peer_rounds": [median(turn.seconds) for turn in turns[best]],
            "device": mine["device"], "peer": f"PyTorch {loaded['version']}",
        }  # fmt: skip


def _agree(policy: str, mine: Sequence[float], peer: str, theirs: Sequence[float]) -> None:
    first, later = nets.apart(mine, theirs)
    if not (first <= nets.AGREE["float32"] and later <= nets.AGREE_LATER["float32"]):
        said = f"losses {mine} under {policy}, and PyTorch's {theirs} ({peer})"
        raise Failed(f"the two do not compute the same, so their times are not compared: {said}")


def _rounds(cases: Sequence[tuple[Side, Case]], rounds: int, tell: Tell) -> tuple[dict[Case, list[Turn]], float | None]:
    """The turns of each case, and the share of the machine's cores that other processes took; None if unknown."""
    turns: dict[Case, list[Turn]] = {case: [] for _, case in cases}
    passed = others = 0.0
    for i in range(rounds):
        for side, case in cases if i % 2 == 0 else reversed(cases):
            tell(i, rounds, f"round {i + 1}: {', '.join(dict.fromkeys(case))}")
            sleep(PAUSE)
            began, before = perf_counter(), load.processor_seconds()
            turn = side.ask("turn", case[1])
            passed += perf_counter() - began
            if before is not None and (after := load.processor_seconds()) is not None:
                others += max(0.0, after - before - turn.whole)
            turns[case].append(turn)
    cores = machine.described()["cores"]
    return turns, others / (passed * cores) if load.processor_seconds() is not None else None


# ---- the command


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        if importlib.util.find_spec("torch") is None:
            raise Wrong("PyTorch, the peer, is not installed: pip install 'minidnn[peer]'")
        check_policies(args.policies)
        wanted = [nets.Asked.parse(text) for text in args.networks]
        for net in wanted:
            net.net()
        if args.save:
            RESULTS.mkdir(exist_ok=True)
    except (Wrong, BadInput, OSError) as error:
        print(f"benchmarks/cpu.py: {error}", file=sys.stderr)
        return 2
    args.policies = list(dict.fromkeys(args.policies))
    if args.avx2:
        os.environ.update(AVX2)  # for the processes of both sides
    rows, code = _run(wanted, args)
    from benchmarks import report

    document = {"rows": rows, "machine": machine.described(), "date": date.today().isoformat(), "commit": commit(),
                "threads": args.threads, "avx2": args.avx2, "rounds": args.rounds, "busy": BUSY}  # fmt: skip
    if args.json:
        report.dump(document)
    elif rows:
        report.show(document)
    if args.save and rows:
        for path in report.save(document, RESULTS):
            print(path, file=sys.stderr)
    return code


def _run(wanted: Sequence[nets.Asked], args: argparse.Namespace) -> tuple[list[Row], int]:
    """The rows of the nets that could be compared, and the exit code."""
    rows: list[Row] = []
    code = 0
    with watched() as (console, say):
        for net in wanted:
            title = str(net)

            def tell(done: int, of: int, text: str, title: str = title) -> None:
                say(done, of, f"{title}: {text}")

            try:
                found = list(compared(net, args.policies, args.threads, args.rounds, args.again, tell))
            except KeyboardInterrupt:
                console.print(f"{title}: interrupted; what was done before is kept", style="red")
                return rows, 130
            except Failed as error:
                console.print(f"{title}: {error}", style="red", soft_wrap=True)
                if args.traceback and error.where:
                    console.print(error.where, soft_wrap=True)
                code = 1
                continue
            rows += found
            for row in found:
                console.print(_line(row), soft_wrap=True)
    return rows, code


def _line(row: Row) -> str:
    net = nets.Asked(row["network"], row["batch"], row.get("seq"))
    said = f"{net}, {row['policy']}: {row['seconds_ratio']:.2f} of PyTorch's seconds"
    said += f" ({row['default_ratio']:.2f} with its default settings)"
    return f"{said}, {row['memory_ratio']:.2f} of its bytes"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/cpu.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", type=names, default=names(NETWORKS), metavar="NET:BATCH,...", help=NETWORKS)
    parser.add_argument("--policies", type=names, default=POLICIES, metavar="A,B", help=",".join(POLICIES))
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="of both sides (default: 2)")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, metavar="N", help=f"of turns (default: {ROUNDS})")
    parser.add_argument("--avx2", action="store_true", help="hold both sides to AVX2, as on a CPU without AVX-512")
    parser.add_argument("--again", action="store_true", help="measure anew what our ops cost")
    parser.add_argument("--traceback", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", action="store_true", help=f"write into {RESULTS.parent.name}/{RESULTS.name}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
