"""(k) Our iteration over that of PyTorch's torch.compile, for nets that item d ran in eager mode.

Each net is compiled in a process of its own, because compiling takes a minute or more and cannot be interrupted. The
process is ended when its time is over; a net that is not ready then is left out, which is no failure.

    python3 -m benchmarks.gpu_check.compiled resnet50 256 bfloat16 [--rehearse]      prints one line of JSON
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from statistics import median
from typing import Any

from benchmarks.gpu_check.journal import ROOT
from benchmarks.gpu_check.place import Place, Rehearsal
from benchmarks.gpu_check.run import GROUP, Run, Wrong

LONGEST = 120.0  # seconds for one net
TURNS = 5
MARK = "compiled: "


def item(run: Run) -> None:
    if importlib.util.find_spec("torch") is None:
        return  # item d has reported that PyTorch is missing
    beside = {case: r.get("values") for (of, case), r in run.journal.latest().items() if of == "d"}
    for name, batch, form in run.place.compiled:
        case = f"{name}, {batch}, {form}"
        ours = beside.get(case) or {}
        work = lambda n=name, b=batch, f=form, o=ours: child(run, n, b, f, o)  # noqa: E731
        run.case(case, work, needs=0 if run.place.small else 30)


def child(run: Run, name: str, batch: int, form: str, ours: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu_check.compiled", name, str(batch), form]
    command += ["--rehearse"] * run.place.small
    limit = run.within(LONGEST)
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **GROUP
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it started
            process.communicate()
            raise TimeoutError(f"not compiled in {limit:.0f} s") from None
    line = next((x for x in output.splitlines() if x.startswith(MARK)), None)
    if process.returncode or line is None:
        raise Wrong(f"exit code {process.returncode}: {output[-600:]}", {"output": output[-1500:]})
    found = json.loads(line.removeprefix(MARK))
    if ours.get("seconds"):
        found |= {"our_seconds": ours["seconds"], "ratio": ours["seconds"] / found["compiled_seconds"]}
        found["eager_seconds"] = ours["torch_seconds"]
    return found


def main(name: str, batch: int, form: str, place: Place) -> dict[str, Any]:
    import torch

    from benchmarks.nets import RATE, TRAIN, batch_of
    from benchmarks.peer import Peer, Trainer, first_weights
    from minidnn.formats import usable
    from minidnn.programs.build import programs

    usable(form)
    place.settle(True)
    net = place.net(name, batch)
    given = {t.name: v for t, v in batch_of(programs(net, TRAIN, ("TRAIN",), format=form)["TRAIN"]).items()}
    peer = Peer(net.graph("TRAIN"), first_weights(net), place.torch, format=form)
    peer.compile(backend="eager" if place.small else "inductor")  # a rehearsal traces, but does not compile
    began = time.perf_counter()
    trainer = Trainer(peer, given, TRAIN, RATE)
    compiling = time.perf_counter() - began
    count = 1 if place.small else max(2, int(0.5 / trainer.seconds(1)))
    seconds = median(trainer.seconds(count) for _ in range(2 if place.small else TURNS))
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    return {
        "compiled_seconds": seconds, "compiling_seconds": compiling, "graph_breaks": breaks, "losses": trainer.losses,
        **trainer.memory(),
    }  # fmt: skip


if __name__ == "__main__":
    asked = main(sys.argv[1], int(sys.argv[2]), sys.argv[3], Rehearsal() if "--rehearse" in sys.argv else Place())
    print(MARK + json.dumps(asked))
