"""`minidnn demo`: a small net learns handwritten digits with and without enough memory. Both end with the same file.

It needs no checkout and no extra: the net, its solver and the digits come with the package. Each step prints the
command that does the same, made of the keywords that it runs with. A step that does not show what its headline says
raises Failed.
"""

from __future__ import annotations

import argparse
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from minidnn import sizes
from minidnn.cli.help import examples
from minidnn.visible import say, status

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from minidnn.api.compare import Comparison
    from minidnn.errors import Failed
    from minidnn.jobs.keywords import SolverFields
    from minidnn.jobs.setting import Given

FOLDER, REPORT = "minidnn-demo", "demo.html"
SOLVER = "digits_solver"
BUDGET = "2.5MiB"  # less than baseline needs, and enough for vdnn_all
WANTED = 0.97  # of the test images
NEXT = "minidnn plan resnet50 --batch 64 --gpu titan_x --budget 4GiB"
INDENT, WIDTH = "   ", 110


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples("minidnn demo", "minidnn demo --out /tmp/digits")
    text = f"the folder for snapshots and the report, which is made (default: {FOLDER}, in the working folder)"
    parser.add_argument("--out", metavar="DIR", default=FOLDER, help=text)


class Trained(NamedTuple):
    """A training that has ended: its snapshot, the bytes of its arena, the part of test images that it gets right, and
    the signal that ended it, if one did."""

    file: Path
    arena: int
    accuracy: float
    signal: int | None


def run(args: argparse.Namespace) -> int:
    folder = Path(args.out)
    report = _made(folder) / REPORT
    say("A small net learns handwritten digits, with and without enough memory.")
    _tell_device()

    _head(1, "Without a budget: baseline gives each feature map bytes for the whole step, as Caffe and Torch did.")
    free = _train(policy="baseline:m", snapshot_prefix=str(folder / "baseline"))
    if free.signal:
        return 128 + free.signal

    _head(2, f"With {sizes.text(sizes.parse(BUDGET))} baseline is refused, before anything is allocated.")
    _refuse(policy="baseline:m", budget=BUDGET)

    _head(3, "vdnn_all keeps this budget: a feature map waits on the host until backward reads it.")
    within = _train(policy="vdnn_all:m", budget=BUDGET, snapshot_prefix=str(folder / "vdnn_all"))
    if within.signal:
        return 128 + within.signal

    _head(4, "Both trainings have left the same bytes.")
    _command("cmp", free.file, within.file)
    if free.file.read_bytes() != within.file.read_bytes():
        raise _wrong(f"{free.file} and {within.file} differ: please report it")

    _head(5, "The policies side by side, each run for some steps.")
    comparison = _compare(report)
    if not comparison.equal:
        raise _wrong("a policy ended with other weights than baseline: please report it")
    _summarize(free, within, report)
    return 0


def _made(folder: Path) -> Path:
    """The folder, made if it is not there. Raises InvalidInput if it cannot be made, or not be written to."""
    from minidnn.api.compare import Comparison
    from minidnn.errors import InvalidInput

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidInput(f"--out {folder}: there is a file; name a folder, or one that can be made") from None
    Comparison.check(folder / REPORT, "--out")
    return folder


def _tell_device() -> None:
    """Say what runs the net, and if it is slow, why, and what makes it quick."""
    from minidnn.backends.cpu import CpuDevice

    device = CpuDevice()
    say(f"Device cpu: {device.description}.")
    if device.native is None:
        say(f"That is slower than need be: {device.found}.")


def _train(**keywords: Unpack[SolverFields]) -> Trained:
    """Train to the end. Raises Failed if the net has learned too little."""
    from minidnn.report.table import long
    from minidnn.training.events import Ended, Saved, Step, Tested
    from minidnn.training.solver import Solver

    _command("minidnn", "train", SOLVER, *_options(keywords))
    file, accuracy = Path(), 0.0
    with Solver(SOLVER, **keywords) as solver:
        last, arena = solver.parameters.max_iter, solver.arrangement.arena
        for event in solver.run():
            if isinstance(event, Step):
                status(f"{INDENT}iteration {event.iteration + 1} of {last}, loss {event.smoothed:.4f}")
            elif isinstance(event, Tested):
                accuracy = event.outputs["accuracy"]
            elif isinstance(event, Saved):
                file = event.path
            elif isinstance(event, Ended):
                ended = event
    status()
    what = f"{ended.iteration} iterations in {long(ended.seconds)}, {sizes.text(arena)}"
    say(f"{INDENT}{what}; {accuracy:.1%} of the test images are recognized")
    if not ended.interrupted and accuracy < WANTED:
        raise _wrong(f"{accuracy:.1%} of the test images are recognized, fewer than {WANTED:.0%}")
    return Trained(file, arena, accuracy, ended.signal)


def _refuse(**keywords: Unpack[SolverFields]) -> None:
    """Show how a training that does not fit is refused. Raises Failed if it is not."""
    from minidnn.cli.refused import pointer
    from minidnn.memory.budget import BudgetError
    from minidnn.training.solver import Solver

    _command("minidnn", "train", SOLVER, *_options(keywords))
    try:
        with Solver(SOLVER, **keywords):
            pass
    except BudgetError as error:
        asked = argparse.Namespace(verb="train", solver=SOLVER, **{**keywords, "budget": sizes.parse(BUDGET)})
        for line in textwrap.wrap(f"minidnn: {error}; {pointer(asked)}", WIDTH, break_on_hyphens=False):
            say(f"{INDENT}{line}")
    else:
        raise _wrong(f"{keywords['policy']} keeps a budget of {keywords['budget']}")


def _compare(report: Path) -> Comparison:
    """Run the policies in turn, show their table, and write the page."""
    from minidnn.api import compare
    from minidnn.jobs.job import read
    from minidnn.report import policies

    keywords: Given = {"budget": BUDGET}
    _command("minidnn", "compare", SOLVER, *_options(keywords), "--report", report)
    result = compare.of(read(SOLVER, keywords), tell=lambda text: status(text and f"{INDENT}{text}"))
    policies.show(result.rows, f"{result.title}. {result.notes}", why=False)
    result.save(report)
    return result


# ---- what is printed


def _summarize(free: Trained, within: Trained, report: Path) -> None:
    say()
    say(f"needs      {sizes.text(free.arena)}   a small net, with bytes for every feature map at once")
    say(f"allowed    {sizes.text(sizes.parse(BUDGET))}   of which vdnn_all took {sizes.text(within.arena)}")
    say(f"result     the same weights, byte for byte; {within.accuracy:.1%} of the test images are recognized")
    say(f"report     {report}")
    say(f"next       {NEXT}")


def _head(number: int, text: str) -> None:
    say()
    say(f"{number}. {text}")


def _command(*words: object) -> None:
    say(f"{INDENT}$ {shlex.join(map(str, words))}", flush=True)


def _options(keywords: Mapping[str, object]) -> list[str]:
    """The options of the command line that say what these keywords say."""
    return [word for name, value in keywords.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def _wrong(what: str) -> Failed:
    from minidnn.errors import Failed

    return Failed(what)
