"""What PyTorch itself offers against the memory of training, beside `minidnn.torch`: bytes, time, and whose bits.

    python -m benchmarks.torch_rivals                                     both nets: some twenty minutes on two cores
    python -m benchmarks.torch_rivals --only gpt2 --ways eager,checkpoint,best:30
    python -m benchmarks.torch_rivals --save                              also writes benchmarks/results/torch-rivals-*;
                                                                          what was not run stays as it was saved there
    python -m benchmarks.torch_rivals --draw docs/torch.svg               draws what --save has written

gpt2 is GPT-2 small whole (12 blocks, 124 million parameters, dropout 0.1) on four rows of 256 tokens, resnet50 the
whole net on 8 images of 224 x 224. Each way runs in a process of its own:

    eager            PyTorch as it is
    checkpoint       torch.utils.checkpoint around each block
    save_on_cpu      torch.autograd.graph.save_on_cpu. On a CPU its copies lie beside what they are copies of
    save_on_host     the same, but the copies are not counted: what a GPU would have
    aot:SHARE        torch.compile(backend="aot_eager_decomp_partition") with activation_memory_budget=SHARE
    inductor:SHARE   the same by inductor, which compiles kernels
    best:PERCENT     minidnn.torch.compile, policy `best`, of the bytes that a step makes if all is kept
    bound            seconds that no plan of `minidnn.torch` is below, by the planner's costs; nothing runs

Bytes are those at the peak of a step above parameters and batch. Bits: whether losses, gradients, buffers and generator
after two steps are eager's; else how far the gradients are from eager's (the largest difference of a gradient, by the
norm of the gradient), and from those of the same way at share 1.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.torch_picture import draw, saved
from benchmarks.torch_steps import End, Row, Side, mib, parser, report
from minidnn.cli.options import names
from minidnn.jobs.outcome import bound_at
from minidnn.memory.budget import BudgetError
from minidnn.memory.planning import ENDLESS
from minidnn.program import nbytes
from minidnn.report.table import duration
from minidnn.torch.blocks import repeated
from minidnn.torch.costs import here
from minidnn.torch.step import compile
from tests.support.paths import ROOT
from tests.torch.nets import images, words
from tests.torch.nets.case import Case

CASES: dict[str, Callable[[], Case]] = {
    "gpt2": lambda: words.gpt2(4, words=50257, length=256, width=768),
    "resnet50": lambda: images.resnet50(8, size=224, classes=1000),
}
SHARES = "1", "0.5", "0.2", "0.05"
WAYS = (
    "eager", "checkpoint", "save_on_cpu", "save_on_host", *(f"aot:{s}" for s in SHARES),
    *(f"inductor:{s}" for s in SHARES), *(f"best:{part}" for part in (80, 60, 45, 36, 30, 15)), "bound",
)  # fmt: skip
PART = 5  # percents from one budget at which the bound is computed to the next
BACKENDS = {"aot": "aot_eager_decomp_partition", "inductor": "inductor"}
LIMIT = 900  # seconds of one way
HEADINGS = "net", "way", "MiB", "of eager's", "a step", "of eager's", "before the first step", "bits"
Call = Callable[..., torch.Tensor]


class WithLoss(torch.nn.Module):
    def __init__(self, case: Case, module: torch.nn.Module) -> None:
        super().__init__()
        self.case, self.module = case, module

    def forward(self, *args: Any) -> torch.Tensor:
        return self.case._replace(args=args).eager(self.module)


# ---- the ways


def checkpoint(side: Side, share: str) -> Call:
    from torch.utils.checkpoint import checkpoint as again

    for block in repeated(side.module).values():
        block.forward = lambda *args, run=block.forward: again(run, *args, use_reentrant=False)
    return side.call


def save_on_cpu(side: Side, share: str) -> Call:
    def call(*args: Any) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu():
            return side.case.eager(side.module)

    return call


def save_on_host(side: Side, share: str) -> Call:
    """Copies lie in NumPy's memory, which PyTorch's allocator has not given out."""
    own = {p.data_ptr() for p in side.module.parameters()}

    def pack(x: torch.Tensor) -> Any:
        return x if x.data_ptr() in own else (x.numpy().copy(), x.stride())

    def unpack(kept: Any) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        values, stride = torch.from_numpy(kept[0]), kept[1]
        return torch.empty_strided(values.shape, stride, dtype=values.dtype).copy_(values)

    def call(*args: Any) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return side.case.eager(side.module)

    return call


def compiled(backend: str) -> Callable[[Side, str], Call]:
    def made(side: Side, share: str) -> Call:
        import torch._functorch.config as config

        config.activation_memory_budget = float(share)
        return torch.compile(WithLoss(side.case, side.module), backend=BACKENDS[backend])

    return made


def best(side: Side, share: str) -> Call:
    return compile(side.module, side.case.args, loss=side.case.loss, budget=f"{share}%", policy="best")


MAKE: dict[str, Callable[[Side, str], Call]] = {
    "eager": lambda side, share: side.call, "checkpoint": checkpoint, "save_on_cpu": save_on_cpu,
    "save_on_host": save_on_host, "aot": compiled("aot"), "inductor": compiled("inductor"), "best": best,
}  # fmt: skip


# ---- one of them, in a process of its own


def one(net: str, way: str, folder: Path, rounds: int) -> Row:
    """What is measured of a way, beside what eager's process has left in the folder."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    case = CASES[net]()
    case.module.train()
    side, (name, _, share) = Side(case), way.partition(":")
    begin = time.perf_counter()
    try:
        side.call = MAKE[name](side, share)
        side.step()  # compiles
    except BudgetError as refused:
        return {"net": net, "way": way, "refused": str(refused)}
    ready = time.perf_counter() - begin
    end = side.end()
    gradients = {path: p.grad for path, p in side.module.named_parameters() if p.grad is not None}
    if way == "eager":
        (folder / "end.json").write_text(json.dumps(asdict(end)))
    if way == "eager" or share == "1":
        torch.save(gradients, folder / f"{name}.pt")
    expected = json.loads((folder / "end.json").read_text())
    unequal = end.unequal(End(tuple(expected.pop("losses")), **expected))
    far = {other: farthest(gradients, folder / f"{other}.pt") for other in ("eager", name)}
    peak = side.peak()
    seconds = statistics.median(side.seconds() for _ in range(rounds))
    return {
        "net": net, "way": way, "bytes": peak, "seconds": seconds, "ready_seconds": ready, "unequal": unequal,
        "from_eager": far["eager"], "from_share_1": far[name] if name in BACKENDS else None,
    }  # fmt: skip


def bound(net: str) -> Row:
    """The bound at some budgets, as (bytes, the part of the seconds of a plan that keeps everything)."""
    torch.manual_seed(0)
    case = CASES[net]()
    case.module.train()
    planned = compile(case.module, case.args, loss=case.loss, policy="liveness").plan(*case.args)
    program, costs = planned.capture.program, here(planned.capture)
    own = nbytes(program.persistent)
    most = planned.schedule.arena - own
    free = bound_at(program, costs, ENDLESS, None, ())
    assert free is not None
    found: list[tuple[int, float]] = []
    share, step = 100, PART
    while step:
        size = share * most // 100
        limit = bound_at(program, costs, own + size, None, ()) if share > 0 else None
        if limit is None:  # too few bytes: one percent at a time from the last that were enough
            share, step = share + step, step // PART
        else:
            found.append((size, limit.seconds / free.seconds))
        share -= step
    return {"net": net, "way": "bound", "edge": found}


def farthest(gradients: dict[str, torch.Tensor], file: Path) -> float | None:
    """The largest difference of a gradient from that in the file, over the latter's norm."""
    if not file.exists():
        return None
    theirs = torch.load(file)
    norms = {path: float(g.norm()) for path, g in theirs.items()}
    least = 1e-6 * max(norms.values())  # of what is zero but for rounding, such as a bias before BatchNorm
    return max(float((gradients[p] - g).norm()) / norms[p] for p, g in theirs.items() if norms[p] > least)


# ---- all of them


def rows(net: str, ways: Sequence[str], rounds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for way in dict.fromkeys(["eager", *ways] if set(ways) != {"bound"} else ways):
            command = [sys.executable, "-m", "benchmarks.torch_rivals", "--one", net, way, folder, str(rounds)]
            try:
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
            except subprocess.TimeoutExpired:
                yield {"net": net, "way": way, "refused": f"not done in {LIMIT} s"}
                continue
            lines = done.stdout.splitlines()
            failed = (done.stderr.strip().splitlines() or ["no output"])[-1]
            yield json.loads(lines[-1]) if not done.returncode else {"net": net, "way": way, "refused": failed[:200]}


def bits(row: Row) -> str:
    if not row["unequal"]:
        return "eager's"
    text = f"{row['from_eager']:.0e} from eager's ({'; '.join(row['unequal'])})"
    share_1 = row["from_share_1"]
    return text if share_1 is None or row["way"].endswith(":1") else f"{text}, {share_1:.0e} from those at share 1"


def cells(row: Row, eager: Row) -> list[str]:
    if "refused" in row:
        return [row["net"], row["way"], *["–"] * 5, row["refused"]]
    if "edge" in row:
        told = ", ".join(f"{ratio:.2f} in {mib(size)}" for size, ratio in row["edge"])
        return [row["net"], row["way"], *["–"] * 5, told]
    return [
        row["net"], row["way"], mib(row["bytes"]), f"{row['bytes'] / eager['bytes']:.0%}", duration(row["seconds"]),
        f"{row['seconds'] / eager['seconds']:.2f}", duration(row["ready_seconds"]), bits(row),
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    asked = parser(__doc__)
    asked.add_argument("--only", type=names, default=list(CASES), metavar="NET,...", help=", ".join(CASES))
    asked.add_argument("--ways", type=names, default=list(WAYS), metavar="WAY,...", help=", ".join(WAYS))
    asked.add_argument("--rounds", type=int, default=3, help="steps whose median counts (3)")
    asked.add_argument("--draw", type=Path, metavar="FILE.svg", help="draw what was saved on a machine of this type")
    asked.add_argument("--one", nargs=4, metavar=("NET", "WAY", "FOLDER", "ROUNDS"), help="one way, in this process")
    args = asked.parse_args(argv)
    if args.one:
        net, way, folder, rounds = args.one
        print(json.dumps(bound(net) if way == "bound" else one(net, way, Path(folder), int(rounds))))
        return 0
    if args.draw:
        draw(args.draw)
        return 0
    if unknown := [net for net in args.only if net not in CASES]:
        asked.error(f"no net {unknown[0]}; there are {', '.join(CASES)}")
    if unknown := [way for way in args.ways if way.partition(":")[0] not in (*MAKE, "bound")]:
        asked.error(f"no way {unknown[0]}; there are {', '.join(WAYS)}")
    all_rows: list[Row] = []
    eager: Row = {}
    for net in args.only:
        for row in rows(net, args.ways, args.rounds):
            eager = row if row["way"] == "eager" else eager
            all_rows.append(row)
            print("  ".join(cells(row, eager)), file=sys.stderr, flush=True)
    if args.save:
        all_rows += [row for row in saved() if (row["net"], row["way"]) not in {(r["net"], r["way"]) for r in all_rows}]
        all_rows.sort(key=lambda row: row["net"])
    eagers = {row["net"]: row for row in all_rows if row["way"] == "eager"}
    lines = [cells(row, eagers.get(row["net"], {})) for row in all_rows]
    report("torch-rivals", HEADINGS, lines, [], all_rows, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
