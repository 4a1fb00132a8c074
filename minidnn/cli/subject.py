"""The file that a verb works on, as the arguments name it (jobs/job.py)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minidnn.cli.options import FILES, common, given, group, of_cuda, opened, shapes, solver_fields
from minidnn.visible import say

if TYPE_CHECKING:
    from minidnn.api.answer import Answer
    from minidnn.api.pictures import Pictured
    from minidnn.api.time import LayerTimes
    from minidnn.jobs.job import Job
    from minidnn.jobs.nets import Nets
    from minidnn.jobs.plannable import Plannable
    from minidnn.jobs.setting import Setting
    from minidnn.nets.net import Net


NETS = "YAML, Caffe's .prototxt, .onnx, or a class in a Python file, FILE.py or FILE.py:CLASS"  # forms of files


def arguments(parser: argparse.ArgumentParser, *shared: str) -> None:
    what = f"a model file ({NETS}); a solver file, which adds its optimizer's state; or the name of a model"
    parser.add_argument("file", metavar="FILE", help=what)
    common(parser, "batch", "seq", "set", "loss", "modules", "ignore_unknown", "shape", *shared)


def read(args: argparse.Namespace) -> Job:
    """The job: the file that the arguments name, with the setting that they ask for."""
    from minidnn.jobs.job import read

    gpu = getattr(args, "gpu", None)
    return read(
        args.file, given(args), args.batch, gpu, args.ignore_unknown, lambda setting: opened(args, setting),
        solver_fields(args), args.loss, shapes(args),
    )  # fmt: skip


def planned(args: argparse.Namespace) -> Plannable:
    """What the arguments name to be planned: a job, or with --torch a module's."""
    return modules(args)(args.file, args.batch) if args.torch else read(args)


def check_nets(args: argparse.Namespace, flag: str) -> None:
    """Raise InvalidInput if an option that is for nets stands beside --torch."""
    from minidnn.errors import InvalidInput

    if args.torch:
        raise InvalidInput(f"{flag} is for minidnn's own nets, not for a PyTorch module: leave it out")


# options of nets that are no keywords of a run, by what argparse calls them
OF_NETS = ("set", "loss", "shape", "ignore_unknown", "no_fusion")


def modules(args: argparse.Namespace) -> Callable[[Any, int | None], Plannable]:
    """Reads FILE.py:FUNCTION at a batch, as --torch has it. Raises InvalidInput for options that it has no use for."""
    from minidnn.jobs.job import warn
    from minidnn.torch.job import TorchJob
    from minidnn.torch.making import made

    for flag in [*of_cuda(args), *(f"--{name.replace('_', '-')}" for name in OF_NETS if getattr(args, name, None))]:
        check_nets(args, flag)
    keywords = given(args)
    gpu = getattr(args, "gpu", None)
    return lambda source, batch: TorchJob.of(made(source, batch, warn), keywords, gpu, batch)


def weights(parser: argparse.ArgumentParser) -> None:
    """The option --weights of a verb that runs a trained net."""
    what = "a snapshot, any safetensors file, or Caffe's .caffemodel (default: those of an .onnx)"
    parser.add_argument("--weights", metavar="FILE", help=what)


def check_weights(args: argparse.Namespace, nets: Sequence[Net]) -> None:
    """Raise InvalidInput if neither --weights nor the net's file gives weights; say so in a line if the file does."""
    from minidnn.errors import InvalidInput
    from minidnn.jobs.job import tell_weights

    if not args.weights and not all(net.weights for net in nets):
        raise InvalidInput(f"{args.model} has no weights: name a file that has them (--weights FILE)")
    if not args.weights:
        tell_weights(nets[0])


def policies_of(args: argparse.Namespace) -> list[str]:
    """The policies that --policies or --policy names; empty if neither was given."""
    from minidnn.errors import InvalidInput

    if args.policies and args.policy:
        raise InvalidInput("--policy and --policies exclude each other: give one of them")
    return args.policies or ([args.policy] if args.policy else [])


def report(parser: argparse.ArgumentParser, what: str) -> None:
    """The option --report, for a verb that can write its result to a file. what: the forms of that file"""
    text = f"write {what} (.csv), or the --json document (.json)"
    group(parser, FILES).add_argument("--report", metavar="FILE", help=text)


def check_report(args: argparse.Namespace, kind: type[Answer[Any, Any]]) -> None:
    """Raise InvalidInput if the file of --report cannot be written. Ask before a long run."""
    if args.report:
        kind.check(args.report, "--report")


def write_report(args: argparse.Namespace, answer: Answer[Any, Any]) -> None:
    """Write the file of --report, if there is one."""
    if args.report:
        answer.save(args.report)


def tell_report(args: argparse.Namespace) -> None:
    """Name the files of --report, --trace and --arena, as far as there are any."""
    for name in ("report", *STEPS):
        if file := getattr(args, name, None):
            say(f"{name}: {file}")


def deliver(
    args: argparse.Namespace,
    answer: Answer[Any, Any],
    show: Callable[[], object] | None = None,
    steps: Pictured[Any] | LayerTimes | None = None,
) -> None:
    """Write the file of --report, and those of --trace and --arena, of a verb with `steps`. Then print the document of
    --json, or what `show` prints, which is the answer's own by default, and the files' names."""
    from minidnn.report import table

    write_report(args, answer)
    if steps is not None:
        write_steps(args, steps)
    if args.json:
        table.dump(answer.document)
    else:
        (show or answer.show)()
        tell_report(args)


STEPS = ("trace", "arena")  # the options that write steps


def step_options(args: argparse.Namespace) -> list[str]:
    """The options --trace and --arena that are given."""
    return [f"--{name}" for name in STEPS if getattr(args, name)]


def check_steps(args: argparse.Namespace) -> None:
    """Raise InvalidInput if the file of --trace or of --arena cannot be written. Ask before a long run."""
    from minidnn.api.steps import Steps

    if args.trace:
        Steps.check(args.trace, "--trace", *Steps.traces)
    if args.arena:
        Steps.check(args.arena, "--arena", *Steps.maps)


def write_steps(args: argparse.Namespace, answer: Pictured[Any] | LayerTimes) -> None:
    """Write the files of --trace and --arena, as far as there are any."""
    for file in filter(None, (args.trace, args.arena)):
        answer.steps().save(file)


def understood(file: str, args: argparse.Namespace, simulated: bool = False) -> Nets:
    """(net, nets to test with, solver) of a file, with windows of --seq tokens. Says which unknown fields are
    ignored, if the arguments allow any.

    simulated: whether nothing will run, so that data need not be there"""
    from minidnn.jobs.job import understood

    return understood(
        file, args.batch, args.ignore_unknown, simulated, solver_fields(args), getattr(args, "loss", False),
        shapes(args),
    ).with_tokens(getattr(args, "seq", None))  # fmt: skip


def tell_unobeyed(nets: Any, solver: Any, setting: Setting) -> None:
    """Say in one line which fields of the file change nothing."""
    from minidnn.jobs.job import tell_unobeyed

    tell_unobeyed(nets, solver, setting)
