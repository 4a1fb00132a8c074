"""`minidnn data SOURCE|NET`: what a source of samples holds, as a table, a contact sheet, a mean or a database."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from minidnn.cli.help import examples
from minidnn.cli.options import common
from minidnn.cli.values import positive
from minidnn.visible import say, status

if TYPE_CHECKING:
    import numpy as np

    from minidnn.api.data import Subject


def size(text: str) -> tuple[int, int]:
    """A height and a width for argparse: 256 or 240x320."""
    height, _, width = text.partition("x")
    return positive(height), positive(width or height)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn data folder:photos --sheet photos.png",
        "minidnn data net.yaml --phase TRAIN --sheet seen.html --mean mean.binaryproto",
        "minidnn data list:val.txt --write val.lmdb --resize 256",
    )
    what = (
        "a data source, named as in a Data layer, such as folder:PATH (docs/training.md lists them), or a net "
        "with Data layers"
    )
    parser.add_argument("file", metavar="SOURCE|NET", help=what)
    text = "the phase, which selects the split of a source (default: TRAIN)"
    parser.add_argument("--phase", choices=("TRAIN", "TEST"), default="TRAIN", help=text)
    parser.add_argument("--layer", metavar="NAME", help="show only this layer of a net")
    parser.add_argument("--limit", type=positive, metavar="N", help="read N samples, evenly spread (default: all)")
    written = parser.add_argument_group("files to write")
    text = "write a contact sheet (.png or .html): the samples of a source as they are, or as a net sees them"
    written.add_argument("--sheet", metavar="FILE", help=text)
    text = "samples on the sheet (default: 36)"
    written.add_argument("--count", type=positive, default=36, metavar="N", help=text)
    text = "write the mean of all samples (.binaryproto or .npy), for mean_file"
    written.add_argument("--mean", metavar="FILE", help=text)
    text = "write all samples to an LMDB database of Caffe's form, as convert_imageset does"
    written.add_argument("--write", metavar="FILE", help=text)
    text = "resize each image of a source to this height and width"
    written.add_argument("--resize", type=size, default=(), metavar="N|HxW", help=text)
    text = "with --write: keep images encoded (default: write arrays)"
    written.add_argument("--encoded", action="store_true", help=text)
    common(parser, "modules", "ignore_unknown", "json")


def run(args: argparse.Namespace) -> int:
    from minidnn.api import database
    from minidnn.api.data import scan, subjects
    from minidnn.api.sheet import shots
    from minidnn.data import means
    from minidnn.report import contents as report
    from minidnn.report import sheet, table
    from minidnn.results.contents import Contents

    if args.sheet:
        sheet.check(args.sheet)
    if args.mean:
        means.check(args.mean)
    result = _layer(args, subjects(args.file, args.phase, args.resize, args.ignore_unknown))
    rows, files = [], []
    if args.write:
        database.write(result[0], args.write, args.encoded, _tell("written"))
        files.append(args.write)
    mean: np.ndarray | None = None
    for subject in result:
        row, mean = scan(subject, args.limit, _tell("read"))
        rows.append(row)
    status()
    if args.sheet:
        title = f"{args.file}, phase {args.phase}"
        sheet.save(shots(result[0], args.count), title, args.sheet)
        files.append(args.sheet)
    if args.mean:
        means.save(result[0].name, mean, args.mean)
        files.append(args.mean)
    document = Contents(phase=args.phase, rows=rows, files=files)
    if args.json:
        table.dump(document)
    else:
        report.show(document)
        for file in files:
            say(f"written: {file}")
    return 2 if any(row.unreadable for row in rows) else 0


def _layer(args: argparse.Namespace, layers: list[Subject]) -> list[Subject]:
    """The layer that the arguments name, or all; one if something is to be written. Raises InvalidInput."""
    from minidnn.errors import InvalidInput, near

    names = [subject.layer or "" for subject in layers]
    if args.layer:
        layers = [subject for subject in layers if subject.layer == args.layer]
        if not layers:
            known = ", ".join(filter(None, names)) or "it is a source, and has no layers"
            raise InvalidInput(f"{args.file}: has no layer {args.layer}{near(args.layer, names)}: {known}")
    if len(layers) > 1 and (args.sheet or args.mean or args.write):
        raise InvalidInput(f"{args.file}: has the layers {', '.join(names)}: choose the one to write with --layer NAME")
    return layers


def _tell(what: str) -> Callable[[int, int], None]:
    """A function that shows progress on a terminal."""
    return lambda done, of: status(f"{done:,} of {of:,} samples {what}")
