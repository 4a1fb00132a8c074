"""`minidnn VERB ...`: one file per verb, imported only when that verb is used.

What a user did wrong, or what went wrong outside, ends in one message and an exit code, never a traceback:
2 for input that cannot be used (a file, an option, a budget), 1 for what failed while running.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence

import minidnn
from minidnn.cli.help import Formatter
from minidnn.errors import BadInput, Failed

# verb: what it does; each is the module minidnn.cli.<verb> with `arguments(parser)` and `run(args)`
VERBS = {
    "train": "train a network as a solver file says",
    "test": "measure a trained network on its test data",
    "predict": "classify the images of a file",
    "plan": "show what a policy does with memory, without running",
    "compare": "compare policies: memory, traffic, time, and that weights are the same",
    "search": "find the largest batch or depth that each policy places within a budget",
    "tune": "find the minibatch of the highest throughput under a budget, and its learning rate",
    "reproduce": "the papers' tables and figures, theirs beside ours",
    "time": "seconds of each layer, forward and backward",
    "profile": "measure this machine's costs, and keep them for planning",
    "devices": "what there is to run on or to simulate",
}

CUDA = ("cupy", "cupy_backends")  # packages whose errors come when a step ends: a kernel failed
NO_SUCH_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv:
        _parser(argv).print_help()
        return 0
    args = _parser(argv).parse_args(argv)
    try:
        return importlib.import_module(f"minidnn.cli.{args.verb}").run(args) or 0
    except KeyboardInterrupt:
        print("minidnn: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if args.traceback:
            raise
        print(f"minidnn: {message(error)}", file=sys.stderr)
        return exit_code(error)


def exit_code(error: Exception) -> int:
    if isinstance(error, Failed):
        return 1
    if isinstance(error, BadInput):
        return 2
    named = isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP)
    return 2 if named or isinstance(error, NO_SUCH_FILE) else 1


def message(error: Exception) -> str:
    if isinstance(error, BadInput | Failed):
        return str(error)
    if type(error).__module__.partition(".")[0] in CUDA:
        return f"CUDA failed while the step ran: {error}; with --no-graph and compute-sanitizer it says where"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        full = " (nothing more can be written there)" if error.errno == errno.ENOSPC else ""
        return f"{where}{error.strerror or error}{full}"
    if isinstance(error, MemoryError):
        return f"this machine has not enough memory{f': {error}' if str(error) else ''}"
    what = f"{type(error).__name__}: {error}"
    return f"internal error, please report it: {what} (`minidnn --traceback VERB ...` shows where)"


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "minidnn", description="Train networks larger than the device's memory.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"minidnn {minidnn.__version__}")
    parser.add_argument("--traceback", action="store_true", help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
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
