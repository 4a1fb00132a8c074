"""The parser of the command line. A wrong command ends with one line that names the mistake and points to the help."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from minidnn.errors import near
from minidnn.visible import say

USAGE = 2  # the exit code of a wrong command


class Parser(argparse.ArgumentParser):
    """A parser that escapes the text it quotes, and keeps its exit code even if its message cannot be written."""

    def error(self, message: str) -> NoReturn:
        with contextlib.suppress(OSError):
            say(f"{self.prog}: {message}; see `{self.prog} --help`", file=sys.stderr)
        self.exit(USAGE)

    def _print_message(self, message: str, file: Any = None) -> None:
        with contextlib.suppress(OSError) if file is sys.stderr else contextlib.nullcontext():
            super()._print_message(message, file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError, with a hint, if the value is none of the action's choices."""
        if action.choices is None or value in action.choices:
            return
        verb = isinstance(action, argparse._SubParsersAction)
        there = f"; there are {', '.join(action.choices)}" if not verb else ""
        what = f"there is no {'verb ' if verb else ''}{value!r}{near(value, action.choices)}{there}"
        raise argparse.ArgumentError(None if verb else action, what)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        """The arguments, and no word that is left over. Unknown options are told first, before what else is wrong."""
        words = list(sys.argv[1:] if args is None else args)
        for option in filter(_is_option, self._own(words)):
            name = option.partition("=")[0]
            if name not in self._option_string_actions:
                self.error(f"there is no option {name!r}{near(name, self._option_string_actions)}")
        result, more = super().parse_known_args(words, namespace)
        if more:
            self.error(f"unexpected argument {more[0]!r}")
        return result, more

    def _own(self, words: Sequence[str]) -> Iterator[str]:
        """The words that may be options of this parser, and not of a verb's."""
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return
            yield word


def _is_option(word: str) -> bool:
    """Whether argparse takes the word for an option's name: it begins with a dash, and is no negative number."""
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit() and word[1] != "." and " " not in word
