"""Whether training on this CPU ends with the same bytes on any number of threads: 14 nets, some policies.

    python -m benchmarks.thread_bytes                                         all: some ten minutes
    python -m benchmarks.thread_bytes --networks resnet50:2 --threads 1,2,7   one net and batch
    ONEDNN_MAX_CPU_ISA=AVX2 python -m benchmarks.thread_bytes                 with the kernels of a CPU without AVX-512

Each net is trained for a few steps on noise under each policy, which plans anew for each number of threads. All values
that live from step to step (weights, statistics, momenta) and all losses have to be those on the first number of
threads. Plans choose algorithms by estimates, which do not depend on threads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it can also be run as a file

from benchmarks import machine, nets
from benchmarks.gpu_check.journal import commit
from benchmarks.progress import one_by_one
from benchmarks.same_bytes import End, algorithms, trained
from benchmarks.turns import Tell, shut
from minidnn.backends.cpu import CpuDevice
from minidnn.cli.options import names, positive
from minidnn.cli.values import counts
from minidnn.errors import BadInput
from minidnn.report import table
from minidnn.training.session import Session

NETWORKS = (
    "lenet:8,cifar10_quick:8,alexnet:2,vgg16:1,googlenet:2,resnet18:2,resnet34:2,resnet50:2,densenet121:2,"
    "mobilenet_v2:2,squeezenet:2,vit_small:2,convnext_tiny:2,gpt2:1:64"
)
POLICIES = "liveness,vdnn_all,superneurons,liveness@2"
THREADS = "1,2,3,5,8"
Row = dict[str, Any]


def rows(asked: nets.Asked, policies: Sequence[str], threads: Sequence[int], steps: int, tell: Tell) -> Iterator[Row]:
    """A row for each policy: on which numbers of threads a value, a loss or an algorithm differs."""
    net = nets.remembering(asked.net())
    devices = [CpuDevice(n) for n in threads]
    for i, policy in enumerate(policies):
        ends = []
        for n, device in zip(threads, devices, strict=True):
            tell(i, len(policies), f"{policy} on {n} thread{'s' * (n > 1)}")
            session = Session(net, nets.TRAIN, ("TRAIN",), device=device, policy=policy, seed=1)
            ends.append((trained(session, steps), [name[:2] for name in algorithms(session)]))
            shut(session)
        first: tuple[End, list] = ends[0]
        different = [n for n, end in zip(threads, ends, strict=True) if end != first]
        yield {
            "network": str(asked), "policy": policy, "threads": list(threads), "values": len(first[0].values),
            "changed": first[0].changed, "losses": first[0].losses, "different": different,
            "same": not different and first[0].changed > 0,
        }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    found: list[Row] = []
    try:
        for asked, tell in one_by_one([nets.Asked.parse(network) for network in args.networks]):
            found += rows(asked, args.policies, args.threads, args.steps, tell)
    except (BadInput, OSError) as error:
        print(f"benchmarks/thread_bytes.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("benchmarks/thread_bytes.py: interrupted", file=sys.stderr)
        return 130
    if args.json:
        table.dump(
            {"rows": found, "machine": machine.described(), "date": date.today().isoformat(), "commit": commit()}
        )
    else:
        _show(found, args)
    return 0 if all(row["same"] for row in found) else 1


def _show(found: Sequence[Row], args: argparse.Namespace) -> None:
    policies = list(dict.fromkeys(row["policy"] for row in found))
    cells = {(row["network"], row["policy"]): row for row in found}
    lines = []
    for network in dict.fromkeys(row["network"] for row in found):
        own = [cells[network, policy] for policy in policies]
        marks = [f"not on {', '.join(map(str, r['different']))}" if r["different"] else "same" for r in own]
        lines.append([network, str(own[0]["values"]), str(own[0]["changed"]), *marks])
    title = f"{args.steps} steps on {', '.join(map(str, args.threads))} threads: weights, state and losses"
    table.plain(["net", "values", "changed by training", *policies], lines, title)
    ends = len(found) * len(args.threads)
    print(f"{machine.cpu()}; {CpuDevice().numerics}.")
    print(f"{ends} trainings compared, {sum(len(row['different']) for row in found)} differ")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/thread_bytes.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", type=names, default=names(NETWORKS), metavar="NET:BATCH,...", help=NETWORKS)
    parser.add_argument("--policies", type=names, default=names(POLICIES), metavar="NAME,...", help=POLICIES)
    parser.add_argument("--threads", type=counts, default=counts(THREADS), metavar="N,...", help=THREADS)
    parser.add_argument("--steps", type=positive, default=2, metavar="N", help="(default: 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
