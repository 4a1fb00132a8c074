"""`minidnn completion SHELL`: what makes a shell complete verbs, options, and the names of models and policies.

The shell asks the command itself, by the package argcomplete (the extra `completion`): no list is kept.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from minidnn.cli.help import examples
from minidnn.visible import say

ASKED = "_ARGCOMPLETE"  # argcomplete's variable: a shell asks what may come next
LINE = "COMP_LINE"  # and the command line as it is
SHELLS = "bash", "zsh", "fish"
Names = Callable[[], Iterable[str]]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples("minidnn completion bash")
    text = f"{', '.join(SHELLS)}; docs/commands.md says where its script goes"
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=text)


def run(args: argparse.Namespace) -> None:
    for line in _argcomplete().shellcode(["minidnn"], shell=args.shell).splitlines():
        say(line)


def _argcomplete() -> ModuleType:
    from minidnn.errors import InvalidInput

    try:
        import argcomplete
    except ImportError:
        raise InvalidInput("completion needs the package argcomplete: pip install 'minidnn[completion]'") from None
    return argcomplete


def words() -> list[str] | None:
    """The words of the command line that a shell wants to have completed, without the first; None: none does."""
    return os.environ.get(LINE, "").split()[1:] if ASKED in os.environ else None


def complete(parser: argparse.ArgumentParser) -> None:
    """Tell the shell what may come next on its command line, and end the process."""
    for action in _actions(parser):
        if action.dest == "set":
            setattr(action, "completer", fields)  # noqa: B010
        elif action.dest in NAMES:
            offer(action, *NAMES[action.dest], several=action.dest == "policies")
    _argcomplete().ExclusiveCompletionFinder()(parser)


def _actions(parser: argparse.ArgumentParser) -> Iterable[argparse.Action]:
    """The arguments of the parser, and those of its verbs."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from verb._actions


def offer(action: argparse.Action, names: Names, suffixes: Sequence[str] = (), several: bool = False) -> None:
    """Let a shell complete the values of an argument: to these names, and to files of these suffixes.

    several: whether it takes several values, with commas between them"""

    def completer(prefix: str, **more: Any) -> list[str]:
        before, comma, last = prefix.rpartition(",") if several else ("", "", prefix)
        files = _argcomplete().completers.FilesCompleter(suffixes)(last) if suffixes else []
        return [before + comma + word for word in (*names(), *files)]

    setattr(action, "completer", completer)  # noqa: B010 (argcomplete asks an action's attribute)


def fields(prefix: str, **more: Any) -> list[str]:
    """What may come next of FIELD=VALUE: the names of a solver's fields, then the words that a field may be."""
    from minidnn.jobs.assigned import field_names, values_of

    name, equals, _ = prefix.partition("=")
    return [f"{name}={word}" for word in values_of(name)] if equals else [f"{field}=" for field in field_names()]


def _policies() -> list[str]:
    from minidnn.memory.policies import CHOOSING, POLICIES, SUFFIXES

    return [*CHOOSING, *POLICIES, *(f"{name}:{letter}" for name in POLICIES for letter in SUFFIXES)]


def _models() -> list[str]:
    from minidnn.zoo import names, net_names

    return [*net_names(), *(name for name in names() if name.endswith("_solver"))]


def _links() -> list[str]:
    from minidnn.costs.links import links

    return links()


def _gpus() -> list[str]:
    from minidnn.costs import gpus

    return gpus()


def _facts() -> list[str]:
    from minidnn.layers import FACTS

    return list(FACTS)


def _devices() -> list[str]:
    from minidnn.backends import DEVICES

    return list(DEVICES)


# {an argument's name: (the names that it may be, suffixes of the files that it may be)}
NETS = ".yaml", ".yml", ".prototxt", ".py", ".onnx"
NAMES: dict[str, tuple[Names, Sequence[str]]] = {
    **dict.fromkeys(("file", "model", "solver", "net"), (_models, NETS)),
    "source": (_models, (*NETS, ".caffemodel", ".safetensors")),
    **dict.fromkeys(("policy", "policies"), (_policies, (".plan",))),
    "gpu": (_gpus, (".yaml",)),
    "link": (_links, (".yaml",)),
    "facts": (_facts, ()),
    **dict.fromkeys(("device", "name"), (_devices, ())),
}
