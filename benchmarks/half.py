"""Training on the CPU in 16 bits beside float32: the arena's bytes and a step's seconds.

    python -m benchmarks.half [--nets digits_lenet:128 resnet18:8 ...] [--policy liveness:m] [--threads 1] [--steps 9]

The formats of a net train in turns, step by step, so that all of them see the same machine. A step copies its batch
into the arena, and its loss is read. A format's ratio is the median of its step's seconds over those of float32's step
in the same turn, with the 95 % interval of that median. `gpt` is a small GPT-2: 4 blocks of width 256, 512 tokens,
4096 words.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence

from benchmarks import nets
from benchmarks.turns import shut, train
from minidnn.backends.cpu import CpuDevice
from minidnn.formats import FORMATS, usable
from minidnn.measuring.spread import Spread
from minidnn.nets.net import Net
from minidnn.training.session import Session
from minidnn.zoo.gpt import GPT2

NETS = ("digits_lenet:128", "resnet18:8", "resnet18:32", "vit_small:2", "vit_small:16", "gpt:8")
WARM = 1  # steps that are run before any is counted


def found(name: str, batch: int) -> Net:
    if name == "gpt":
        return GPT2(batch=batch, seq=512, width=256, blocks=4, heads=4, vocabulary=4096)
    return nets.found(name, batch)


def opened(net: Net, format: str, policy: str, device: CpuDevice) -> Session:
    session = Session(net, nets.TRAIN, ("TRAIN",), device=device, policy=policy, format=usable(format), seed=1)
    for tensor, value in nets.batch_of(session.programs["TRAIN"], nets.GENTLE).items():
        session.machine.write(tensor, value, "TRAIN")
    for _ in range(WARM):
        train(session)
    return session


def seconds(sessions: Mapping[str, Session], steps: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {format: [] for format in sessions}
    for _ in range(steps):
        for format, session in sessions.items():
            start = time.perf_counter()
            train(session)
            taken[format].append(time.perf_counter() - start)
    return taken


def lines(name: str, batch: int, policy: str, threads: int, steps: int) -> Iterator[str]:
    """A line of a Markdown table for each format of a net."""
    device = CpuDevice(threads)
    sessions = {format: opened(found(name, batch), format, policy, device) for format in FORMATS}
    taken = seconds(sessions, steps)
    whole = sessions["float32"].arrangement.arena
    for format, session in sessions.items():
        arena, each = session.arrangement.arena, Spread.of(taken[format])
        ratio = Spread.of([a / b for a, b in zip(taken[format], taken["float32"], strict=True)])
        cells = f"{name}:{batch}", format, f"{arena / 2**20:.1f}", f"{100 * arena / whole:.0f} %", f"{each.median:.3g}"
        yield f"| {' | '.join(cells)} | {ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f}) |"
        shut(session)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", default=NETS, metavar="NET:BATCH")
    parser.add_argument("--policy", default="liveness:m")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=9)
    args = parser.parse_args(argv)
    print(
        "| net, batch | format | arena, MiB | of float32 | seconds of a step | of float32 |\n|---|---|---|---|---|---|"
    )
    for net in args.nets:
        name, _, batch = net.partition(":")
        for line in lines(name, int(batch), args.policy, args.threads, args.steps):
            print(line, flush=True)


if __name__ == "__main__":
    main()
