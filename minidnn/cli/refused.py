"""A refused budget: `minidnn plan` gives the whole answer; other verbs name that command in a line."""

from __future__ import annotations

import argparse
import shlex

from minidnn.cli.options import PLANNED, repeated

PLANS = {"train": "solver", "compare": "file", "time": "file", "plan": "file"}  # {verb: its argument that `plan` takes}


def pointer(args: argparse.Namespace) -> str:
    """A sentence that names the command which says what would fit; `args` are of a verb of PLANS."""
    options = [name for name in PLANNED if name != "policies"]
    words = ["minidnn", "plan", getattr(args, PLANS[args.verb]), *repeated(args, *options)]
    several = args.verb == "compare" or getattr(args, "policies", None)
    return f"`{shlex.join(words)}{' --policy NAME' if several else ''}` says what would fit"
