"""The options that verbs share: one home for their names, meanings and defaults."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from minidnn import sizes
from minidnn.cli.values import count, counts, device, names, positive, seed, shape, size, word
from minidnn.jobs.options import FILES, MEMORY, NUMBERS, OPTIONS, RANKS, Option

if TYPE_CHECKING:
    from minidnn.jobs.keywords import Asked
    from minidnn.jobs.setting import Given, Setting

TUNED = "best"  # the policy that batches are tuned under, where neither file nor option names one
ONE = "the name of a policy, or a FILE.plan; docs/policies.md explains them"

# The options that the command line alone has, by the option of a run (jobs/options.py) that they come before in help;
# the last ones come after all. Several may have one flag: a verb has one of them.
OWN: dict[str, tuple[Option, ...]] = {
    "budget": (
        Option(
            "policy_searched", f"the memory policy: {ONE} (default: every policy and every variant)", "word",
            "NAME", MEMORY, flag="--policy",
        ),
        Option(
            "policy_tuned", f"the memory policy: {ONE} (default: the file's, or {TUNED})", "word", "NAME", MEMORY,
            flag="--policy",
        ),
        Option("policies", f"the policies to compare, each {ONE}", "names", group=MEMORY),
    ),
    "seq": (Option("batch", "use this batch size instead of the file's", "positive"),),
    "no_fusion": (
        Option("no_tf32", "with --device cuda: compute float32 products in full precision, not in TF32", "switch"),
        Option("no_graph", "with --device cuda: launch each kernel instead of replaying a graph", "switch"),
        Option(
            "nvtx", "with --device cuda: mark each op as a named range for NVIDIA's profilers; implies --no-graph, "
            "since a replayed graph has no ranges", "switch",
        ),
        Option(
            "avoid", "with --device cuda: do not use cuDNN's plans whose names contain this text, such as eng34 (may "
            "be given several times)", "texts", "PLAN",
        ),
    ),
    "ranks": (
        Option(
            "gpu", "simulate a GPU instead of running: rtx3060, h100 or another of {gpus} profiles (`minidnn "
            "devices` lists them); `here` for this machine's GPU; or a FILE.yaml", "text", "NAME",
        ),
    ),
    "link": (
        Option(
            "ranks_several", "simulate this many devices that train together; 1,2,4,...,1024 compares the speed of "
            "each number; docs/ranks.md", "counts", "N|A,B,...", flag="--ranks",
        ),
    ),
    "": (
        Option(
            "set", "set a field of the solver, in place of the file's or for a net without a solver file: "
            "base_lr=0.01, stepvalue=[10,20], minidnn.budget=2MiB (may be given several times)", "texts",
            "FIELD=VALUE", FILES,
        ),
        Option(
            "loss", "add labels and a loss to a net that has no loss: SoftmaxWithLoss, or the loss that suits its "
            "last output", "switch", group=FILES,
        ),
        Option(
            "modules", "first import this module or .py file, which defines your own layers, policies, optimizers or "
            "sources (may be given several times)", "texts", "MODULE", FILES, flag="--import",
        ),
        Option(
            "ignore_unknown", "ignore fields of files that minidnn does not know, and list them", "switch",
            group=FILES,
        ),
        Option(
            "shape", "give a top of a data layer this shape, so that its data need not be present (may be given "
            "several times)", "shapes", "TOP=N,C,H,W", FILES,
        ),
        Option(
            "trace", "write the step for other tools: a timeline of instructions, stalls and memory for Perfetto "
            "(.json), or the arena's history for PyTorch's memory viewer (.pickle); docs/howto/trace.md", "text",
            "FILE", FILES,
        ),
        Option(
            "arena", "draw the arena as a map, each tensor at its offset over time: a page (.html) or a picture (.svg, "
            ".png)", "text", "FILE", FILES,
        ),
        Option(
            "torch", "FILE names a function in a Python file (FILE.py:make) that returns a PyTorch module, the "
            "arguments of a step, the loss, and the optimizer; docs/howto/will-it-fit.md", "switch", group=FILES,
        ),
        Option("json", "print one JSON document on standard output, and nothing else there", "switch", group=FILES),
    ),
}  # fmt: skip

GROUPS = (RANKS, MEMORY, NUMBERS, FILES)  # of the shared options in help, after the verb's own
LISTED = {"policy", "policy_searched", "policy_tuned", "policies"}  # with one of them, help lists the policies
VALUES: dict[str, dict[str, Any]] = {  # how argparse reads each kind of value
    "bytes": dict(type=size, metavar="SIZE"),
    "positive": dict(type=positive, metavar="N"),
    "count": dict(type=count, metavar="N"),
    "counts": dict(type=counts),
    "seed": dict(type=seed, metavar="N"),
    "word": dict(type=word),
    "names": dict(type=names, metavar="A,B,C"),
    "choice": {},
    "text": {},
    "texts": dict(action="append"),
    "switch": dict(action="store_true"),
    "device": dict(type=device),
    "shapes": dict(action="append", type=shape),
}
_TOGETHER = {
    "ring": ("host_ring", "pin_on_demand", "compress", "disk", "peer", "placement"),
    "device": ("device", "no_tf32", "no_graph", "nvtx", "avoid", "no_fusion"),
    "ranks": ("ranks", "link", "global_batch"),
    "ranks_several": ("ranks_several", "link", "global_batch"),
}

# The options that decide a plan, besides the batch: those of `plan`.
PLANNED = (
    *(option.name for option in OPTIONS if option.kind != "value" and option.plans and option.name != "ranks"),
    "policies", "device", "gpu", "set", "loss", "modules", "ranks_several", "torch",
)  # fmt: skip


def _shared() -> Iterator[Option]:
    """All shared options, in the order of help."""
    for option in OPTIONS:
        yield from OWN.get(option.name, ())
        if option.kind != "value":
            yield option
    yield from OWN[""]


def _argument(option: Option) -> tuple[str, dict[str, Any]]:
    """The flag of an option, and what argparse is to know of it."""
    flag = option.flag or "--" + option.name.replace("_", "-")
    settings = {"help": option.meaning + option.help, **VALUES[option.kind]}
    settings |= {"metavar": option.shown} if option.shown else {}
    settings |= {"choices": option.choices} if option.choices else {}
    settings |= {"dest": option.name} if flag == "--import" else {}
    settings |= {"default": []} if option.name == "avoid" else {}
    return flag, settings


def given(args: argparse.Namespace) -> Given:
    """The run options of a command line."""
    keywords = [option.name for option in OPTIONS if option.keyword and option.kind != "value"]
    result: dict[str, Any] = {name: value for name in keywords if (value := getattr(args, name, None)) is not None}
    if isinstance(result.get("ranks"), list):
        result["ranks"] = max(result["ranks"])
    return cast("Given", {**result, "fuse": not getattr(args, "no_fusion", False)})


def solver_fields(args: argparse.Namespace) -> dict[str, Asked]:
    """The solver fields of --set, by dotted name."""
    from minidnn.jobs.assigned import assigned

    return assigned(getattr(args, "set", None) or ())


def shapes(args: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """The shapes of --shape, by top. Raises InvalidInput for a top that is given twice."""
    from minidnn.errors import InvalidInput

    result: dict[str, tuple[int, ...]] = {}
    for top, dims in getattr(args, "shape", None) or ():
        if top in result:
            raise InvalidInput(f"--shape {top} is given twice: give one shape")
        result[top] = dims
    return result


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
    for title in GROUPS:
        for option in _shared():
            if option.group == title and option.name in wanted:
                flag, settings = _argument(option)
                group(parser, title).add_argument(flag, **settings)
    if LISTED & wanted:
        parser.add_argument_group("policies", "{policies}")


def group(parser: argparse.ArgumentParser, title: str) -> Arguments:
    """The parser's group of this title, which is made if there is none."""
    there = (result for result in parser._action_groups if result.title == title)
    return next(there, None) or parser.add_argument_group(title)


def repeated(args: argparse.Namespace, *which: str) -> list[str]:
    """The shared options of these names, and the batch, as words of a command line, where they are given."""
    words: list[str] = []
    shared = {option.name: option for option in _shared()}
    wanted = dict.fromkeys(each for name in ("batch", *which) for each in _TOGETHER.get(name, (name,)))
    for option in map(shared.__getitem__, wanted):
        flag, settings = _argument(option)
        value = getattr(args, settings.get("dest", flag.removeprefix("--").replace("-", "_")), None)
        if option.kind == "switch":
            words += [flag] if value else []
        elif isinstance(value, list):
            words += [word for one in value for word in (flag, str(one))]
        elif value is not None:
            words += [flag, sizes.exact(value) if option.kind == "bytes" else str(value)]
    return words
