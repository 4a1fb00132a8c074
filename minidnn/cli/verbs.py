"""The verbs, grouped by what people want, and the first screen of help, which lists them."""

from __future__ import annotations

import shutil
import textwrap

from minidnn.cli.parser import Parser

# group -> verb -> its help text. A verb is a module minidnn.cli.<verb> with `arguments(parser)` and `run(args)`.
GROUPS = {
    "The first hour": {
        "demo": "show what budgets and policies do, on a small network that learns digits",
        "plan": "show the memory that a training step needs under each policy, without running it",
        "train": "train a network within a budget of bytes",
        "compare": "compare policies by memory, traffic and time, and check that they train the same weights",
        "cards": "find the GPUs that have enough memory for a network",
        "frontier": "plot the time of a step against its memory, down to the least memory that works",
    },
    "A trained network": {
        "test": "measure a network on its test data",
        "predict": "classify images, or the samples in a file",
        "generate": "continue a text, token by token",
    },
    "Networks and data": {
        "show": "list a network's layers: shapes, parameters, operations and bytes",
        "data": "show the samples of a data source; write a contact sheet, a mean or a database",
        "convert": "convert a network, a solver or weights: YAML, Caffe's files, Python, ONNX, safetensors",
    },
    "The best use of a budget": {
        "search": "find the largest batch, size or depth that fits",
        "tune": "find the batch size with the highest throughput, and a learning rate for it or by training",
    },
    "Research": {
        "board": "compare all memory policies on networks, GPUs and budgets, each with its gap to a lower bound",
        "reproduce": "compare minidnn's numbers with the papers' tables and figures",
        "pack": "place buffers with known lifetimes at the lowest offsets",
    },
    "This machine": {
        "devices": "list the devices to run on and the GPUs to simulate",
        "time": "measure each layer, forward and backward",
        "profile": "measure the time of ops and copies here, and keep it for planning",
        "completion": "print a shell script that completes verbs, options and names",
    },
}
VERBS = {verb: does for group in GROUPS.values() for verb, does in group.items()}

ENDS = "`minidnn help VERB` shows the options of a verb, with examples.", "`minidnn --version` prints the version."
COLUMN = 2 + max(map(len, VERBS)) + 2
LONGEST = 100  # characters of a line on a wide terminal


class Program(Parser):
    """The parser of `minidnn` itself. Its help lists the verbs by group."""

    def format_help(self) -> str:
        width = min(shutil.get_terminal_size().columns, LONGEST) - 2
        lines = [self.format_usage().strip(), "", *textwrap.wrap(self.description or "", width)]
        for group, verbs in GROUPS.items():
            lines += ["", group]
            for verb, does in verbs.items():
                first, *more = textwrap.wrap(does, max(width - COLUMN, 20))
                lines += [f"  {verb:{COLUMN - 2}}{first}", *(" " * COLUMN + line for line in more)]
        ends = [line for text in ENDS for line in textwrap.wrap(text, width)]
        return "\n".join([*lines, "", *ends, ""])
