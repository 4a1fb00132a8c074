"""`minidnn VERB ...`: one file per verb, imported only when that verb is used.

A user's mistake, or a failure outside minidnn, ends in one message and an exit code (exit_codes.py), never in a
traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Sequence

from minidnn.cli import caffe_flags, completion, modules, streams
from minidnn.cli.exit_codes import exit_code, message
from minidnn.cli.help import Formatter
from minidnn.cli.parser import Parser
from minidnn.cli.verbs import VERBS, Program
from minidnn.errors import BadInput
from minidnn.spoken import on_command_line
from minidnn.version import __version__
from minidnn.visible import say

ABOUT = (
    "Train networks that need more memory than the device has. You set a budget in bytes; minidnn finds the fastest "
    "plan that it can prove to keep it."
)


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    streams.prepare()
    try:
        with on_command_line():
            code = _run(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except BrokenPipeError:  # the program that reads our output has ended
        return 1
    except Exception as error:
        if "--traceback" in argv:
            raise
        _complain(message(error))
        return exit_code(error)
    finally:
        streams.settle()


def _run(argv: Sequence[str]) -> int:
    if (words := completion.words()) is not None:
        completion.complete(_parser(words))
    caffe_flags.check(argv)
    if argv[:1] == ["help"]:
        argv = [*argv[1:2], "--help"]
    parser = _parser(argv)
    if not argv:
        parser.print_help()
        return 0
    args = parser.parse_args(argv)
    args.words = argv
    for module in getattr(args, "modules", None) or ():
        modules.load(module)
    try:
        return importlib.import_module(f"minidnn.cli.{args.verb}").run(args) or 0
    except BadInput as error:
        point(error, args)
        raise


def point(error: BadInput, args: argparse.Namespace) -> None:
    """Let a refused budget's message name the command that says what would fit."""
    from minidnn.cli.refused import PLANS, pointer
    from minidnn.memory.budget import of_budget

    if of_budget(error) and args.verb in PLANS:
        error.args = (f"{error}; {pointer(args)}",)


def _complain(text: str) -> None:
    """Print a message of one line or more to standard error, if that takes any."""
    with contextlib.suppress(OSError):
        for i, line in enumerate(text.split("\n")):
            say(line if i else f"minidnn: {line}", file=sys.stderr, flush=True)


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = Program("minidnn", usage="minidnn VERB [OPTION ...]", description=ABOUT, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"minidnn {__version__}")
    parser.add_argument("--traceback", action="store_true", help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, prog="minidnn", parser_class=Parser)
    wanted = next((word for word in argv if not word.startswith("-")), None)
    for name, what in VERBS.items():
        verb = verbs.add_parser(
            name, help=what, description=f"{what[0].upper()}{what[1:]}.", allow_abbrev=False, formatter_class=Formatter
        )
        if name == wanted:
            importlib.import_module(f"minidnn.cli.{name}").arguments(verb)
    return parser


if __name__ == "__main__":
    sys.exit(main())
