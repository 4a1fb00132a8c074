"""The options that verbs share: one home for their names, meanings and defaults."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, cast

from minidnn import sizes
from minidnn.backends import DEVICES
from minidnn.cli.values import count, counts, device, names, positive, seed, size, word
from minidnn.formats import FORMATS

if TYPE_CHECKING:
    from minidnn.jobs.setting import Given, Setting

# What is in braces is a list of help.py's, written where help is printed.
POLICIES = "one of the policies below, or a FILE.plan; docs/policies.md explains them"
TUNED = "best"  # the policy that batches are tuned under, where neither file nor option names one


def _policy(default: str) -> tuple[str, dict[str, Any]]:
    return "--policy", dict(type=word, metavar="NAME", help=f"what happens to memory, {POLICIES} (default: {default})")


_SHARED: dict[str, tuple[str, dict[str, Any]]] = {
    "batch": (
        "--batch",
        dict(type=positive, metavar="N", help="use this batch size instead of the file's"),
    ),
    "policy": _policy("the file's, or {default_policy}"),
    "policy_searched": _policy("each of them, and each variant"),
    "policy_tuned": _policy(f"the file's, or {TUNED}"),
    "policies": (
        "--policies",
        dict(type=names, metavar="A,B,C", help=f"the policies to compare, each {POLICIES}"),
    ),
    "budget": (
        "--budget",
        dict(
            type=size,
            metavar="SIZE",
            help="bytes of the arena on the device, such as 12GB (decimal) or 12GiB; --ram limits the process",
        ),
    ),
    "host_budget": (
        "--host-budget",
        dict(
            type=size,
            metavar="SIZE",
            help="host bytes that offloaded tensors may use (default: this machine's memory; with --gpu, {host})",
        ),
    ),
    "ram": (
        "--ram",
        dict(
            type=size,
            metavar="SIZE",
            help="bytes of this machine's memory that the whole process may use, all counted: the net is planned "
            "within them, or refused before it starts (default: all that there is)",
        ),
    ),
    "workers": (
        "--workers",
        dict(
            type=count,
            metavar="N",
            help="processes that read, decode and transform the samples of each Data layer ahead of the step (default: "
            "the file's, else 0: a thread does)",
        ),
    ),
    "ring": (
        "--host-ring",
        dict(
            type=size,
            metavar="SIZE",
            help="pinned bytes that what leaves the device passes through, into ordinary "
            "memory (default: all of it is pinned)",
        ),
    ),
    "compress": (
        "--compress",
        dict(action="store_true", help="with --host-ring: what lies in ordinary memory is packed without its zeros"),
    ),
    "disk": (
        "--disk",
        dict(
            metavar="PATH[:SIZE]",
            help="a folder on a disk for what the host budget has no room for, or without one for all that leaves the "
            "ring, and at most SIZE bytes of it",
        ),
    ),
    "device": (
        "--device",
        dict(
            type=device,
            metavar="NAME",
            help=f"what to run on: {', '.join(DEVICES)}, or of several GPUs cuda:1 (default: the solver file's, else "
            "cpu)",
        ),
    ),
    "no_tf32": (
        "--no-tf32",
        dict(action="store_true", help="with --device cuda: float32 products in full, not rounded for tensor cores"),
    ),
    "no_graph": (
        "--no-graph",
        dict(action="store_true", help="with --device cuda: enqueue each kernel anew instead of replaying a graph"),
    ),
    "nvtx": (
        "--nvtx",
        dict(
            action="store_true",
            help="with --device cuda: show each op to NVIDIA's profilers as a range of its name; implies --no-graph, "
            "since a replayed graph has no ranges",
        ),
    ),
    "avoid": (
        "--avoid",
        dict(
            action="append",
            default=[],
            metavar="PLAN",
            help="with --device cuda: do without cuDNN's plans whose names contain this, such as eng34 (may be given "
            "several times)",
        ),
    ),
    "costs": (
        "--costs",
        dict(
            choices=("estimated", "measured"),
            help="the seconds of ops and copies that plans are made with: estimates, the same on every machine, or "
            "those that `minidnn profile` has measured on this one (default: estimated)",
        ),
    ),
    "no_fusion": (
        "--no-fusion",
        dict(action="store_true", help="run each op by itself, also where the device could make one of several"),
    ),
    "format": (
        "--format",
        dict(
            choices=FORMATS, help="what to compute in (default: the solver file's, else float32); weights stay float32"
        ),
    ),
    "gpu": (
        "--gpu",
        dict(
            metavar="NAME",
            help="simulate this GPU instead of running: rtx3060, h100 or another of {gpus} (`minidnn devices` lists "
            "them), here (this machine's), or a FILE.yaml",
        ),
    ),
    "state": (
        "--state",
        dict(
            choices=("device", "host", "all"),
            help="what lives on the host: nothing (device); the optimizer's state, which comes to the device for each "
            "update and leaves again (host); weights and all else that lives from step to step, too (all); default: "
            "the solver file's, else device",
        ),
    ),
    "ranks": (
        "--ranks",
        dict(type=positive, metavar="N", help="simulate so many devices that train together; docs/ranks.md"),
    ),
    "ranks_several": (
        "--ranks",
        dict(
            type=counts,
            metavar="N|A,B,...",
            help="simulate so many devices that train together; with 1,2,4,...,1024 the speed of each; docs/ranks.md",
        ),
    ),
    "link": (
        "--link",
        dict(
            metavar="LINK",
            help="what is between these: {links}, bytes per second and latency (10GB,20us), a FILE.yaml, or nodes "
            "(8xnvlink4+ib100) (default: with --gpu, as to the host)",
        ),
    ),
    "global_batch": (
        "--global-batch",
        dict(type=positive, metavar="N", help="samples of an update of all ranks: each takes an equal part"),
    ),
    "facts": (
        "--facts",
        dict(metavar="NAME", help="a paper's memory facts: {facts}"),
    ),
    "seed": (
        "--seed",
        dict(type=seed, metavar="N", help="the seed of weights, data order and dropout (default: the file's)"),
    ),
    "modules": (
        "--import",
        dict(
            action="append",
            dest="modules",
            metavar="MODULE",
            help="first import this module, or this .py file, with layers, policies, optimizers or sources of your own "
            "(may be given several times)",
        ),
    ),
    "ignore_unknown": (
        "--ignore-unknown",
        dict(action="store_true", help="ignore the fields of files that minidnn does not know, and name them"),
    ),
    "trace": (
        "--trace",
        dict(
            metavar="FILE",
            help="write the step for other programs: its instructions, stalls and bytes over time for Perfetto "
            "(.json), or the arena's history for PyTorch's memory viewer (.pickle); docs/howto/trace.md",
        ),
    ),
    "arena": (
        "--arena",
        dict(
            metavar="FILE",
            help="draw the arena as a map, each tensor at its offset over time: a page (.html) or a picture (.svg, "
            ".png)",
        ),
    ),
    "json": (
        "--json",
        dict(action="store_true", help="print one JSON document on standard output and nothing else there"),
    ),
}


# The groups of the shared options in help, after the verb's own.
FILES = "files and output"
GROUPS = {
    "memory": (
        "policy", "policy_searched", "policy_tuned", "policies", "budget", "host_budget", "ram", "ring", "compress",
        "disk", "state", "facts",
    ),
    "device and numbers": (
        "batch", "global_batch", "format", "seed", "workers", "device", "no_tf32", "no_graph", "nvtx", "avoid",
        "no_fusion", "costs", "gpu", "ranks", "ranks_several", "link",
    ),
    FILES: ("modules", "ignore_unknown", "trace", "arena", "json"),
}  # fmt: skip
LISTED = {"policy", "policy_searched", "policy_tuned", "policies"}  # with one of them, help lists the policies

# The options that say how a net is run; a verb has some of them.
GIVEN = (
    "policy", "budget", "host_budget", "ram", "host_ring", "compress", "disk", "device", "format", "state", "facts",
    "seed", "workers", "ranks", "link", "global_batch", "rank_limit", "costs",
)  # fmt: skip

# The options that decide a plan, besides the batch: those of `plan`.
PLANNED = (
    "policy", "policies", "budget", "host_budget", "ram", "ring", "device", "costs", "format", "state", "gpu", "facts",
    "workers", "modules", "ranks_several",
)  # fmt: skip

_TOGETHER = {
    "ring": ("ring", "compress", "disk"),
    "device": ("device", "no_tf32", "no_graph", "nvtx", "avoid", "no_fusion"),
    "ranks": ("ranks", "link", "global_batch"),
    "ranks_several": ("ranks_several", "link", "global_batch"),
}


def given(args: argparse.Namespace) -> Given:
    """What the options say of how a net is run."""
    found: dict[str, Any] = {name: value for name in GIVEN if (value := getattr(args, name, None)) is not None}
    if isinstance(found.get("ranks"), list):
        found["ranks"] = max(found["ranks"])
    return cast("Given", {**found, "fuse": not getattr(args, "no_fusion", False)})


def of_cuda(args: argparse.Namespace) -> list[str]:
    """The options of `--device cuda` that are given."""
    flags = {"--no-tf32": "no_tf32", "--no-graph": "no_graph", "--nvtx": "nvtx", "--avoid": "avoid"}
    return [flag for flag, name in flags.items() if getattr(args, name, None)]


def opened(args: argparse.Namespace, setting: Setting) -> Setting:
    """The setting with its device opened, where options of `--device cuda` are given. Raises InvalidInput where they
    are given for another device."""
    from dataclasses import replace

    from minidnn.backends import open_device
    from minidnn.errors import InvalidInput
    from minidnn.training.together import own_gpu

    if not (flags := of_cuda(args)):
        return setting
    if not isinstance(setting.device, str) or setting.device.partition(":")[0] != "cuda":
        instead = "; --gpu NAME:fp32 forbids TF32 where a GPU is simulated" if flags[0] == "--no-tf32" else ""
        raise InvalidInput(f"{flags[0]} is for --device cuda{instead}")
    options = dict(tf32=not args.no_tf32, graphs=not args.no_graph, nvtx=args.nvtx, avoid=tuple(args.avoid))
    if setting.launch is not None:
        return replace(setting, device=own_gpu(setting.launch, setting.device, **options))
    return replace(setting, device=open_device(setting.device, **options))


Arguments = argparse._ActionsContainer  # a parser, or a group of its options


def common(parser: argparse.ArgumentParser, *which: str) -> None:
    """Add the shared options of these names, each to its group."""
    wanted = {each for name in which for each in _TOGETHER.get(name, (name,))}
    for title, members in GROUPS.items():
        for each in members:
            if each in wanted:
                flag, settings = _SHARED[each]
                group(parser, title).add_argument(flag, **settings)
    if LISTED & wanted:
        parser.add_argument_group("policies", "{policies}")


def group(parser: argparse.ArgumentParser, title: str) -> Arguments:
    """The parser's group of this title, which is made if there is none."""
    there = (found for found in parser._action_groups if found.title == title)
    return next(there, None) or parser.add_argument_group(title)


def repeated(args: argparse.Namespace, *which: str) -> list[str]:
    """The shared options of these names, and the batch, as words of a command line, where they are given."""
    found: list[str] = []
    for each in (each for name in ("batch", *which) for each in _TOGETHER.get(name, (name,))):
        flag, settings = _SHARED[each]
        value = getattr(args, settings.get("dest", flag.removeprefix("--").replace("-", "_")), None)
        if settings.get("action") == "store_true":
            found += [flag] if value else []
        elif isinstance(value, list):
            found += [word for one in value for word in (flag, str(one))]
        elif value is not None:
            found += [flag, sizes.exact(value) if settings.get("type") is size else str(value)]
    return found
