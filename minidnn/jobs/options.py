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
        "policy", "the memory policy: the name of a policy, or a FILE.plan", "word", "NAME", MEMORY,
        help="; docs/policies.md explains them (default: the file's, or {default_policy})",
    ),
    Option(
        "budget", "the device memory that the arena may take", "bytes", group=MEMORY, python=SIZE,
        help=", such as 12GB (decimal) or 12GiB (binary); --ram limits the whole process",
    ),
    Option(
        "host_budget", "the host memory that offloaded tensors may take", "bytes", group=MEMORY, python=SIZE,
        help=" (default: this machine's memory; with --gpu, {host})",
    ),
    Option(
        "ram", "the memory of this machine that the whole process may take, with everything counted: the net is "
        "planned to fit, or refused before it starts (default: all of it)", "bytes", group=MEMORY, python=SIZE,
    ),
    Option(
        "host_ring", "size of a pinned host buffer, through which offloaded tensors go to ordinary memory (default: "
        "all of them are pinned)", "bytes", group=MEMORY, python=SIZE,
    ),
    Option(
        "pin_on_demand", "pin host memory only while a copy uses it, as in vDNN++: offloaded tensors go on to ordinary "
        "memory", "switch", group=MEMORY, help=" (instead of --host-ring)",
    ),
    Option(
        "compress", "store offloaded tensors without their zeros, in ordinary memory behind pinned memory", "switch",
        group=MEMORY,
        help=" (with --host-ring, --pin-on-demand or --disk)",
    ),
    Option(
        "disk", "a folder on a disk, of which at most SIZE bytes are used: for offloaded tensors beyond the host "
        "budget, or for all that pass through the ring if there is no host budget", "text", "PATH[:SIZE]", MEMORY,
    ),
    Option(
        "peer", "memory of another GPU or machine, to which tensors leave instead of the host, over a link like those "
        "of --link; simulated, as in SuperNeurons' tensor pool. The first of several is filled first", "texts",
        "LINK:SIZE", MEMORY, python=", or several", help=" (with --gpu, such as nvlink4:40GiB or 10GB,20us:1TiB)",
    ),
    Option(
        "placement", "place buffers in the arena one after another, as in vDNN++'s pool: each in the first gap that is "
        "large enough, the best (tightest) or the worst; after a colon, two_ended (tensors that wait for backward at "
        "the other end) or an order (start, as a step asks for them; size, area, width, size_width), as in "
        "best:two_ended (default: search for the smallest arena)", "text", "HEURISTIC", MEMORY,
    ),
    Option(
        "state", "where weights and the optimizer's state live between uses: both on the device (device); the "
        "optimizer's state on the host, and on the device only for each update (host); both on the host, with "
        "everything else that lives from step to step (all); default: the solver file's, else device", "choice",
        group=MEMORY, choices=("device", "host", "all"),
    ),
    Option(
        "effort", "how long `best` keeps searching for a faster plan after its usual one, in seconds for each "
        "training program; Ctrl-C takes the fastest so far. The clock ends the search, so equal calls may give "
        "different plans", "positive",
        "SECONDS", MEMORY,
    ),
    Option(
        "facts", "what the backward pass of each layer reads, as a paper assumes it", "text", "NAME", MEMORY,
        python=": a name, or Facts", help=": {facts}",
    ),
    Option("seq", "tokens per sample, instead of the file's", "positive"),
    Option("global_batch", "samples per update over all ranks; each rank takes an equal part", "positive"),
    Option(
        "format", "the number format of the computation (default: the solver file's, else float32); weights stay "
        "float32", "choice",
        choices=FORMATS,
    ),
    Option("seed", "the random seed of weights, data order and dropout (default: the file's)", "seed", plans=False),
    Option(
        "workers", "processes that read, decode and transform the samples of each Data layer ahead of the step "
        "(default: the file's, else 0, which leaves this to a thread)", "count",
    ),
    Option(
        "worker_limit", "how long all workers may be stuck on a sample before the run ends (default: 60)", "positive",
        "SECONDS", plans=False,
    ),
    Option(
        "device", "the device to run on", "device", "NAME", python=": a name, or an open Device",
        help=": {devices}; or cuda:1 for the second of several GPUs (default: the solver file's, else cpu)",
    ),
    Option("fuse", "fuse ops where the device can", python="; False: run each op by itself"),
    Option(
        "no_fusion", "run each op by itself, even where the device could fuse several", "switch", keyword=False,
        plans=False,  # it is one of --device's
    ),
    Option(
        "costs", "the times of ops and copies that plans are based on: estimates, the same on every machine, or what "
        "`minidnn profile` has measured on this one (default: estimated; `compare` measures them if it runs on "
        "the host)", "choice",
        choices=COSTS, python="; or Costs, which also say how host memory is used",
    ),
    Option("ranks", "simulate this many devices that train together", "positive", help="; docs/ranks.md"),
    Option(
        "link", "the link between ranks: a name, bytes per second and latency (10GB,20us), a FILE.yaml, or nodes "
        "(8xnvlink4+ib100)", "text", "LINK", python=", or a Network",
        help="; names: {links} (default: with --gpu, the GPU's link to the host)",
    ),
    Option(
        "rank_limit", "how long a rank waits for another before the run ends (default: 300)", "positive", "SECONDS",
        RANKS, plans=False,
    ),
    Option(
        "early", "copy training batches to the device as they are, before their step begins; this takes a device "
        "with its own memory, and a budget with room for each input twice",
    ),
    Option("keep", "names of blobs that stay readable after a step"),
    Option("engine", "moves bytes between ranks that train together (ranks/engine.py)"),
    Option("launch", "this rank, as its launcher describes it; a Solver chooses the rank's device and engine from it"),
    Option("debug", "fill freed bytes with NaN"),
    Option("delays", "delay each copy at random by at most this many seconds, to expose missing waits"),
)  # fmt: skip


def described() -> str:
    """The keywords, one a line, with their meanings."""
    keywords = [option for option in OPTIONS if option.keyword]
    width = max(len(option.name) for option in keywords) + 2
    return "\n".join(f"{option.name + ':':{width}}{option.meaning}{option.python}" for option in keywords)
