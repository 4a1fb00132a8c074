"""The options of a run, one row each: a keyword in Python, a flag of the command line, and its meaning in both.

A new option is a row here, and a typed line in `Given` and in `Setting` (jobs/setting.py). An option that a solver file
may say has a field of the same name in `Minidnn` (schema/solver.py), too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from minidnn.formats import FORMATS

Kind = Literal[
    "bytes", "positive", "count", "counts", "seed", "word", "names", "choice", "text", "texts", "switch", "device",
    "shapes", "value",
]  # fmt: skip
# the groups of flags in help
MEMORY, NUMBERS, FILES = "memory", "device and numbers", "files and output"
RANKS = "micro-batches and ranks (docs/ranks.md)"


@dataclass(frozen=True)
class Option:
    """
    name:    of the keyword
    meaning: what it asks for
    kind:    what its value is; "value" has no flag
    shown:   how help calls the value; "": as its kind does
    group:   of the flag in help
    choices: the values that it may have
    python:  what a keyword may be
    help:    what else is to be said of the flag. What is in braces is a list that cli/help.py writes
    plans:   whether it decides a plan, and so is an option of `plan`
    keyword: whether it is a keyword; else it is a flag alone
    flag:    its flag, if that is not made from the name
    """

    name: str
    meaning: str
    kind: Kind = "value"
    shown: str = ""
    group: str = NUMBERS
    choices: tuple[str, ...] = ()
    python: str = ""
    help: str = ""
    plans: bool = True
    keyword: bool = True
    flag: str = ""


COSTS = "estimated", "measured"
SIZE = ': a number, or a text such as "64MiB" or "12GB"'

OPTIONS = (
    Option(
        "policy", "what happens to memory: one of the policies, or a FILE.plan", "word", "NAME", MEMORY,
        help="; docs/policies.md explains them (default: the file's, or {default_policy})",
    ),
    Option(
        "budget", "bytes of the arena on the device", "bytes", group=MEMORY, python=SIZE,
        help=", such as 12GB (decimal) or 12GiB; --ram limits the process",
    ),
    Option(
        "host_budget", "host bytes that offloaded tensors may use", "bytes", group=MEMORY, python=SIZE,
        help=" (default: this machine's memory; with --gpu, {host})",
    ),
    Option(
        "ram", "bytes of this machine's memory that the whole process may use, all counted: the net is planned within "
        "them, or refused before it starts (default: all that there is)", "bytes", group=MEMORY, python=SIZE,
    ),
    Option(
        "host_ring", "pinned bytes that what leaves the device passes through, into ordinary memory (default: all of "
        "it is pinned)", "bytes", group=MEMORY, python=SIZE,
    ),
    Option(
        "compress", "behind a ring, what lies in ordinary memory is packed without its zeros", "switch", group=MEMORY,
        help=" (with --host-ring or --disk)",
    ),
    Option(
        "disk", "a folder on a disk for what the host budget has no room for, or without one for all that leaves the "
        "ring, and at most SIZE bytes of it", "text", "PATH[:SIZE]", MEMORY,
    ),
    Option(
        "state", "what lives on the host: nothing (device); the optimizer's state, which comes to the device for each "
        "update and leaves again (host); weights and all else that lives from step to step, too (all); default: the "
        "solver file's, else device", "choice", group=MEMORY, choices=("device", "host", "all"),
    ),
    Option(
        "effort", "after its usual plan `best` looks for a quicker one, for so many seconds for each program that "
        "trains; Ctrl-C takes the quickest so far. Time decides: equal calls need not give equal plans", "positive",
        "SECONDS", MEMORY,
    ),
    Option("facts", "a paper's memory facts", "text", "NAME", MEMORY, python=": a name, or Facts", help=": {facts}"),
    Option("seq", "tokens of a sample, instead of the file's", "positive"),
    Option("global_batch", "samples of an update of all ranks: each takes an equal part", "positive"),
    Option(
        "format", "what to compute in (default: the solver file's, else float32); weights stay float32", "choice",
        choices=FORMATS,
    ),
    Option("seed", "the seed of weights, data order and dropout (default: the file's)", "seed", plans=False),
    Option(
        "workers", "processes that read, decode and transform the samples of each Data layer ahead of the step "
        "(default: the file's, else 0: a thread does)", "count",
    ),
    Option(
        "worker_limit", "how long all workers may stand still at a sample until the run ends (default: 60)", "positive",
        "SECONDS", plans=False,
    ),
    Option(
        "device", "what to run on", "device", "NAME", python=": a name, or an open Device",
        help=": {devices}, or of several GPUs cuda:1 (default: the solver file's, else cpu)",
    ),
    Option("fuse", "make one op of several where the device can", python="; False: run each by itself"),
    Option(
        "no_fusion", "run each op by itself, also where the device could make one of several", "switch", keyword=False,
        plans=False,  # it is one of --device's
    ),
    Option(
        "costs", "the seconds of ops and copies that plans are made with: estimates, the same on every machine, or "
        "those that `minidnn profile` has measured on this one (default: estimated; where `compare` runs on the host, "
        "it measures them)", "choice",
        choices=COSTS, python="; or Costs, which also say how bytes lie on the host",
    ),
    Option("ranks", "simulate so many devices that train together", "positive", help="; docs/ranks.md"),
    Option(
        "link", "what is between ranks: a name, bytes per second and latency (10GB,20us), a FILE.yaml, or nodes "
        "(8xnvlink4+ib100)", "text", "LINK", python=", or a Network",
        help="; names: {links} (default: with --gpu, as to the host)",
    ),
    Option(
        "rank_limit", "how long a rank waits for another before the run ends (default: 300)", "positive", "SECONDS",
        RANKS, plans=False,
    ),
    Option(
        "early", "training batches travel as they are and before their step begins, where the device has memory of its "
        "own, and the budget has room for two places of each input",
    ),
    Option("keep", "names of blobs that stay readable after a step"),
    Option("engine", "moves bytes between ranks, where several train together (ranks/engine.py)"),
    Option("launch", "what a launcher says of this rank: a Solver takes this rank's device, and the engine for it"),
    Option("debug", "fill freed bytes with NaN"),
    Option("delays", "delay each copy at random by at most so many seconds, to bring out missing waits"),
)  # fmt: skip


def described() -> str:
    """The keywords, one a line, with their meanings."""
    keywords = [option for option in OPTIONS if option.keyword]
    width = max(len(option.name) for option in keywords) + 2
    return "\n".join(f"{option.name + ':':{width}}{option.meaning}{option.python}" for option in keywords)
