"""The options that verbs share: one home for their names, meanings and defaults."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, cast

from minidnn import sizes
from minidnn.backends import DEVICES
from minidnn.formats import FORMATS

if TYPE_CHECKING:
    from minidnn.training.setting import Given, Setting

# What is in braces is a list of help.py's, written where help is printed.
POLICIES = "{policies}; docs/policies.md explains them"
TUNED = "accudnn"  # the policy that batches are tuned under, where neither file nor option names one


def size(text: str) -> int:
    """A number of bytes for argparse: 12GB is decimal, 12GiB binary."""
    try:
        return sizes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 2^64 - 1")
    return int(text)


def names(text: str) -> list[str]:
    """A comma-separated list."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("expected one name or more, separated by commas")
    return found


def _policy(default: str) -> tuple[str, dict[str, Any]]:
    return "--policy", dict(metavar="NAME", help=f"what happens to memory: {POLICIES} (default: {default})")


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
        dict(type=names, metavar="A,B,C", help=f"the policies to compare: {POLICIES}"),
    ),
    "budget": (
        "--budget",
        dict(type=size, metavar="SIZE", help="device bytes that may be used, such as 12GB (decimal) or 12GiB"),
    ),
    "host_budget": (
        "--host-budget",
        dict(type=size, metavar="SIZE", help="host bytes that offloaded tensors may use"),
    ),
    "ram": (
        "--ram",
        dict(
            type=size,
            metavar="SIZE",
            help="bytes of this machine's memory that the whole process may use, all counted; what "
            "would take more is refused before it starts (default: all that there is)",
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
    "device": (
        "--device",
        dict(choices=DEVICES, help="what to run on (default: the solver file's, else cpu)"),
    ),
    "no_tf32": (
        "--no-tf32",
        dict(action="store_true", help="with --device cuda: float32 products in full, not rounded for tensor cores"),
    ),
    "no_graph": (
        "--no-graph",
        dict(action="store_true", help="with --device cuda: enqueue each kernel anew instead of replaying a graph"),
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
        dict(metavar="NAME", help="simulate this GPU instead of running: {gpus}, or a FILE.yaml"),
    ),
    "facts": (
        "--facts",
        dict(metavar="NAME", help="a paper's memory facts: {facts}"),
    ),
    "seed": (
        "--seed",
        dict(type=seed, metavar="N", help="the seed of weights, data order and dropout (default: the file's)"),
    ),
    "json": (
        "--json",
        dict(action="store_true", help="print one JSON document on standard output and nothing else there"),
    ),
}


# The options that say how a net is run; a verb has some of them.
GIVEN = "policy", "budget", "host_budget", "ram", "host_ring", "compress", "device", "format", "facts", "seed"

_TOGETHER = {"ring": ("ring", "compress"), "device": ("device", "no_tf32", "no_graph", "no_fusion")}


def given(args: argparse.Namespace) -> Given:
    """What the options say of how a net is run."""
    found: dict[str, Any] = {name: value for name in GIVEN if (value := getattr(args, name, None)) is not None}
    return cast("Given", {**found, "fuse": not getattr(args, "no_fusion", False)})


def opened(args: argparse.Namespace, setting: Setting) -> Setting:
    """The setting with its device opened, where options of `--device cuda` are given. Raises InvalidInput where they
    are given for another device."""
    from dataclasses import replace

    from minidnn.backends import open_device
    from minidnn.errors import InvalidInput

    if not (args.no_tf32 or args.no_graph):
        return setting
    if setting.device != "cuda":
        flag = "--no-tf32" if args.no_tf32 else "--no-graph"
        raise InvalidInput(f"{flag} is for --device cuda")
    return replace(setting, device=open_device("cuda", tf32=not args.no_tf32, graphs=not args.no_graph))


def common(parser: argparse.ArgumentParser, *which: str) -> None:
    """Add the shared options of these names, in this order."""
    for name in which:
        for each in _TOGETHER.get(name, (name,)):
            flag, settings = _SHARED[each]
            parser.add_argument(flag, **settings)
