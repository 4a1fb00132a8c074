"""`minidnn convert A B`: the same net, solver or weights in another form, told by the suffixes of the names."""

from __future__ import annotations

import argparse
import sys

from minidnn.cli.help import examples
from minidnn.cli.options import common
from minidnn.visible import say

FORMS = "YAML (.yaml), Caffe's .prototxt and .caffemodel, Python (.py), .safetensors, or .onnx"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn convert train_val.prototxt net.yaml",
        "minidnn convert bvlc.caffemodel weights.safetensors",
        "minidnn convert weights.safetensors net.onnx --net net.yaml",
    )
    parser.add_argument("source", metavar="A", help=f"a net, a solver or weights: {FORMS}; or the name of a model")
    parser.add_argument("target", metavar="B", help="the file to write, in the form of its suffix")
    parser.add_argument("--net", metavar="FILE", help="the net that the weights belong to, if A does not contain it")
    common(parser, "modules", "ignore_unknown", "json")


def run(args: argparse.Namespace) -> None:
    from minidnn.api.convert import convert
    from minidnn.report import table

    dropped: list[str] = []
    done = convert(args.source, args.target, args.net, dropped if args.ignore_unknown else None)
    notes = [*(f"ignored: {field}" for field in dropped), *done.notes]
    done = done.model_copy(update={"file": args.target, "notes": notes})
    if args.json:
        table.dump(done)
        return
    for note in done.notes:
        say(f"minidnn: {note}", file=sys.stderr)
    counted = {"net": "layers", "solver": "fields", "weights": "blobs"}[done.what]
    name = f"{' ' if done.what == 'net' else ' of '}{done.name}" if done.name else ""
    say(f"{args.target}: the {done.what}{name}, {done.count} {counted}")
