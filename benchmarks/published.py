"""Nets as their authors published them: read, planned, trained for a step under some policies, and beside OpenCV.

    python -m benchmarks.published                             our own nets of these names, written as prototxt
    python -m benchmarks.published googlenet resnet50=FILE     FILE is a published prototxt of the net

Each file is read. Its source of images becomes an input of the shape that our net of this name has. A file for
inference gets a loss on its scores. Then one step of SGD is run with random weights, under baseline and under POLICIES
with the same algorithms. Under these, freed bytes are filled with NaN, and copies are late at random. The loss and all
values that live from step to step are compared byte by byte. Last, the net goes to OpenCV as a prototxt and a
caffemodel (benchmarks/opencv.py). The table also says whether a published file has our net's shapes of parameters, in
our order. Statistics of BatchNorms count as parameters, as in a caffemodel.

Needs the extra `peer`.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import machine, nets
from benchmarks.gpu_check.journal import commit
from benchmarks.opencv import compared, deployed, randomized
from benchmarks.progress import watched
from benchmarks.same_bytes import trained
from minidnn import zoo
from minidnn.backends.cpu import CpuDevice
from minidnn.cli.options import positive
from minidnn.errors import BadInput
from minidnn.memory.execution.trace import copied
from minidnn.nets.net import Net
from minidnn.report import table
from minidnn.schema import LayerParameter
from minidnn.training.session import Session

NETS = (
    "lenet", "cifar10_quick", "cifar10_full", "siamese", "alexnet_caffe", "caffenet", "googlenet", "vgg16", "vgg19",
    "resnet50", "resnet101", "resnet152", "squeezenet", "mobilenet_v1", "mobilenet_v2", "densenet121", "inception_v3",
    "inception_v4", "fcn32s",
)  # fmt: skip
BASELINE, POLICIES = "baseline:m", ("vdnn_all:m", "recompute_all:m", "layrub:m")
DELAYS = 1e-3  # seconds by which a copy is delayed at most
Row = dict[str, Any]


def fed(net: Net, like: Net, batch: int) -> Net:
    """The net with an input in place of each source: its tops have the shapes of those of `like`, in their order."""
    sources = [node for node in like.graph("TRAIN").layers if not node.bottoms]
    known = [(batch, *top.tensor.shape[1:]) for node in sources for top in node.tops]
    layers: list[LayerParameter] = []
    for spec in net.parameter.layer:
        if spec.bottom or spec.type in ("DummyData", "Parameter"):
            layers.append(spec)
        elif not any(set(spec.top) & set(other.top) for other in layers):  # of TRAIN and TEST the first
            layers.append(_input(list(spec.top), known[: len(spec.top)], spec.name))
            known = known[len(spec.top) :]
    return Net.from_parameter(net.parameter.model_copy(update={"layer": tuple(layers)}))


def trainable(net: Net) -> Net:
    """The net with a loss: a file for inference gets one in place of its Softmax, else on its last top."""
    if any(node.layer.loss for node in net.graph("TRAIN").layers):
        return net
    *rest, last = net.parameter.layer
    if last.type != "Softmax":
        rest, last = [*rest, last], LayerParameter(name="loss", type="SoftmaxWithLoss", bottom=last.top, top=("loss",))
    scores = next(b.tensor.shape for n in net.graph("TRAIN").layers for b in n.tops if b.name == last.bottom[0])
    label = (scores[0], 1, *scores[2:]) if len(scores) > 2 else scores[:1]
    ends = [
        _input(["label"], [label], "label"),
        LayerParameter(name="loss", type="SoftmaxWithLoss", bottom=(last.bottom[0], "label"), top=("loss",)),
    ]
    return Net.from_parameter(net.parameter.model_copy(update={"layer": (*rest, *ends)}))


def _input(tops: Sequence[str], shapes: Sequence[Sequence[int]], name: str) -> LayerParameter:
    param = {"shape": [{"dim": list(shape)} for shape in shapes]}
    return LayerParameter.model_validate({"name": name, "type": "Input", "top": list(tops), "input_param": param})


def shapes(net: Net) -> list[tuple[int, ...]]:
    """Caffe's shapes of all parameters, in their order, a shared one once."""
    found = {
        node.tensor_name(p): p.blob_shape or p.shape
        for node in net.graph("TRAIN").layers
        for p in node.parameters
        if not p.constant
    }
    return list(found.values())


def row(name: str, file: str | None, batch: int, threads: int) -> Row:
    like, published = zoo.load(name, batch), file is not None
    with tempfile.TemporaryDirectory() as folder:
        if file is None:
            file = str(Path(folder, f"{name}.prototxt"))
            Path(file).write_text(like.to_prototxt())
        ignored: list[str] = []
        read = Net.from_file(file, dropped=ignored)
        whole = fed(read, like, batch)
        net = trainable(whole)
        device = CpuDevice(threads)
        opened = partial(Session, net, nets.TRAIN, ("TRAIN",), device=device)
        ends, plans = {}, {}
        for policy in (BASELINE, *POLICIES):
            poison = {} if policy == BASELINE else {"debug": True, "delays": DELAYS}
            with opened(policy=policy, **poison) as session:
                randomized(session)
                ends[policy] = trained(session, 1)
                schedule = session.arrangement.schedules["TRAIN"]
                plans[policy] = {
                    "peak_bytes": schedule.arena,
                    **copied(schedule.instructions, schedule),
                    "ops_again": len(schedule.plan.order) - len(schedule.program.ops),
                }
        want = ends[BASELINE]
        difference = compared(deployed(whole), Path(folder))["difference"]
    return {
        "network": name, "published": published, "ignored": ignored, "layers": len(read.layers), "batch": batch,
        "parameters": sum(map(math.prod, shapes(net))), "as_ours": shapes(net) == shapes(like), "plans": plans,
        "values": len(want.values), "changed": want.changed, "loss": want.losses[0],
        "same": {p: ends[p] == want and want.changed > 0 for p in POLICIES}, "opencv_difference": difference,
    }  # fmt: skip


# ---- the command

HEADINGS = ["net", "layers", "parameters", "as ours", BASELINE, *POLICIES, "changed", "same bytes", "from OpenCV"]


def cells(r: Row) -> list[str]:
    same = [policy for policy, same in r["same"].items() if same]
    return [
        r["network"] + ", as published" * r["published"], str(r["layers"]), f"{r['parameters']:,}",
        "yes" if r["as_ours"] else "no",
        *(table.size(plan["peak_bytes"]) for plan in r["plans"].values()),
        f"{r['changed']} of {r['values']}", f"{len(same)} of {len(POLICIES)}", f"{r['opencv_difference']:.1e}",
    ]  # fmt: skip


def rows(asked: Sequence[str], batch: int, threads: int, say: Any) -> Iterator[Row]:
    for done, word in enumerate(asked):
        name, _, file = word.partition("=")
        say(done, len(asked), name)
        yield row(name, file or None, batch, threads)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.published", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("nets", nargs="*", default=NETS, metavar="NET[=FILE]", help=f"default: {', '.join(NETS)}")
    parser.add_argument("--batch", type=positive, default=2, metavar="N", help="images (default: 2)")
    parser.add_argument("--threads", type=positive, default=2, metavar="N")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    try:
        with watched() as (_, say):
            found = list(rows(args.nets, args.batch, args.threads, say))
    except (BadInput, OSError) as error:
        print(f"benchmarks/published.py: {error}", file=sys.stderr)
        return 2
    if args.json:
        described = {"machine": machine.described(), "date": date.today().isoformat(), "commit": commit()}
        table.dump({"rows": found, **described})
    else:
        table.plain(HEADINGS, list(map(cells, found)), f"one step of SGD, batch {args.batch}; arenas by policy")
        for r in found:
            for field in r["ignored"]:
                print(f"ignored: {field}")
    return 0 if all(all(r["same"].values()) for r in found) else 1


if __name__ == "__main__":
    sys.exit(main())
